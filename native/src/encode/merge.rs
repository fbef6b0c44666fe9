//! Merging by rank, the leftmost first among equals: by scanning for the lowest rank, or by lists of positions per
//! rank.
//!
//! `pair` returns the merge of two adjacent tokens (see `pairs`), also of tokens that merges produce.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pairs::{is_merge, product, rank, PairMerge, NO_MERGE};
use crate::runtime::interrupt::poll;
use crate::runtime::memory::{self, huge_with_capacity};

const NONE: u32 = u32::MAX;

/// Positions between two calls of `poll`.
const BLOCK: usize = 1 << 12;

/// Sequences up to this length are merged by scanning for the lowest rank.
pub(super) const SCAN: usize = 48;

/// Scratch space for longer sequences is freed after use: 20 bytes per token.
const KEPT: usize = 1 << 20;

/// Scratch space, kept between sequences.
#[derive(Default)]
pub(super) struct Scratch {
    found: Vec<PairMerge>,
    lists: RankLists,
}

/// Merges a sequence.
#[inline(always)]
pub(super) fn merge(ids: &mut Vec<u32>, pair: impl Fn(u32, u32) -> PairMerge, scratch: &mut Scratch) {
    if ids.len() > SCAN {
        return merge_long(ids, pair, scratch);
    }
    let found = &mut scratch.found;
    found.clear();
    found.extend(ids.windows(2).map(|two| pair(two[0], two[1])));
    let n = merge_short(ids, found, pair);
    ids.truncate(n);
}

/// Merges a short sequence in place. `found[i]` is the merge of ids i and i + 1. Returns the number of ids left.
#[inline(always)]
pub(super) fn merge_short(ids: &mut [u32], found: &mut [PairMerge], pair: impl Fn(u32, u32) -> PairMerge) -> usize {
    let mut n = ids.len();
    while n > 1 && merge_lowest(&mut ids[..n], &mut found[..n - 1], &pair) {
        n -= 1;
    }
    n
}

/// Applies one merge; false if there is none.
#[inline(always)]
pub(super) fn merge_lowest(ids: &mut [u32], found: &mut [PairMerge], pair: impl Fn(u32, u32) -> PairMerge) -> bool {
    let (mut at, mut best) = (0, NO_MERGE);
    for (i, &found) in found.iter().enumerate() {
        if found < best {
            (at, best) = (i, found);
        }
    }
    if !is_merge(best) {
        return false;
    }
    let (n, new) = (ids.len(), product(best));
    ids[at] = new;
    for i in at + 1..n - 1 {
        ids[i] = ids[i + 1];
        found[i - 1] = found[i];
    }
    if at + 2 < n {
        found[at] = pair(new, ids[at + 1]);
    }
    if at > 0 {
        found[at - 1] = pair(ids[at - 1], new);
    }
    true
}

/// Merges a sequence of any length in linear time, except for the queue and sorting.
///
/// Usually each rank comes up once, because a merge ranks after those that make its parts, and all its positions are
/// merged from left to right. Imported lists may have a merge that creates a pair of lower rank: that pair is merged
/// first, while the positions of the higher rank wait.
#[inline(never)]
pub(super) fn merge_long(ids: &mut Vec<u32>, pair: impl Fn(u32, u32) -> PairMerge, scratch: &mut Scratch) {
    let n = ids.len();
    scratch.lists.begin(ids, &pair);
    while let Some((at, new)) = scratch.lists.next_place(ids, &pair) {
        poll(1);
        scratch.lists.merge_at(at, new, ids, &pair);
    }
    ids.retain(|&id| id != NONE);
    if n > KEPT {
        scratch.lists = RankLists::default();
    }
}

/// A long sequence: its pairs, and a linked list of positions per rank.
#[derive(Default)]
struct RankLists {
    /// By position: the next and the previous position that is left.
    next: Vec<u32>,
    previous: Vec<u32>,
    /// By position: rank of the pair that begins there, or `NONE`.
    ranks: Vec<u32>,
    /// By position: neighbours in the linked list of its rank, or `NONE`.
    after: Vec<u32>,
    before: Vec<u32>,
    /// By rank: first position of the list. All are `NONE` between sequences.
    heads: Vec<u32>,
    /// Ranks that have a list. Some are duplicates or out of date.
    queue: BinaryHeap<Reverse<u32>>,
    /// A stack of batches in progress, each of a lower rank than the one below it.
    batches: Vec<Batch>,
    spare: Vec<Batch>,
}

/// Positions of one rank, removed from their list.
#[derive(Default)]
struct Batch {
    rank: u32,
    new: u32,
    /// From left to right; the first `done` are processed.
    places: Vec<u32>,
    done: usize,
    /// Positions that were added while the batch waited.
    late: BinaryHeap<Reverse<u32>>,
}

/// In `before`: the position is in a batch.
const IN_BATCH: u32 = NONE - 1;

