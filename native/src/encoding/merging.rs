//! Merging by rank, the leftmost first among equals: by scanning for the lowest rank, by lists of places, or with a heap.
//!
//! `pair` says what is found for two neighbours (see `pairs`); it is asked about what merges make as well.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pairs::{joins, made, rank, Found, ABSENT};

const NONE: u32 = u32::MAX;

/// Sequences up to this length are merged by scanning for the lowest rank.
pub(super) const SCAN: usize = 48;

/// Longest sequence whose room to work is kept for the next one: 24 bytes for each token.
const KEPT: usize = 1 << 20;

/// Room to work, kept from one sequence to the next.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) run: Vec<u32>,
    pub(super) found: Vec<Found>,
    long: Long,
}

#[derive(Default)]
struct Long {
    /// By place: the next one that is left, and the one before.
    next: Vec<u32>,
    previous: Vec<u32>,
    /// By place: the rank of the pair that begins there, or `NONE`.
    ranks: Vec<u32>,
    lists: Lists,
    places: Vec<u32>,
    heap: BinaryHeap<Reverse<(u32, u32)>>,
}

/// Merges a sequence. `ordered`: every merge ranks behind the merges that make what it joins.
#[inline(always)]
pub(super) fn merge(ids: &mut Vec<u32>, pair: impl Fn(u32, u32) -> Found, ordered: bool, scratch: &mut Scratch) {
    if ids.len() > SCAN {
        return merge_long(ids, pair, ordered, scratch);
    }
    let found = &mut scratch.found;
    found.clear();
    found.extend(ids.windows(2).map(|two| pair(two[0], two[1])));
    let n = merge_short(ids, found, pair);
    ids.truncate(n);
}

/// The same in place for a short sequence, where `found[i]` belongs to ids i and i + 1; returns how many ids are left.
#[inline(always)]
pub(super) fn merge_short(ids: &mut [u32], found: &mut [Found], pair: impl Fn(u32, u32) -> Found) -> usize {
    let mut n = ids.len();
    while n > 1 && merge_lowest(&mut ids[..n], &mut found[..n - 1], &pair) {
        n -= 1;
    }
    n
}

/// Applies one merge; false if there is none.
#[inline(always)]
pub(super) fn merge_lowest(ids: &mut [u32], found: &mut [Found], pair: impl Fn(u32, u32) -> Found) -> bool {
    let (mut at, mut best) = (0, ABSENT);
    for (i, &found) in found.iter().enumerate() {
        if found < best {
            (at, best) = (i, found);
        }
    }
    if !joins(best) {
        return false;
    }
    let (n, new) = (ids.len(), made(best));
    ids.copy_within(at + 2..n, at + 1);
    ids[at] = new;
    found.copy_within(at + 1..n - 1, at);
    if at + 2 < n {
        found[at] = pair(new, ids[at + 1]);
    }
    if at > 0 {
        found[at - 1] = pair(ids[at - 1], new);
    }
    true
}

#[inline(never)]
pub(super) fn merge_long(ids: &mut Vec<u32>, pair: impl Fn(u32, u32) -> Found, ordered: bool, scratch: &mut Scratch) {
    let long = &mut scratch.long;
    let n = ids.len();
    long.next.clear();
    long.next.extend(1..=n as u32);
    long.previous.clear();
    long.previous.extend((0..n as u32).map(|i| i.wrapping_sub(1)));
    if ordered {
        long.with_lists(ids, pair);
    } else {
        long.with_heap(ids, pair);
    }
    ids.retain(|&id| id != NONE);
    if n > KEPT {
        scratch.long = Long::default();
    }
}

