//! Merges many short sequences in an interleaved way.
//!
//! While one sequence waits for the table of pairs, the others proceed. A lane has a fixed size and a step processes
//! all of it, so no loop depends on the number of tokens left.

use crate::count::keys::SHORT;
use crate::encode::pairs::{product, rank, FixedPairs, PairMerge};
use crate::vocabulary::MOST_MERGES;

/// Length of a row of a short lane: a token for each byte of a short piece, and one more; and of a long lane. Powers of
/// two, so that a step can load a whole row.
const SHORT_ROW: usize = SHORT + 1;
const LONG_ROW: usize = 2 * SHORT_ROW;

/// Maximum number of tokens of a lane.
pub(super) const MOST_TOKENS: usize = LONG_ROW - 1;

/// Greater than any rank: a power of two. Ranks are shifted to make space for the position in the same integer.
const NO_RANK: u32 = MOST_MERGES as u32;

struct Lane<const ROW: usize> {
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

/// Where the tokens of a sequence are: the start and length of those that were merged already, or a lane.
#[derive(Clone, Copy)]
enum Place {
    Merged(usize, usize),
    Short(usize),
    Long(usize),
}

/// Sequences by number.
#[derive(Default)]
pub(super) struct Lanes {
    short: Vec<Lane<SHORT_ROW>>,
    long: Vec<Lane<LONG_ROW>>,
    merged: Vec<u32>,
    places: Vec<Place>,
    /// Lanes in which pairs may be left to merge.
    active: Vec<usize>,
}

impl Lanes {
    pub(super) fn clear(&mut self) {
        self.short.clear();
        self.long.clear();
        self.merged.clear();
        self.places.clear();
    }

    /// Adds a sequence that is merged already.
    #[inline(always)]
    pub(super) fn add_merged(&mut self, tokens: impl ExactSizeIterator<Item = u32>) {
        self.places.push(Place::Merged(self.merged.len(), tokens.len()));
        self.merged.extend(tokens);
    }

    /// Adds a sequence of up to `MOST_TOKENS` tokens to merge. `found`: whether each adjacent pair has a merge, and which.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        tokens: impl ExactSizeIterator<Item = u32>,
        found: impl Iterator<Item = (bool, PairMerge)>,
    ) {
        if tokens.len() < SHORT_ROW {
            self.places.push(Place::Short(self.short.len()));
            Lane::add(&mut self.short, tokens, found);
        } else {
            self.places.push(Place::Long(self.long.len()));
            Lane::add(&mut self.long, tokens, found);
        }
    }

    /// Adds a sequence that equals an earlier one.
    #[inline(always)]
    pub(super) fn add_again(&mut self, number: usize) {
        self.places.push(self.places[number]);
    }

    /// The result of a sequence.
    #[inline(always)]
    pub(super) fn get(&mut self, number: usize) -> &mut [u32] {
        match self.places[number] {
            Place::Merged(start, length) => &mut self.merged[start..][..length],
            Place::Short(lane) => self.short[lane].result(),
            Place::Long(lane) => self.long[lane].result(),
        }
    }

    /// Merges all lanes.
    pub(super) fn merge_all(&mut self, pairs: &FixedPairs) {
        merge_lanes(&mut self.short, &mut self.active, pairs);
        merge_lanes(&mut self.long, &mut self.active, pairs);
    }
}

#[inline(never)]
fn merge_lanes<const ROW: usize>(lanes: &mut [Lane<ROW>], active: &mut Vec<usize>, pairs: &FixedPairs) {
    active.extend(0..lanes.len());
    while !active.is_empty() {
        // In a separate pass: a row is loaded as a whole some time after its parts were stored.
        active.iter().for_each(|&lane| lanes[lane].take_up(pairs));
        let mut n = 0;
        for i in 0..active.len() {
            let lane = active[i];
            active[n] = lane;
            n += lanes[lane].step(pairs) as usize;
        }
        active.truncate(n);
    }
}

impl<const ROW: usize> Lane<ROW> {
    const PLACE: i32 = ROW as i32 - 1;
    const NONE: i32 = (NO_RANK as i32) << ROW.trailing_zeros();

    const EMPTY: Self = Self {
        length: 0,
        at: None,
        left: 0,
        right: 0,
        tokens: [[0; ROW]; 2],
        ranks: [[i32::MAX; ROW]; 2],
        made: [[0; ROW]; 2],
    };

    /// Adds a lane. It is filled in place, because a copy would load rows whose parts have just been stored.
    #[inline(always)]
    fn add(
        lanes: &mut Vec<Self>,
        tokens: impl ExactSizeIterator<Item = u32>,
        found: impl Iterator<Item = (bool, PairMerge)>,
    ) {
        let at = lanes.len();
        lanes.push(Self::EMPTY);
        let lane = &mut lanes[at];
        lane.length = tokens.len() as u32;
        for (to, token) in lane.tokens[0].iter_mut().zip(tokens) {
            *to = token;
        }
        for (place, found) in (0..ROW).zip(found) {
            lane.put(place, found);
        }
    }

    #[inline(always)]
    fn result(&mut self) -> &mut [u32] {
        &mut self.tokens[0][..self.length as usize]
    }

    /// Stores the merge of the pair at `place`, if there is one.
    #[inline(always)]
    fn put(&mut self, place: usize, (found, merge): (bool, PairMerge)) {
        let rank = (rank(merge) % NO_RANK) | (!found as u32 * NO_RANK);
        self.ranks[0][place] = (rank << ROW.trailing_zeros()) as i32 | place as i32;
        self.made[0][place] = product(merge);
    }

    /// Loads the merges of the pairs that the latest merge created.
    #[inline(always)]
    fn take_up(&mut self, pairs: &FixedPairs) {
        if let Some(at) = self.at {
            let at = at as usize & Self::PLACE as usize;
            let tokens = self.tokens.as_flattened();
            let (before, token, after) = (tokens[at.saturating_sub(1)], tokens[at], tokens[at + 1]);
            if at + 1 < self.length as usize {
                self.put(at, pairs.find_at(self.right, token, after));
            }
            if at > 0 {
                self.put(at - 1, pairs.find_at(self.left, before, token));
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
