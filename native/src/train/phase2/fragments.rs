//! Fragments: sequences of phase-1 tokens, each with a count.
//!
//! They are counted like pretokens: as keys if they are short, otherwise as strings of three bytes per id.

use std::ops::Range;

use super::partial::{self, Rows};
use crate::count::table::{Counted, Table};
use crate::encode::packed::ID;
use crate::runtime::interrupt::poll;
use crate::train::cells::TakeWord;
use crate::vocabulary::MOST_IDS;

/// Bytes per token of a merge loop: its cell, and at most three postings.
const LOOP_BYTES: usize = 16;

/// Bytes per id in a string.
const ID_BYTES: usize = 3;
const _: () = assert!(MOST_IDS <= 1 << (8 * ID_BYTES));

/// In a key, an id has this many bits. Fragments with a greater id have no key.
const ID_BITS: usize = 17;
const KEY_ID: u32 = (1 << ID_BITS) - 1;
/// Number of ids that fit a key, and its bits after them: `ID_BYTES` times the number.
const KEY_IDS: usize = 7;
const LENGTH_SHIFT: usize = 120;

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

    /// Adds some of the packed tokens `text`, unless there is only one.
    #[inline(always)]
    pub fn add(&mut self, text: &[u32], Range { start, end }: Range<usize>, count: u64) {
        if end < start + 2 {
            return;
        }
        self.total += count;
        match key(text, start, end - start) {
            Some(key) => self.table.add_key(key, count),
            None => self.add_long(&text[start..end], count),
        }
    }

    #[inline(never)]
    fn add_long(&mut self, fragment: &[u32], count: u64) {
        self.bytes.resize(ID_BYTES * fragment.len(), 0);
        let bytes = self.bytes.chunks_exact_mut(ID_BYTES).zip(fragment);
        bytes.for_each(|(to, id)| to.copy_from_slice(&id.to_le_bytes()[..ID_BYTES]));
        self.table.add_long(&self.bytes, count);
    }

    /// `add` that fails if the sum of all counts does not fit 64 bits.
    pub fn add_checked(&mut self, fragment: &[u32], count: u64) -> Result<(), String> {
        let mut total = self.total;
        partial::add(&mut total, count)?;
        self.add(fragment, 0..fragment.len(), count);
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
                let id = |i: usize| (key >> (ID_BITS * i)) as u32 & KEY_ID;
                let copy = |ids: &mut [u32]| ids.iter_mut().enumerate().for_each(|(i, to)| *to = id(i));
                take(count, (key >> LENGTH_SHIFT) as usize / ID_BYTES, &copy);
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

/// The key of `length` tokens, if they have one. Seven are read whatever the length, which saves a branch.
#[inline(always)]
fn key(text: &[u32], start: usize, length: usize) -> Option<u128> {
    let mut padded = [0; KEY_IDS];
    let tokens = text[start..].first_chunk().unwrap_or_else(|| {
        padded[..text.len() - start].copy_from_slice(&text[start..]);
        &padded
    });
    let large = |tokens: &[u32]| tokens.iter().fold(0, |all, token| all | token) & ID > KEY_ID;
    if length > KEY_IDS || large(tokens) && large(&tokens[..length]) {
        return None;
    }
    let ids = tokens.iter().rev().fold(0, |ids, token| ids << ID_BITS | u128::from(token & KEY_ID));
    Some(ids & ((1 << (ID_BITS * length)) - 1) | ((ID_BYTES * length) as u128) << LENGTH_SHIFT)
}

/// The ids of a string.
fn decode(bytes: &[u8], ids: &mut [u32]) {
    for (id, bytes) in ids.iter_mut().zip(bytes.chunks_exact(ID_BYTES)) {
        *id = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
    }
}