impl Long {
    /// Where merges rank behind those that make what they join, ranks come up in order, each once: all places of one
    /// rank are merged together. Linear but for the queue of ranks and the sorting of places of pairs like "aa", which
    /// may overlap and so have an order.
    fn with_lists(&mut self, ids: &mut [u32], pair: impl Fn(u32, u32) -> Found) {
        let n = ids.len();
        self.ranks.clear();
        self.ranks.resize(n, NONE);
        self.lists.begin(n);
        for i in (1..n).rev() {
            self.set(i - 1, pair(ids[i - 1], ids[i]));
        }
        while let Some(lowest) = self.lists.take_lowest(&mut self.places) {
            let Some(&first) = self.places.first() else { continue };
            let (left, right) = (ids[first as usize], ids[self.next[first as usize] as usize]);
            let new = made(pair(left, right));
            if left == right {
                self.places.sort_unstable();
            }
            for i in 0..self.places.len() {
                let at = self.places[i] as usize;
                if self.ranks[at] != lowest {
                    continue; // the pair overlapped with one that is merged
                }
                let gone = self.next[at] as usize;
                let after = self.next[gone] as usize;
                ids[at] = new;
                ids[gone] = NONE;
                self.forget(gone, lowest);
                self.ranks[at] = NONE;
                self.next[at] = after as u32;
                if after < n {
                    self.previous[after] = at as u32;
                    self.set(at, pair(new, ids[after]));
                }
                let before = self.previous[at];
                if before != NONE {
                    self.forget(before as usize, lowest);
                    self.set(before as usize, pair(ids[before as usize], new));
                }
            }
        }
    }

    fn set(&mut self, at: usize, found: Found) {
        if joins(found) {
            self.ranks[at] = rank(found);
            self.lists.link(at as u32, rank(found));
        }
    }

    /// Forgets the pair at a place; the list of rank `taken` is taken out already.
    fn forget(&mut self, at: usize, taken: u32) {
        let rank = std::mem::replace(&mut self.ranks[at], NONE);
        if rank != NONE && rank != taken {
            self.lists.unlink(at as u32, rank);
        }
    }

    /// Whatever the ranks.
    fn with_heap(&mut self, ids: &mut [u32], pair: impl Fn(u32, u32) -> Found) {
        let n = ids.len() as u32;
        let Self { next, previous, heap, .. } = self;
        heap.clear();
        let push = |heap: &mut BinaryHeap<_>, found: Found, at: u32| {
            if joins(found) {
                heap.push(Reverse((rank(found), at)));
            }
        };
        for i in 1..n {
            push(heap, pair(ids[i as usize - 1], ids[i as usize]), i - 1);
        }
        while let Some(Reverse((lowest, at))) = heap.pop() {
            let right = next[at as usize];
            if ids[at as usize] == NONE || right >= n {
                continue;
            }
            let now = pair(ids[at as usize], ids[right as usize]);
            if !joins(now) || rank(now) != lowest {
                continue;
            }
            let new = made(now);
            ids[at as usize] = new;
            ids[right as usize] = NONE;
            let after = next[right as usize];
            next[at as usize] = after;
            if after < n {
                previous[after as usize] = at;
                push(heap, pair(new, ids[after as usize]), at);
            }
            let before = previous[at as usize];
            if before != NONE {
                push(heap, pair(ids[before as usize], new), before);
            }
        }
    }
}

/// Places by rank: linked lists, and a queue of the ranks that have one.
#[derive(Default)]
struct Lists {
    /// By rank: the first place. `NONE` everywhere between two sequences.
    heads: Vec<u32>,
    /// By place: its neighbours in the list of its rank.
    after: Vec<u32>,
    before: Vec<u32>,
    queue: BinaryHeap<Reverse<u32>>,
}

impl Lists {
    fn begin(&mut self, n: usize) {
        self.after.clear();
        self.after.resize(n, NONE);
        self.before.clear();
        self.before.resize(n, NONE);
    }

    fn link(&mut self, at: u32, rank: u32) {
        if rank as usize >= self.heads.len() {
            self.heads.resize((rank as usize + 1).next_power_of_two(), NONE);
        }
        let head = std::mem::replace(&mut self.heads[rank as usize], at);
        if head == NONE {
            self.queue.push(Reverse(rank));
        } else {
            self.before[head as usize] = at;
        }
        self.after[at as usize] = head;
        self.before[at as usize] = NONE;
    }

    fn unlink(&mut self, at: u32, rank: u32) {
        let (before, after) = (self.before[at as usize], self.after[at as usize]);
        if before == NONE {
            self.heads[rank as usize] = after;
        } else {
            self.after[before as usize] = after;
        }
        if after != NONE {
            self.before[after as usize] = before;
        }
    }

    /// The lowest rank, and its places, which leave their list; there may be none.
    fn take_lowest(&mut self, places: &mut Vec<u32>) -> Option<u32> {
        let Reverse(rank) = self.queue.pop()?;
        places.clear();
        let mut at = std::mem::replace(&mut self.heads[rank as usize], NONE);
        while at != NONE {
            places.push(at);
            at = self.after[at as usize];
        }
        Some(rank)
    }
}
