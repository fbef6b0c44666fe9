//! Many short sequences, merged in turn.
//!
//! What one of them asks for in the table of pairs arrives from memory while the others go on. A lane has a fixed size, and
//! a step takes all of it at once: no branch depends on how many tokens are left.

use crate::count::keys::SHORT;
use crate::encode::pairs::{product, rank, FixedPairs, PairMerge};
use crate::runtime::memory;
use crate::vocabulary::MOST_MERGES;

/// Most tokens of a lane: one for each byte of a short piece.
const TOKENS: usize = SHORT;

/// Room for one more, so that a step can take a whole row.
const ROW: usize = TOKENS + 1;

/// A rank that stands for none. Lower ones leave room for a place in the same integer.
const NO_RANK: u32 = MOST_MERGES as u32;
const PLACE: i32 = ROW as i32 - 1;
const NONE: i32 = (NO_RANK as i32) << ROW.trailing_zeros();

struct Lane {
    /// Which sequence it is.
    number: u32,
    length: u32,
    /// Where the latest merge was.
    at: Option<u32>,
    /// Where the table has the pairs of what it made, with its neighbours to the left and to the right.
    left: usize,
    right: usize,
    tokens: [u32; 2 * ROW],
    /// Of each token and the next one: the rank, and the place in the lowest bits.
    ranks: [i32; 2 * ROW],
    /// Of each token and the next one: what they make.
    made: [u32; 2 * ROW],
}

/// Sequences by number.
#[derive(Default)]
pub(in crate::encode) struct Lanes {
    lanes: Vec<Lane>,
    /// What the sequences have become, in no order, and where each one's is.
    tokens: Vec<u32>,
    ranges: Vec<(u32, u32)>,
}

impl Lanes {
    pub(in crate::encode) fn clear(&mut self) {
        self.lanes.clear();
        self.tokens.clear();
        self.ranges.clear();
    }

    /// A sequence that is merged already.
    #[inline(always)]
    pub(in crate::encode) fn add_merged(&mut self, tokens: &[u32]) {
        self.ranges.push((self.tokens.len() as u32, tokens.len() as u32));
        memory::reserve(&mut self.tokens, tokens.len());
        self.tokens.extend_from_slice(tokens);
    }

    /// A sequence of up to `TOKENS`, to be merged; `found`: for every two neighbours.
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

    /// What a sequence has become.
    #[inline(always)]
    pub(in crate::encode) fn get(&mut self, number: usize) -> &mut [u32] {
        let (start, length) = self.ranges[number];
        &mut self.tokens[start as usize..][..length as usize]
    }

    /// Merges all lanes.
    #[inline(never)]
    pub(in crate::encode) fn merge(&mut self, pairs: &FixedPairs) {
        while !self.lanes.is_empty() {
            // In a pass of its own: a row is read whole, some time after its parts were written.
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

    /// What the table says of the pairs that the latest merge has made.
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

    /// Applies a merge; false if there is none.
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
            self.ranks[at] = i32::MAX; // nothing is to its right
        }
        if at > 0 {
            self.left = pairs.place_ahead(self.tokens[at - 1], self.tokens[at]);
        }
        self.at = Some(at as u32);
        true
    }
}

/// Moves what is behind a place of the row to it.
#[inline(always)]
fn close_gap<T: Copy>(row: &mut [T; 2 * ROW], at: usize, change: impl Fn(T) -> T) {
    let behind: [T; ROW - 1] = row[at + 1..at + ROW].try_into().expect("as many");
    row[at..at + ROW - 1].copy_from_slice(&behind.map(change));
}
