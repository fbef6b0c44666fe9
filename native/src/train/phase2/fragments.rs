//! Fragments: sequences of phase-1 tokens, each with a count.
//!
//! They are counted like pretokens: as strings of three bytes per id.

use super::partial::{self, Rows};
use crate::count::keys::SHORT;
use crate::count::table::{Counted, Table};
use crate::runtime::interrupt::poll;
use crate::train::cells::TakeWord;
use crate::vocabulary::MOST_IDS;

/// Bytes per token of a merge loop: its cell, and at most three postings.
const LOOP_BYTES: usize = 16;

/// Bytes per id in a string.
const ID_BYTES: usize = 3;
const ID_BITS: usize = 8 * ID_BYTES;
const _: () = assert!(MOST_IDS <= 1 << ID_BITS);

/// Counts of token sequences.
#[derive(Default)]
pub struct Fragments {
    table: Table,
    /// Sum of all counts.
    total: u64,
    bytes: Vec<u8>,
}

impl Fragments {
    /// Number of distinct fragments. Like `n_tokens`, `memory` and the rows, without what was added since `settle`.
    pub fn len(&self) -> usize {
        self.table.n_strings()
    }

    /// Number of tokens of all distinct fragments.
    pub fn n_tokens(&self) -> usize {
        self.table.n_bytes() / ID_BYTES
    }

    #[inline(always)]
    pub fn add(&mut self, fragment: &[u32], count: u64) {
        if fragment.len() < 2 {
            return;
        }
        self.total += count;
        if ID_BYTES * fragment.len() <= SHORT {
            let ids = fragment.iter().rev().fold(0, |ids, &id| ids << ID_BITS | u128::from(id));
            self.table.add_key(ids | ((ID_BYTES * fragment.len()) as u128) << (8 * SHORT), count);
        } else {
            self.bytes.clear();
            self.bytes.extend(fragment.iter().flat_map(|id| id.to_le_bytes().into_iter().take(ID_BYTES)));
            self.table.add_long(&self.bytes, count);
        }
    }

    /// `add` that fails if the sum of all counts does not fit 64 bits.
    pub fn add_checked(&mut self, fragment: &[u32], count: u64) -> Result<(), String> {
        let mut total = self.total;
        partial::add(&mut total, count)?;
        self.add(fragment, count);
        Ok(())
    }

    pub fn settle(&mut self) {
        self.table.settle();
    }

    /// Adds the counts of another object.
    pub fn merge(&mut self, mut other: Self) {
        other.settle();
        if other.len() > self.len() {
            std::mem::swap(self, &mut other);
        }
        other.table.each(|fragment, count| match fragment {
            Counted::Short(key) => self.table.add_key(key, count),
            Counted::Long(bytes) => self.table.add_long(bytes, count),
        });
        self.total += other.total;
        self.settle();
    }

    /// Bytes in use, and those that a merge loop over the fragments will need at most: cells and postings.
    pub fn memory(&self) -> usize {
        self.table.memory() + self.n_tokens() * LOOP_BYTES
    }

    /// Passes each fragment to `take`, in any order.
    pub fn each(&self, take: &mut TakeWord) {
        self.table.each(|fragment, count| match fragment {
            Counted::Short(key) => {
                let bytes = key.to_le_bytes();
                let n = usize::from(bytes[SHORT]);
                take(count, n / ID_BYTES, &|ids| decode(&bytes[..n], ids));
            }
            Counted::Long(bytes) => take(count, bytes.len() / ID_BYTES, &|ids| decode(bytes, ids)),
        });
    }

    /// Appends the fragments in sorted order, with `first` before each.
    pub fn append_to(&self, rows: &mut Rows, first: &[u32]) {
        let mut unsorted = Rows::default();
        let mut ids = Vec::new();
        self.each(&mut |count, n, copy| {
            ids.resize(n, 0);
            copy(&mut ids);
            unsorted.push(&[], &ids, count);
        });
        let mut sorted: Vec<(&[u32], u64)> = unsorted.iter().collect();
        sorted.sort_unstable();
        for (ids, count) in sorted {
            poll(ids.len());
            rows.push(first, ids, count);
        }
    }
}

/// The ids of a string.
fn decode(bytes: &[u8], ids: &mut [u32]) {
    for (id, bytes) in ids.iter_mut().zip(bytes.chunks_exact(ID_BYTES)) {
        *id = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
    }
}
