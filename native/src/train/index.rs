//! The index of the merge loop: counts and positions of all pairs.

use super::candidates::{key, Candidate};
use super::cells::{Weights, SENTINEL};
use super::merge_loop::MergeLoop;
use super::occurrences::{BLOCK, NOWHERE, UNTRACKED};
use crate::runtime::{interrupt::poll, memory::huge_filled};

impl MergeLoop<'_> {
    /// Counts all pairs, and records the positions of those that reach the threshold.
    pub(super) fn index(&mut self) {
        let mut pairs = std::mem::take(&mut self.pairs);
        pairs.clear();
        self.queue.heap.clear();
        self.postings = Vec::new();
        self.each_pair(|_, weight, left, right| {
            let pair = pairs.entry(key(left, right)).or_insert(NOWHERE);
            pair.count += weight;
            pair.occurrences += 1;
        });
        pairs.retain(|_, pair| pair.count >= self.threshold);
        pairs.shrink_to_fit();
        let mut end = 0;
        for (&pair, place) in &mut pairs {
            self.queue.push(&self.tokens, Candidate { count: place.count, pair });
            place.start = end;
            end += std::mem::take(&mut place.occurrences) as usize;
        }
        let mut postings = huge_filled(end, UNTRACKED);
        self.each_pair(|position, _, left, right| {
            if let Some(pair) = pairs.get_mut(&key(left, right)) {
                postings[pair.start + pair.occurrences as usize] = position;
                pair.occurrences += 1;
            }
        });
        (self.pairs, self.postings) = (pairs, postings);
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
