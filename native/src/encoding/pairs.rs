//! Which token a pair of tokens makes, and how early.

use super::memory::on_huge_pages;
use super::merging::{merge, Scratch};

/// A rank in the upper half, what the merge makes in the lower: the smaller, the earlier.
pub(super) type Found = u64;

/// No merge joins the pair.
pub(super) const ABSENT: Found = u64::MAX;

/// No merge joins the pair now, but what is made of the two tokens may be joined here.
pub(super) const SEAM: Found = u64::MAX - 1;

#[inline(always)]
pub(super) fn found(rank: u32, new: u32) -> Found {
    (rank as u64) << 32 | new as u64
}

#[inline(always)]
pub(super) fn rank(found: Found) -> u32 {
    (found >> 32) as u32
}

/// What a merge makes. Neither `ABSENT` nor `SEAM` is a merge.
#[inline(always)]
pub(super) fn made(found: Found) -> u32 {
    found as u32
}

/// Whether it is a merge.
#[inline(always)]
pub(super) fn joins(found: Found) -> bool {
    found < SEAM
}

/// Pairs of ids and what is found for them.
pub struct PairTable {
    slots: Vec<(u64, Found)>,
    shift: u32,
}

const EMPTY: u64 = u64::MAX;

impl PairTable {
    /// A table for up to `capacity` pairs.
    pub(super) fn new(capacity: usize) -> Self {
        let size = (capacity * 2).next_power_of_two().max(16);
        Self { slots: on_huge_pages(size, (EMPTY, ABSENT)), shift: 64 - size.trailing_zeros() }
    }

    #[inline(always)]
    fn home(&self, pair: u64) -> usize {
        (pair.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    #[inline(always)]
    fn slot(&self, pair: u64) -> usize {
        let mut at = self.home(pair);
        while self.slots[at].0 != pair && self.slots[at].0 != EMPTY {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// A repeated pair keeps what came last, as in HF `tokenizers`.
    pub(super) fn insert(&mut self, left: u32, right: u32, found: Found) {
        let pair = (left as u64) << 32 | right as u64;
        let at = self.slot(pair);
        self.slots[at] = (pair, found);
    }

    #[inline(always)]
    pub(super) fn get(&self, left: u32, right: u32) -> Found {
        self.slots[self.slot((left as u64) << 32 | right as u64)].1
    }
}

/// Merges that apply by rank to sequences of tokens, as training applied them one after the other.
pub struct RankedMerges {
    table: PairTable,
    scratch: Scratch,
}

impl RankedMerges {
    /// (left, right, new) by rank; what a merge joins is made before it.
    pub fn new(merges: impl ExactSizeIterator<Item = (u32, u32, u32)>) -> Self {
        let mut table = PairTable::new(merges.len());
        merges.enumerate().for_each(|(rank, (left, right, new))| table.insert(left, right, found(rank as u32, new)));
        Self { table, scratch: Scratch::default() }
    }

    pub fn apply(&mut self, ids: &mut Vec<u32>) {
        merge(ids, |left, right| self.table.get(left, right), true, &mut self.scratch);
    }
}
