//! Fragments: sequences of phase-1 tokens, each with a count.

use hashbrown::HashTable;

use super::partial::{self, Rows};
use crate::runtime::interrupt::poll;
use crate::train::cells::Words;

/// Bytes per token of a merge loop: its cell, and at most three postings.
const LOOP_BYTES: usize = 16;

/// Counts of token sequences.
#[derive(Default)]
pub struct Fragments {
    ids: Vec<u32>,
    table: HashTable<Fragment>,
}

#[derive(Clone, Copy)]
struct Fragment {
    start: usize,
    length: u32,
    /// Stored because the ids are far apart in memory: growing the table would read all of them again.
    hash: u32,
    count: u64,
}

impl Fragment {
    fn of<'a>(&self, ids: &'a [u32]) -> &'a [u32] {
        &ids[self.start..self.start + self.length as usize]
    }
}

fn hash(fragment: &[u32]) -> u32 {
    // SAFETY: a u32 is four readable bytes. The hash never leaves the process, so byte order does not matter.
    let bytes = unsafe { std::slice::from_raw_parts(fragment.as_ptr().cast::<u8>(), size_of_val(fragment)) };
    (xxhash_rust::xxh3::xxh3_64(bytes) >> 32) as u32
}

/// The table selects the slot by the low bits of a hash and compares the high bits first.
#[inline(always)]
fn spread(hash: u32) -> u64 {
    (hash as u64) << 32 | hash as u64
}

impl Fragments {
    /// Number of distinct fragments.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Number of tokens of all distinct fragments.
    pub fn n_tokens(&self) -> usize {
        self.ids.len()
    }

    pub fn add(&mut self, fragment: &[u32], count: u64) {
        if fragment.len() > 1 {
            *self.count(fragment, hash(fragment)) += count;
        }
    }

    /// `add` that fails if the sum does not fit 64 bits.
    pub fn add_checked(&mut self, fragment: &[u32], count: u64) -> Result<(), String> {
        if fragment.len() > 1 {
            partial::add(self.count(fragment, hash(fragment)), count)?;
        }
        Ok(())
    }

    /// The count of a fragment, to add to.
    fn count(&mut self, fragment: &[u32], hash: u32) -> &mut u64 {
        let Self { ids, table } = self;
        let equal = |entry: &Fragment| entry.hash == hash && entry.of(ids) == fragment;
        match table.find_entry(spread(hash), equal) {
            Ok(entry) => &mut entry.into_mut().count,
            Err(absent) => {
                let start = ids.len();
                let end = start + fragment.len();
                if end > ids.capacity() {
                    // A power of two, so that `memory` does not depend on the order of fragments.
                    ids.reserve(end.next_power_of_two() - start);
                }
                ids.extend_from_slice(fragment);
                let length = fragment.len() as u32;
                let table = absent.into_table();
                let entry = Fragment { start, length, hash, count: 0 };
                &mut table.insert_unique(spread(hash), entry, |entry| spread(entry.hash)).into_mut().count
            }
        }
    }

    pub fn merge(&mut self, other: Self) {
        for fragment in &other.table {
            poll(fragment.length as usize);
            *self.count(fragment.of(&other.ids), fragment.hash) += fragment.count;
        }
    }

    /// Bytes in use, and those that a merge loop over the fragments will need at most: cells and postings.
    pub fn memory(&self) -> usize {
        self.ids.capacity() * size_of::<u32>() + self.table.allocation_size() + self.ids.len() * LOOP_BYTES
    }

    /// The fragments as words of a merge loop.
    pub fn into_words(self) -> Result<Words, String> {
        let fragments: Vec<Fragment> = self.table.iter().copied().collect();
        drop(self.table);
        let weights: Vec<u64> = fragments.iter().map(|fragment| fragment.count).collect();
        Words::new(&weights, |i| fragments[i].of(&self.ids).iter().copied())
    }

    /// `into_words` for several tables of fragments, which are kept.
    pub fn words<'a>(tables: impl Iterator<Item = &'a Self>) -> Result<Words, String> {
        let (fragments, weights): (Vec<&[u32]>, Vec<u64>) =
            tables.flat_map(|this| this.table.iter().map(|fragment| (fragment.of(&this.ids), fragment.count))).unzip();
        Words::new(&weights, |i| fragments[i].iter().copied())
    }

    /// Appends the fragments in sorted order, with `first` before each.
    pub fn append_to(&self, rows: &mut Rows, first: &[u32]) {
        let mut sorted: Vec<&Fragment> = Vec::with_capacity(self.table.len());
        sorted.extend(&self.table);
        sorted.sort_unstable_by_key(|fragment| fragment.of(&self.ids));
        for fragment in sorted {
            poll(fragment.length as usize);
            rows.push(first, fragment.of(&self.ids), fragment.count);
        }
    }
}
