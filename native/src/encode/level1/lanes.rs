//! Merges many short sequences in an interleaved way.
//!
//! While one sequence waits for the table of pairs, the others proceed. A lane has a fixed size and a step processes
//! all of it, so no branch depends on the number of tokens left.

use crate::count::keys::SHORT;
use crate::encode::pairs::{product, rank, FixedPairs, PairMerge};
use crate::runtime::memory;
use crate::vocabulary::MOST_MERGES;

/// Maximum number of tokens of a lane: one for each byte of a short piece.
pub(in crate::encode) const TOKENS: usize = SHORT;

/// One more than the tokens, so that a step can load a whole row.
const ROW: usize = TOKENS + 1;

/// Greater than any rank. Ranks are shifted to make space for the position in the same integer.
const NO_RANK: u32 = MOST_MERGES as u32;
const PLACE: i32 = ROW as i32 - 1;
const NONE: i32 = (NO_RANK as i32) << ROW.trailing_zeros();

struct Lane {
    /// Number of the sequence.
    number: u32,
    length: u32,
    /// Position of the latest merge.
    at: Option<u32>,
    /// Slots, in the table of pairs, of the pairs of the new token with its left and right neighbour.
    left: usize,
    right: usize,
    tokens: [u32; 2 * ROW],
    /// Rank of each token's pair with the next one; the position is in the lowest bits.
    ranks: [i32; 2 * ROW],
    /// Product of each token's pair with the next one.
    made: [u32; 2 * ROW],
}

/// Sequences by number.
#[derive(Default)]
pub(in crate::encode) struct Lanes {
    lanes: Vec<Lane>,
    /// Results in arbitrary order, and the range of each sequence in them.
    tokens: Vec<u32>,
    ranges: Vec<(u32, u32)>,
}

impl Lanes {
    pub(in crate::encode) fn clear(&mut self) {
        self.lanes.clear();
        self.tokens.clear();
        self.ranges.clear();
    }

    /// Adds a sequence that is merged already.
    #[inline(always)]
    pub(in crate::encode) fn add_merged(&mut self, tokens: &[u32]) {
        self.ranges.push((self.tokens.len() as u32, tokens.len() as u32));
        memory::reserve(&mut self.tokens, tokens.len());
        self.tokens.extend_from_slice(tokens);
    }

    /// Adds a sequence of up to `TOKENS` tokens to merge. `found`: the merge of each adjacent pair.
    #[inline(always)]
    pub(in crate::encode) fn add(&mut self, tokens: impl Iterator<Item = u32>, found: impl Iterator<Item = PairMerge>) {
        let mut lane = Lane {
            number: self.ranges.len() as u32,
            length: 0,
            at: None,
            left: 0,
            right: 0,
            tokens: [0; 2 * ROW],
            ranks: [i32::MAX; 2 * ROW],
            made: [0; 2 * ROW],
        };
        for (to, token) in lane.tokens[..TOKENS].iter_mut().zip(tokens) {
            *to = token;
            lane.length += 1;
        }
        for (place, found) in (0..TOKENS).zip(found) {
            lane.put(place, found);
        }
        self.ranges.push((0, 0));
        self.lanes.push(lane);
    }

    /// The result of a sequence.
    #[inline(always)]
    pub(in crate::encode) fn get(&mut self, number: usize) -> &mut [u32] {
        let (start, length) = self.ranges[number];
        &mut self.tokens[start as usize..][..length as usize]
    }

    /// Merges all lanes.
    #[inline(never)]
    pub(in crate::encode) fn merge(&mut self, pairs: &FixedPairs) {
        while !self.lanes.is_empty() {
            // In a separate pass: a row is loaded as a whole some time after its parts were stored.
            self.lanes.iter_mut().for_each(|lane| lane.take_up(pairs));
            let mut i = 0;
            while i < self.lanes.len() {
                let lane = &mut self.lanes[i];
                if lane.step(pairs) {
                    i += 1;
                    continue;
                }
                self.ranges[lane.number as usize] = (self.tokens.len() as u32, lane.length);
                self.tokens.extend_from_slice(&lane.tokens[..lane.length as usize]);
                self.lanes.swap_remove(i);
            }
        }
    }
}

impl Lane {
    #[inline(always)]
    fn put(&mut self, place: usize, found: PairMerge) {
        self.ranks[place] = (rank(found).min(NO_RANK) << ROW.trailing_zeros()) as i32 | place as i32;
        self.made[place] = product(found);
    }

    /// Loads the merges of the pairs that the latest merge created.
    #[inline(always)]
    fn take_up(&mut self, pairs: &FixedPairs) {
        if let Some(at) = self.at {
            let at = at as usize & PLACE as usize;
            if at + 1 < self.length as usize {
                self.put(at, pairs.get_at(self.right, self.tokens[at], self.tokens[at + 1]));
            }
            if at > 0 {
                self.put(at - 1, pairs.get_at(self.left, self.tokens[at - 1], self.tokens[at]));
            }
        }
    }

    /// Applies one merge; false if there is none.
    #[inline(always)]
    fn step(&mut self, pairs: &FixedPairs) -> bool {
        let lowest = self.ranks[..ROW].iter().fold(NONE, |lowest, &rank| lowest.min(rank));
        if lowest >= NONE {
            return false;
        }
        let at = (lowest & PLACE) as usize;
        self.tokens[at] = self.made[at];
        close_gap(&mut self.tokens, at + 1, |token| token);
        close_gap(&mut self.ranks, at, |rank| rank - 1);
        close_gap(&mut self.made, at, |made| made);
        self.length -= 1;
        if at + 1 < self.length as usize {
            self.right = pairs.place_ahead(self.tokens[at], self.tokens[at + 1]);
        } else {
            self.ranks[at] = i32::MAX; // no right neighbour
        }
        if at > 0 {
            self.left = pairs.place_ahead(self.tokens[at - 1], self.tokens[at]);
        }
        self.at = Some(at as u32);
        true
    }
}

/// Removes the element at a position and shifts the rest of the row left.
#[inline(always)]
fn close_gap<T: Copy>(row: &mut [T; 2 * ROW], at: usize, change: impl Fn(T) -> T) {
    let after: [T; ROW - 1] = row[at + 1..at + ROW].try_into().expect("as many");
    row[at..at + ROW - 1].copy_from_slice(&after.map(change));
}
