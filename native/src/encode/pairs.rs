//! Which token a pair of tokens makes, and how early.

use crate::runtime::memory::{huge_filled, prefetch};

/// A rank in the upper half, what the merge makes in the lower: the smaller, the earlier.
pub(super) type PairMerge = u64;

/// No merge joins the pair.
pub(super) const NO_MERGE: PairMerge = u64::MAX;

/// No merge joins the pair now, but what is made of the two tokens may be joined here.
pub(super) const SEAM: PairMerge = u64::MAX - 1;

#[inline(always)]
pub(super) fn pair_merge(rank: u32, new: u32) -> PairMerge {
    (rank as u64) << 32 | new as u64
}

#[inline(always)]
pub(super) fn rank(found: PairMerge) -> u32 {
    (found >> 32) as u32
}

/// What a merge makes. Neither `NO_MERGE` nor `SEAM` is a merge.
#[inline(always)]
pub(super) fn product(found: PairMerge) -> u32 {
    found as u32
}

/// Whether it is a merge.
#[inline(always)]
pub(super) fn is_merge(found: PairMerge) -> bool {
    found < SEAM
}

/// Pairs of ids and what is found for them.
pub struct PairTable {
    slots: Vec<(u64, PairMerge)>,
    shift: u32,
}

const EMPTY: u64 = u64::MAX;

impl PairTable {
    /// A table for up to `capacity` pairs.
    pub(super) fn new(capacity: usize) -> Self {
        let size = (capacity * 2).next_power_of_two().max(16);
        Self { slots: huge_filled(size, (EMPTY, NO_MERGE)), shift: 64 - size.trailing_zeros() }
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
    pub(super) fn insert(&mut self, left: u32, right: u32, found: PairMerge) {
        let pair = (left as u64) << 32 | right as u64;
        let at = self.slot(pair);
        self.slots[at] = (pair, found);
    }

    #[inline(always)]
    pub(super) fn get(&self, left: u32, right: u32) -> PairMerge {
        self.slots[self.slot((left as u64) << 32 | right as u64)].1
    }
}

/// The same for good, at one probe for any pair: a pair's bucket says how to displace its hash so that no two pairs meet
/// (hash and displace). Denser than open addressing, and without a branch on how full a place is.
pub(super) struct FixedPairs {
    slots: Vec<(u64, PairMerge)>,
    displacements: Vec<u16>,
}

impl FixedPairs {
    pub(super) fn new(table: &PairTable) -> Self {
        let mut pairs: Vec<(u64, PairMerge)> = table.slots.iter().copied().filter(|slot| slot.0 != EMPTY).collect();
        let n_buckets = pairs.len() / 4 + 1;
        let bucket = |pair: u64| reduce(mix(pair) as u32, n_buckets);
        pairs.sort_unstable_by_key(|slot| bucket(slot.0));
        let mut buckets: Vec<&[(u64, PairMerge)]> = pairs.chunk_by(|a, b| bucket(a.0) == bucket(b.0)).collect();
        buckets.sort_by_key(|pairs| std::cmp::Reverse(pairs.len()));
        // A bucket that fits nowhere calls for more room; with a quarter free that is not to be expected.
        let mut size = pairs.len() + pairs.len() / 4 + 4;
        loop {
            if let Some(fixed) = Self::place(&buckets, n_buckets, size) {
                return fixed;
            }
            size += size / 4;
        }
    }

    fn place(buckets: &[&[(u64, PairMerge)]], n_buckets: usize, size: usize) -> Option<Self> {
        let mut slots = huge_filled(size, (EMPTY, NO_MERGE));
        let mut displacements = vec![0; n_buckets];
        let mut places = Vec::new();
        for pairs in buckets {
            let displacement = (0..=u16::MAX).find(|&displacement| {
                places.clear();
                pairs.iter().all(|&(pair, _)| {
                    let at = displaced(mix(pair), displacement, size);
                    let free = slots[at].0 == EMPTY && !places.contains(&at);
                    places.push(at);
                    free
                })
            })?;
            places.iter().zip(*pairs).for_each(|(&at, &slot)| slots[at] = slot);
            displacements[reduce(mix(pairs[0].0) as u32, n_buckets)] = displacement;
        }
        Some(Self { slots, displacements })
    }

    #[inline(always)]
    fn place_of(&self, pair: u64) -> usize {
        let hash = mix(pair);
        displaced(hash, self.displacements[reduce(hash as u32, self.displacements.len())], self.slots.len())
    }

    /// Asks for what `get` reads, and says where it is.
    #[inline(always)]
    pub(super) fn place_ahead(&self, left: u32, right: u32) -> usize {
        let at = self.place_of((left as u64) << 32 | right as u64);
        prefetch(&self.slots, at);
        at
    }

    #[inline(always)]
    pub(super) fn get_at(&self, at: usize, left: u32, right: u32) -> PairMerge {
        let (pair, found) = self.slots[at];
        if pair == (left as u64) << 32 | right as u64 {
            found
        } else {
            NO_MERGE
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, left: u32, right: u32) -> PairMerge {
        self.get_at(self.place_of((left as u64) << 32 | right as u64), left, right)
    }
}

#[inline(always)]
fn mix(pair: u64) -> u64 {
    let product = (pair ^ 0x9E37_79B9_7F4A_7C15) as u128 * 0xBF58_476D_1CE4_E5B9_u128;
    (product >> 64) as u64 ^ product as u64
}

/// A number below `n` out of a hash.
#[inline(always)]
fn reduce(hash: u32, n: usize) -> usize {
    ((hash as u64 * n as u64) >> 32) as usize
}

#[inline(always)]
fn displaced(hash: u64, displacement: u16, size: usize) -> usize {
    let turned = (hash >> 32 ^ displacement as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    reduce((turned >> 32) as u32, size)
}
