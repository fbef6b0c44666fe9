//! Merges many short sequences in an interleaved way.
//!
//! While one sequence waits for the table of pairs, the others proceed. A lane has a fixed size and a step processes
//! all of it, so no branch depends on the number of tokens left.

use crate::count::keys::SHORT;
use crate::encode::pairs::{product, rank, FixedPairs, PairMerge};
use crate::runtime::memory;
use crate::vocabulary::MOST_MERGES;

/// One more than the maximum number of tokens of a short lane, which has one for each byte of a short piece, and of a
/// long one. Powers of two, so that a step can load a whole row.
const SHORT_ROW: usize = SHORT + 1;
const LONG_ROW: usize = 2 * SHORT_ROW;

/// Maximum number of tokens of a lane.
pub(super) const MOST_TOKENS: usize = LONG_ROW - 1;

/// Greater than any rank. Ranks are shifted to make space for the position in the same integer.
const NO_RANK: u32 = MOST_MERGES as u32;

struct Lane<const ROW: usize> {
    /// Number of the sequence.
    number: u32,
    length: u32,
    /// Position of the latest merge.
    at: Option<u32>,
    /// Slots, in the table of pairs, of the pairs of the new token with its left and right neighbour.
    left: usize,
    right: usize,
    tokens: [[u32; ROW]; 2],
    /// Rank of each token's pair with the next one; the position is in the lowest bits.
    ranks: [[i32; ROW]; 2],
    /// Product of each token's pair with the next one.
    made: [[u32; ROW]; 2],
}

/// Sequences by number.
#[derive(Default)]
pub(super) struct Lanes {
    short: Vec<Lane<SHORT_ROW>>,
    long: Vec<Lane<LONG_ROW>>,
    /// Results in arbitrary order, and the range of each sequence in them.
    tokens: Vec<u32>,
    ranges: Vec<(u32, u32)>,
}

impl Lanes {
    pub(super) fn clear(&mut self) {
        self.short.clear();
        self.long.clear();
        self.tokens.clear();
        self.ranges.clear();
    }

    /// Adds a sequence that is merged already.
    #[inline(always)]
    pub(super) fn add_merged(&mut self, tokens: &[u32]) {
        self.ranges.push((self.tokens.len() as u32, tokens.len() as u32));
        memory::reserve(&mut self.tokens, tokens.len());
        self.tokens.extend_from_slice(tokens);
    }

    /// Adds a sequence of up to `MOST_TOKENS` tokens to merge. `found`: the merge of each adjacent pair.
    #[inline(always)]
    pub(super) fn add(&mut self, tokens: impl ExactSizeIterator<Item = u32>, found: impl Iterator<Item = PairMerge>) {
        let number = self.ranges.len();
        if tokens.len() < SHORT_ROW {
            self.short.push(Lane::new(number, tokens, found));
        } else {
            self.long.push(Lane::new(number, tokens, found));
        }
        self.ranges.push((0, 0));
    }

    /// The result of a sequence.
    #[inline(always)]
    pub(super) fn get(&mut self, number: usize) -> &mut [u32] {
        let (start, length) = self.ranges[number];
        &mut self.tokens[start as usize..][..length as usize]
    }

    /// Merges all lanes.
    pub(super) fn merge(&mut self, pairs: &FixedPairs) {
        let Self { short, long, tokens, ranges } = self;
        merge(short, pairs, tokens, ranges);
        merge(long, pairs, tokens, ranges);
    }
}

/// Merges lanes and appends their tokens.
#[inline(never)]
fn merge<const ROW: usize>(
    lanes: &mut Vec<Lane<ROW>>,
    pairs: &FixedPairs,
    tokens: &mut Vec<u32>,
    ranges: &mut [(u32, u32)],
) {
    while !lanes.is_empty() {
        // In a separate pass: a row is loaded as a whole some time after its parts were stored.
        lanes.iter_mut().for_each(|lane| lane.take_up(pairs));
        let mut i = 0;
        while i < lanes.len() {
            let lane = &mut lanes[i];
            if lane.step(pairs) {
                i += 1;
                continue;
            }
            ranges[lane.number as usize] = (tokens.len() as u32, lane.length);
            tokens.extend_from_slice(&lane.tokens[0][..lane.length as usize]);
            lanes.swap_remove(i);
        }
    }
}

impl<const ROW: usize> Lane<ROW> {
    const PLACE: i32 = ROW as i32 - 1;
    const NONE: i32 = (NO_RANK as i32) << ROW.trailing_zeros();

    #[inline(always)]
    fn new(number: usize, tokens: impl Iterator<Item = u32>, found: impl Iterator<Item = PairMerge>) -> Self {
        let mut lane = Self {
            number: number as u32,
            length: 0,
            at: None,
            left: 0,
            right: 0,
            tokens: [[0; ROW]; 2],
            ranks: [[i32::MAX; ROW]; 2],
            made: [[0; ROW]; 2],
        };
        for (to, token) in lane.tokens[0].iter_mut().zip(tokens) {
            *to = token;
            lane.length += 1;
        }
        for (place, found) in (0..ROW).zip(found) {
            lane.put(place, found);
        }
        lane
    }

    #[inline(always)]
    fn put(&mut self, place: usize, found: PairMerge) {
        self.ranks[0][place] = (rank(found).min(NO_RANK) << ROW.trailing_zeros()) as i32 | place as i32;
        self.made[0][place] = product(found);
    }

    /// Loads the merges of the pairs that the latest merge created.
    #[inline(always)]
    fn take_up(&mut self, pairs: &FixedPairs) {
        if let Some(at) = self.at {
            let at = at as usize & Self::PLACE as usize;
            let tokens = self.tokens.as_flattened();
            let (before, token, after) = (tokens[at.saturating_sub(1)], tokens[at], tokens[at + 1]);
            if at + 1 < self.length as usize {
                self.put(at, pairs.get_at(self.right, token, after));
            }
            if at > 0 {
                self.put(at - 1, pairs.get_at(self.left, before, token));
            }
        }
    }

    /// Applies one merge; false if there is none.
    #[inline(always)]
    fn step(&mut self, pairs: &FixedPairs) -> bool {
        let lowest = self.ranks[0].iter().fold(Self::NONE, |lowest, &rank| lowest.min(rank));
        if lowest >= Self::NONE {
            return false;
        }
        let at = (lowest & Self::PLACE) as usize;
        self.tokens[0][at] = self.made[0][at];
        close_gap(&mut self.tokens, at + 1, |token| token);
        close_gap(&mut self.ranks, at, |rank| rank - 1);
        close_gap(&mut self.made, at, |made| made);
        self.length -= 1;
        let tokens = self.tokens.as_flattened();
        if at + 1 < self.length as usize {
            self.right = pairs.place_ahead(tokens[at], tokens[at + 1]);
        } else {
            self.ranks[0][at] = i32::MAX; // no right neighbour
        }
        if at > 0 {
            self.left = pairs.place_ahead(tokens[at - 1], tokens[at]);
        }
        self.at = Some(at as u32);
        true
    }
}

/// Removes the element at a position and shifts the rest of the row left.
#[inline(always)]
fn close_gap<T: Copy, const ROW: usize>(row: &mut [[T; ROW]; 2], at: usize, change: impl Fn(T) -> T) {
    let row = row.as_flattened_mut();
    let after: [T; ROW] = row[at + 1..][..ROW].try_into().expect("as many");
    row[at..][..ROW].copy_from_slice(&after.map(change));
}
