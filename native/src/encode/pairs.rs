//! Merges by the pair of tokens that they join.

use crate::runtime::memory::{huge_filled, prefetch};

/// The rank in the upper half and the product in the lower half, so the smaller one applies first.
pub(super) type PairMerge = u64;

/// No merge joins the pair.
pub(super) const NO_MERGE: PairMerge = u64::MAX;

/// No merge joins the pair itself, but a merge may join tokens that end and begin with the two.
pub(super) const SEAM: PairMerge = u64::MAX - 1;

#[inline(always)]
pub(super) fn pair_merge(rank: u32, new: u32) -> PairMerge {
    (rank as u64) << 32 | new as u64
}

#[inline(always)]
pub(super) fn rank(found: PairMerge) -> u32 {
    (found >> 32) as u32
}

/// The product of a merge; neither `NO_MERGE` nor `SEAM` has one.
#[inline(always)]
pub(super) fn product(found: PairMerge) -> u32 {
    found as u32
}

/// Whether a merge joins the pair.
#[inline(always)]
pub(super) fn is_merge(found: PairMerge) -> bool {
    found < SEAM
}

/// Index of two bytes in a table of all pairs.
#[inline(always)]
pub(super) fn byte_pair(left: u8, right: u8) -> usize {
    u16::from_le_bytes([left, right]) as usize
}

/// Merges by pair of ids. If a pair is repeated, the last merge counts, as in HF `tokenizers`.
pub(super) type Pairs = rustc_hash::FxHashMap<(u32, u32), PairMerge>;

const EMPTY: u64 = u64::MAX;

#[inline(always)]
fn joined(left: u32, right: u32) -> u64 {
    (left as u64) << 32 | right as u64
}

/// Read-only table with one probe per lookup: each bucket stores a displacement for its hashes such that no two pairs
/// collide (hash and displace). Denser than open addressing, and without a branch on occupancy.
pub(super) struct FixedPairs {
    slots: Vec<(u64, PairMerge)>,
    displacements: Vec<u16>,
}

impl FixedPairs {
    pub(super) fn new(pairs: &Pairs) -> Self {
        let pairs = pairs.iter().map(|(&(left, right), &found)| (joined(left, right), found));
        let mut pairs: Vec<(u64, PairMerge)> = pairs.collect();
        let n_buckets = pairs.len() / 4 + 1;
        let bucket = |pair: u64| reduce(mix(pair) as u32, n_buckets);
        pairs.sort_unstable_by_key(|slot| bucket(slot.0));
        let mut buckets: Vec<&[(u64, PairMerge)]> = pairs.chunk_by(|a, b| bucket(a.0) == bucket(b.0)).collect();
        buckets.sort_by_key(|pairs| std::cmp::Reverse(pairs.len()));
        // If a bucket fits nowhere, retry with a larger table. With a fifth of the slots free this is not expected.
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

    /// The slot that `get` reads; prefetches it.
    #[inline(always)]
    pub(super) fn place_ahead(&self, left: u32, right: u32) -> usize {
        let at = self.place_of(joined(left, right));
        prefetch(&self.slots, at);
        at
    }

    /// Whether the pair is in the slot, and if so, its merge. A branch on that would often be mispredicted.
    #[inline(always)]
    pub(super) fn find_at(&self, at: usize, left: u32, right: u32) -> (bool, PairMerge) {
        let (pair, found) = self.slots[at];
        (pair == joined(left, right), found)
    }

    #[inline(always)]
    pub(super) fn find(&self, left: u32, right: u32) -> (bool, PairMerge) {
        self.find_at(self.place_of(joined(left, right)), left, right)
    }

    #[inline(always)]
    pub(super) fn get(&self, left: u32, right: u32) -> PairMerge {
        match self.find(left, right) {
            (true, found) => found,
            (false, _) => NO_MERGE,
        }
    }
}

#[inline(always)]
fn mix(pair: u64) -> u64 {
    let product = (pair ^ 0x9E37_79B9_7F4A_7C15) as u128 * 0xBF58_476D_1CE4_E5B9_u128;
    (product >> 64) as u64 ^ product as u64
}

/// Maps a hash to a number below `n`.
#[inline(always)]
fn reduce(hash: u32, n: usize) -> usize {
    ((hash as u64 * n as u64) >> 32) as usize
}

#[inline(always)]
fn displaced(hash: u64, displacement: u16, size: usize) -> usize {
    // All bits of the hash: pairs of a bucket that agree in the upper half alone must not collide everywhere.
    let turned = (hash.rotate_right(32) ^ displacement as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    reduce((turned >> 32) as u32, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_share_a_bucket_and_half_of_the_hash_get_different_slots() {
        let mut seen = rustc_hash::FxHashMap::default();
        let mut hashed = (0..1u32 << 20).map(|left| (left, seen.insert(mix(joined(left, 7)) >> 32, left)));
        let (left, Some(other)) = hashed.find(|(_, other)| other.is_some()).expect("a million hashes collide") else {
            panic!()
        };
        let fixed = FixedPairs::new(&Pairs::from_iter([((left, 7), 1), ((other, 7), 2)]));
        assert_eq!((fixed.get(left, 7), fixed.get(other, 7)), (1, 2));
    }
}
