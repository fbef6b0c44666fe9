//! Merging by rank, the leftmost first among equals: by scanning for the lowest rank, or by lists of positions per
//! rank.
//!
//! `pair` returns the merge of two adjacent tokens (see `pairs`), also of tokens that merges produce.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::pairs::{is_merge, product, rank, PairMerge, NO_MERGE};
use crate::runtime::interrupt::poll;

const NONE: u32 = u32::MAX;

/// Positions between two calls of `poll`.
const BLOCK: usize = 1 << 12;

/// Sequences up to this length are merged by scanning for the lowest rank.
pub(super) const SCAN: usize = 48;

/// Scratch space is freed after longer sequences.
const KEPT: usize = 1 << 20;

/// Scratch space, kept between sequences.
#[derive(Default)]
pub(super) struct Scratch {
    found: Vec<PairMerge>,
    long: Long,
}

/// Merges a sequence.
#[inline(always)]
pub(super) fn merge_sequence(ids: &mut Vec<u32>, pair: impl Fn(u32, u32) -> PairMerge, scratch: &mut Scratch) {
    if ids.len() > SCAN {
        return merge_by_rank_lists(ids, pair, scratch);
    }
    let found = &mut scratch.found;
    found.clear();
    found.extend(ids.windows(2).map(|two| pair(two[0], two[1])));
    let n = merge_by_scanning(ids, found, pair);
    ids.truncate(n);
}

/// Merges a short sequence in place. `found[i]` is the merge of ids i and i + 1. Returns the number of ids left.
#[inline(always)]
pub(super) fn merge_by_scanning(
    ids: &mut [u32],
    found: &mut [PairMerge],
    pair: impl Fn(u32, u32) -> PairMerge,
) -> usize {
    let mut n = ids.len();
    while n > 1 {
        let (mut at, mut best) = (0, NO_MERGE);
        for (i, &found) in found[..n - 1].iter().enumerate() {
            if found < best {
                (at, best) = (i, found);
            }
        }
        if !is_merge(best) {
            break;
        }
        ids[at] = product(best);
        ids.copy_within(at + 2..n, at + 1);
        found.copy_within(at + 1..n - 1, at);
        n -= 1;
        if at + 1 < n {
            found[at] = pair(ids[at], ids[at + 1]);
        }
        if at > 0 {
            found[at - 1] = pair(ids[at - 1], ids[at]);
        }
    }
    n
}

/// Merges a sequence of any length in linear time, except for sorting and heaps of ranks.
///
/// Usually each rank comes up once, because a merge ranks after those that make its parts, and all its positions are
/// merged from left to right. Imported lists may have a merge that creates a pair of lower rank: that rank is merged
/// first, while the positions of the higher rank wait.
#[inline(never)]
pub(super) fn merge_by_rank_lists(ids: &mut Vec<u32>, pair: impl Fn(u32, u32) -> PairMerge, scratch: &mut Scratch) {
    let n = ids.len();
    let mut long = std::mem::take(&mut scratch.long);
    long.begin(ids, &pair);
    while let Some(&Reverse(rank)) = long.queue.peek() {
        let mut places = std::mem::take(long.places.get_mut(&rank).expect("a rank in the queue has places"));
        places.begin();
        let mut lower = false;
        while !lower {
            let Some(at) = places.next() else { break };
            poll(1);
            lower = long.ranks[at] == rank && long.join_at(at, ids, &pair) < rank;
        }
        if lower {
            long.places.insert(rank, places);
        } else {
            long.queue.pop();
            long.places.remove(&rank);
        }
    }
    ids.retain(|&id| id != NONE);
    if n <= KEPT {
        scratch.long = long;
    }
}

/// A long sequence: a linked list of positions, and the positions by the rank of the pair that begins there.
#[derive(Default)]
struct Long {
    /// By position: the next and the previous position that is left.
    next: Vec<u32>,
    previous: Vec<u32>,
    /// By position: rank of the pair that begins there, or `NONE`.
    ranks: Vec<u32>,
    places: FxHashMap<u32, Places>,
    /// The ranks that have places, the lowest on top.
    queue: BinaryHeap<Reverse<u32>>,
}

/// Positions of one rank; some are out of date.
#[derive(Default)]
struct Places {
    /// From left to right once merging has begun; the first `done` are processed.
    list: Vec<u32>,
    done: usize,
    begun: bool,
    /// Positions added since then.
    late: BinaryHeap<Reverse<u32>>,
}

impl Places {
    fn begin(&mut self) {
        if !self.begun {
            self.list.sort_unstable(); // mostly sorted already
            self.begun = true;
        }
    }

    /// The leftmost position that is not processed.
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let next = self.list.get(self.done).copied();
        let late = self.late.peek().map(|&Reverse(late)| late);
        if late.is_some_and(|late| next.is_none_or(|next| late < next)) {
            return self.late.pop().map(|Reverse(late)| late as usize);
        }
        self.done += 1;
        next.map(|next| next as usize)
    }
}

impl Long {
    fn begin(&mut self, ids: &[u32], pair: &impl Fn(u32, u32) -> PairMerge) {
        let n = ids.len() as u32;
        self.next.clear();
        self.next.extend(1..=n);
        self.previous.clear();
        self.previous.extend((0..n).map(|i| i.wrapping_sub(1)));
        self.ranks.clear();
        self.ranks.resize(ids.len(), NONE);
        for at in 1..ids.len() {
            if at % BLOCK == 0 {
                poll(BLOCK);
            }
            self.set(at - 1, pair(ids[at - 1], ids[at]));
        }
    }

    /// Merges the pair at a position. Returns the lowest rank of the pairs that this creates.
    #[inline(always)]
    fn join_at(&mut self, at: usize, ids: &mut [u32], pair: &impl Fn(u32, u32) -> PairMerge) -> u32 {
        let gone = self.next[at] as usize;
        let (before, after) = (self.previous[at], self.next[gone] as usize);
        let new = product(pair(ids[at], ids[gone]));
        (ids[at], ids[gone]) = (new, NONE);
        (self.ranks[at], self.ranks[gone]) = (NONE, NONE);
        self.next[at] = after as u32;
        let mut lowest = NONE;
        if after < ids.len() {
            self.previous[after] = at as u32;
            lowest = self.set(at, pair(new, ids[after]));
        }
        if before != NONE {
            self.ranks[before as usize] = NONE;
            lowest = lowest.min(self.set(before as usize, pair(ids[before as usize], new)));
        }
        lowest
    }

    /// Notes the pair at a position. Returns its rank, or `NONE`.
    #[inline(always)]
    fn set(&mut self, at: usize, found: PairMerge) -> u32 {
        if !is_merge(found) {
            return NONE;
        }
        let rank = rank(found);
        self.ranks[at] = rank;
        let places = self.places.entry(rank).or_insert_with(|| {
            self.queue.push(Reverse(rank));
            Places::default()
        });
        if places.begun {
            places.late.push(Reverse(at as u32));
        } else {
            places.list.push(at as u32);
        }
        rank
    }
}
