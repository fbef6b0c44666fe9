//! Tokens that merging their own bytes produces: pieces that equal one are in the cache from the start.

use crate::count::keys::hash_key;
use crate::encode::pairs::{is_merge, rank, PairMerge};
use crate::encode::{definition::Definition, rules::Rule};
use crate::runtime::memory::huge_filled;
use crate::vocabulary::MergeRule;

/// The parts of each token, if every token is made by one merge that follows those of its parts.
pub(in crate::encode) struct Origins {
    /// By id: left part, right part, and rank plus one (0 for bytes).
    of: Vec<(u32, u32, u32)>,
}

impl Origins {
    pub(in crate::encode) fn new(definition: &Definition, rules: &[Rule]) -> Option<Self> {
        const NEVER: u32 = u32::MAX;
        let mut of = vec![(0, 0, NEVER); definition.tokens.len()];
        definition.byte_ids.iter().for_each(|&id| of[id as usize].2 = 0);
        for &Rule { rank, merge: MergeRule { left, right, new } } in rules {
            let in_order = of[left as usize].2 != NEVER && of[right as usize].2 != NEVER && of[new as usize].2 == NEVER;
            if !in_order {
                return None;
            }
            of[new as usize] = (left, right, rank + 1);
        }
        Some(Self { of })
    }

    /// Whether the two parts of a merge become adjacent when its bytes are merged alone, given that the bytes of each
    /// part produce that part.
    ///
    /// They do unless another merge crosses the seam between them first. The tokens at the seam at any time are known:
    /// going back in time, the part that was made last splits into its own parts. The pair at the seam is merged if its
    /// rank is below that of the merge that consumes its left token from the left, and not above that of the merge that
    /// consumes its right token from the right (of equal ranks, the leftmost comes first).
    #[inline(always)]
    pub(in crate::encode) fn meet(&self, merge: &MergeRule, pair: impl Fn(u32, u32) -> PairMerge) -> bool {
        let (mut left, mut right) = (merge.left, merge.right);
        let (mut takes_left, mut takes_right) = (u32::MAX, u32::MAX);
        loop {
            let (from_left, from_right) = (self.of[left as usize], self.of[right as usize]);
            if from_left.2 == 0 && from_right.2 == 0 {
                return true;
            }
            // If both sides are the same token, the left one is made first.
            if from_left.2 > from_right.2 {
                (takes_left, left) = (from_left.2 - 1, from_left.1);
            } else {
                (takes_right, right) = (from_right.2 - 1, from_right.0);
            }
            let found = pair(left, right);
            if is_merge(found) && rank(found) < takes_left && rank(found) <= takes_right {
                return false;
            }
        }
    }
}

/// Hash table from keys to the ids of the tokens with those bytes.
#[derive(Default)]
pub(in crate::encode) struct TokenIndex {
    /// Part of the hash, and the id.
    slots: Vec<(u32, u32)>,
    /// Keys by id.
    keys: Vec<u128>,
}

const NO_ID: u32 = u32::MAX;

impl TokenIndex {
    pub(in crate::encode) fn new(n: usize) -> Self {
        let slots = huge_filled((n * 3 / 2).next_power_of_two().max(16), (0, NO_ID));
        Self { slots, keys: huge_filled(n, 0) }
    }

    /// The slot of a key, or the empty slot where it would be.
    #[inline(always)]
    fn slot(&self, key: u128) -> (usize, u32) {
        let (hash, mask) = (hash_key(key), self.slots.len() - 1);
        // Other hash bits than the cache, which uses the low ones.
        let (mut at, part) = ((hash >> 32) as usize & mask, hash as u32);
        loop {
            let (found, id) = self.slots[at];
            if id == NO_ID || found == part && self.keys[id as usize] == key {
                return (at, part);
            }
            at = (at + 1) & mask;
        }
    }

    pub(in crate::encode) fn insert(&mut self, key: u128, id: u32) {
        let (at, part) = self.slot(key);
        self.slots[at] = (part, id);
        self.keys[id as usize] = key;
    }

    /// Ids with their keys.
    pub(in crate::encode) fn iter(&self) -> impl Iterator<Item = (u128, u32)> + '_ {
        self.slots.iter().filter(|slot| slot.1 != NO_ID).map(|&(_, id)| (self.keys[id as usize], id))
    }

    #[inline(always)]
    pub(in crate::encode) fn get(&self, key: u128) -> Option<u32> {
        let id = self.slots[self.slot(key).0].1;
        (id != NO_ID).then_some(id)
    }
}
