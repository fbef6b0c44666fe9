//! The index of the merge loop: counts and positions of all pairs.

use super::candidates::{key, parts, Candidate};
use super::cells::{Weights, SENTINEL};
use super::merge_loop::MergeLoop;
use super::occurrences::{Map, Pair, BLOCK, NOWHERE, UNTRACKED};
use crate::runtime::interrupt::poll;

/// Up to this many tokens, pairs are counted in a dense table.
const DENSE: usize = 256;

impl MergeLoop<'_> {
    /// Counts all pairs, and records the positions of those that reach the threshold.
    pub(super) fn index(&mut self) {
        self.pairs.clear();
        self.postings.clear();
        self.queue.heap.clear();
        // At the start all tokens are bytes: a dense table of all pairs is small and needs no hashing.
        if self.tokens.len() <= DENSE {
            let mut places = vec![NOWHERE; DENSE * DENSE];
            self.index_into(&mut places, |places, left, right| &mut places[left as usize * DENSE + right as usize]);
        } else {
            let mut places: Map<u64, Pair> = Map::default();
            self.index_into(&mut places, |places, left, right| places.entry(key(left, right)).or_insert(NOWHERE));
        }
    }

    fn index_into<P>(&mut self, places: &mut P, place: impl Fn(&mut P, u32, u32) -> &mut Pair) {
        let mut found: Vec<u64> = Vec::new();
        self.each_pair(|_, weight, left, right| {
            let pair = place(places, left, right);
            if pair.occurrences == 0 {
                found.push(key(left, right));
            }
            pair.count += weight;
            pair.occurrences += 1;
        });
        let mut start = 0;
        found.retain(|&pair| {
            let (left, right) = parts(pair);
            let place = place(places, left, right);
            if place.count < self.threshold {
                place.start = usize::MAX;
                return false;
            }
            place.start = start;
            start += place.occurrences as usize;
            place.occurrences = 0;
            true
        });
        let mut postings = vec![UNTRACKED; start];
        self.each_pair(|position, _, left, right| {
            let pair = place(places, left, right);
            if pair.start != usize::MAX {
                postings[pair.start + pair.occurrences as usize] = position;
                pair.occurrences += 1;
            }
        });
        self.postings = postings;
        for pair in found {
            let (left, right) = parts(pair);
            let place = *place(places, left, right);
            self.pairs.insert(pair, place);
            self.queue.push(&self.tokens, Candidate { count: place.count, pair });
        }
    }

    /// Calls `pair(position, weight, left, right)` for every adjacent pair, in order.
    fn each_pair(&self, mut pair: impl FnMut(u32, u64, u32, u32)) {
        let mut weights = Weights::new(&self.runs);
        let mut position = 1; // cell 0 is a sentinel
        let mut polled = 0;
        while (position as usize) < self.cells.len() {
            if position >= polled {
                poll(BLOCK);
                polled = position + BLOCK as u32;
            }
            let left = self.cells[position as usize];
            if left == SENTINEL {
                position += 1;
                continue;
            }
            let next = self.next(position);
            let right = self.cells[next as usize];
            if right != SENTINEL {
                pair(position, weights.at(position), left, right);
            }
            position = next;
        }
    }
}
