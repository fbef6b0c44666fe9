//! Fragments: sequences of phase-1 tokens, each with a count.

use hashbrown::hash_table::{Entry, HashTable};

use crate::runtime::{interrupt::poll, memory};
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
            self.add_hashed(fragment, hash(fragment), count);
        }
    }

    fn add_hashed(&mut self, fragment: &[u32], hash: u32, count: u64) {
        let Self { ids, table } = self;
        let equal = |entry: &Fragment| entry.hash == hash && entry.of(ids) == fragment;
        memory::reserve_table(table, |entry| spread(entry.hash));
        match table.entry(spread(hash), equal, |entry| spread(entry.hash)) {
            Entry::Occupied(mut entry) => entry.get_mut().count += count,
            Entry::Vacant(entry) => {
                entry.insert(Fragment { start: ids.len(), length: fragment.len() as u32, hash, count });
                memory::reserve(ids, fragment.len());
                ids.extend_from_slice(fragment);
            }
        }
    }

    pub fn merge(&mut self, other: Self) {
        for fragment in &other.table {
            poll(fragment.length as usize);
            self.add_hashed(fragment.of(&other.ids), fragment.hash, fragment.count);
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

    /// `into_words` that keeps the fragments.
    pub fn words(&self) -> Result<Words, String> {
        let fragments: Vec<&Fragment> = self.table.iter().collect();
        let weights: Vec<u64> = fragments.iter().map(|fragment| fragment.count).collect();
        Words::new(&weights, |i| fragments[i].of(&self.ids).iter().copied())
    }
}