impl RankLists {
    fn begin(&mut self, ids: &[u32], pair: &impl Fn(u32, u32) -> PairMerge) {
        let n = ids.len();
        for row in [&mut self.next, &mut self.previous, &mut self.ranks, &mut self.after, &mut self.before] {
            row.clear();
            if row.capacity() < n {
                *row = huge_with_capacity(n);
            }
        }
        memory::extend(&mut self.next, (0..n).map(|i| i as u32 + 1));
        memory::extend(&mut self.previous, (0..n).map(|i| (i as u32).wrapping_sub(1)));
        for row in [&mut self.ranks, &mut self.after, &mut self.before] {
            memory::extend(row, (0..n).map(|_| NONE));
        }
        for at in (1..n).rev() {
            if at % BLOCK == 0 {
                poll(BLOCK);
            }
            self.set(at - 1, pair(ids[at - 1], ids[at]));
        }
    }

    /// The leftmost position of the lowest rank, and the product of its pair.
    #[inline(always)]
    fn next_place(&mut self, ids: &[u32], pair: &impl Fn(u32, u32) -> PairMerge) -> Option<(usize, u32)> {
        loop {
            let working = self.batches.last().map_or(NONE, |batch| batch.rank);
            if self.queue.peek().is_some_and(|&Reverse(lowest)| lowest <= working) {
                self.take_lowest(working, ids, pair);
                continue;
            }
            let batch = self.batches.last_mut()?;
            let place = match batch.late.peek() {
                Some(&Reverse(late)) if batch.places.get(batch.done).is_none_or(|&place| late < place) => {
                    batch.late.pop();
                    late
                }
                _ => match batch.places.get(batch.done) {
                    Some(&place) => {
                        batch.done += 1;
                        place
                    }
                    None => {
                        self.spare.extend(self.batches.pop());
                        continue;
                    }
                },
            };
            if self.ranks[place as usize] == batch.rank {
                return Some((place as usize, batch.new));
            }
        }
    }

    /// Turns the list of the lowest rank into a batch, or adds it to the current batch if that has the same rank.
    fn take_lowest(&mut self, working: u32, ids: &[u32], pair: &impl Fn(u32, u32) -> PairMerge) {
        let Some(Reverse(lowest)) = self.queue.pop() else { return };
        let mut at = std::mem::replace(&mut self.heads[lowest as usize], NONE);
        if at == NONE {
            return;
        }
        if lowest < working {
            let new = product(pair(ids[at as usize], ids[self.next[at as usize] as usize]));
            let mut batch = self.spare.pop().unwrap_or_default();
            batch.places.clear();
            self.batches.push(Batch { rank: lowest, new, done: 0, ..batch });
        }
        let batch = self.batches.last_mut().expect("a batch of this rank");
        while at != NONE {
            poll(1);
            if lowest < working {
                memory::push(&mut batch.places, at);
            } else {
                batch.late.push(Reverse(at));
            }
            self.before[at as usize] = IN_BATCH;
            at = self.after[at as usize];
        }
        if lowest < working {
            batch.places.sort_unstable(); // mostly sorted already, in one direction or the other
        }
    }

    #[inline(always)]
    fn merge_at(&mut self, at: usize, new: u32, ids: &mut [u32], pair: &impl Fn(u32, u32) -> PairMerge) {
        let gone = self.next[at] as usize;
        let after = self.next[gone] as usize;
        ids[at] = new;
        ids[gone] = NONE;
        self.forget(at);
        self.forget(gone);
        self.next[at] = after as u32;
        if after < ids.len() {
            self.previous[after] = at as u32;
            self.set(at, pair(new, ids[after]));
        }
        let before = self.previous[at];
        if before != NONE {
            self.forget(before as usize);
            self.set(before as usize, pair(ids[before as usize], new));
        }
    }

    /// Adds a position to the list of its pair's rank.
    #[inline(always)]
    fn set(&mut self, at: usize, found: PairMerge) {
        if !is_merge(found) {
            return;
        }
        let rank = rank(found);
        self.ranks[at] = rank;
        if rank as usize >= self.heads.len() {
            self.heads.resize((rank as usize + 1).next_power_of_two(), NONE);
        }
        let head = std::mem::replace(&mut self.heads[rank as usize], at as u32);
        if head == NONE {
            self.queue.push(Reverse(rank));
        } else {
            self.before[head as usize] = at as u32;
        }
        self.after[at] = head;
        self.before[at] = NONE;
    }

    /// Removes the pair at a position.
    #[inline(always)]
    fn forget(&mut self, at: usize) {
        let rank = std::mem::replace(&mut self.ranks[at], NONE);
        let (before, after) = (self.before[at], self.after[at]);
        if rank == NONE || before == IN_BATCH {
            return;
        }
        if before == NONE {
            self.heads[rank as usize] = after;
        } else {
            self.after[before as usize] = after;
        }
        if after != NONE {
            self.before[after as usize] = before;
        }
    }
}
