//! Applying one merge: replaces its occurrences and updates the counts of adjacent pairs.

use super::candidates::{key, Candidate};
use super::cells::{Weights, DEAD, SENTINEL};
use super::merge_loop::MergeLoop;
use super::occurrences::{Neighbour, Occurrence, Pair, BLOCK, NO_NEIGHBOUR, UNTRACKED};
use crate::runtime::{interrupt::poll, memory};

impl MergeLoop<'_> {
    /// Returns the number of merged occurrences in the text.
    pub(super) fn merge(&mut self, left: u32, right: u32, new: u32, pair: Pair) -> u64 {
        // Replace occurrences from left to right, and record their neighbours.
        self.occurrences.clear();
        let mut weights = Weights::new(&self.runs);
        for i in pair.start..pair.start + pair.occurrences as usize {
            if i % BLOCK == 0 {
                poll(BLOCK);
            }
            if let Some(&ahead) = self.postings.get(i + 12) {
                memory::prefetch(&self.cells, ahead as usize);
            }
            let position = self.postings[i];
            if self.cells[position as usize] != left {
                continue;
            }
            let middle = self.next(position);
            if self.cells[middle as usize] != right {
                continue;
            }
            // The token covers the cells from `position` up to `end`.
            let end = self.next(middle);
            let length = end - position;
            let previous = self.previous(position);
            let before = self.cells[previous as usize];
            if before == new {
                // The token before was just created, with this one's left part as its right neighbour.
                self.occurrences.last_mut().expect("the new token before").after = new;
            }
            let after = self.cells[end as usize];
            self.cells[position as usize] = new;
            self.cells[middle as usize] = DEAD;
            self.cells[position as usize + 1] = DEAD | length;
            self.cells[end as usize - 1] = DEAD | length;
            let occurrence = Occurrence { position, previous, before, after, weight: weights.at(position) };
            self.occurrences.push(occurrence);
        }

        // Count each neighbour. A pair of two new tokens is counted from its left one.
        let mut touched_left = Vec::new();
        let mut touched_right = Vec::new();
        for block in self.occurrences.chunks(BLOCK) {
            poll(block.len());
            for occurrence in block {
                if occurrence.after != SENTINEL {
                    let neighbour = &mut self.right[occurrence.after as usize];
                    if neighbour.occurrences == 0 {
                        touched_right.push(occurrence.after);
                    }
                    neighbour.count += occurrence.weight;
                    neighbour.occurrences += 1;
                }
                if occurrence.before != SENTINEL && occurrence.before != new {
                    let neighbour = &mut self.left[occurrence.before as usize];
                    if neighbour.occurrences == 0 {
                        touched_left.push(occurrence.before);
                    }
                    neighbour.count += occurrence.weight;
                    neighbour.occurrences += 1;
                }
            }
        }
        for &after in &touched_right {
            // Between two new tokens the pair was (right, left).
            let old = if after == new { left } else { after };
            let Neighbour { count, occurrences, .. } = self.right[after as usize];
            self.subtract(key(right, old), count);
            self.right[after as usize].next = self.track(key(new, after), count, occurrences);
        }
        for &before in &touched_left {
            let Neighbour { count, occurrences, .. } = self.left[before as usize];
            self.subtract(key(before, left), count);
            self.left[before as usize].next = self.track(key(before, new), count, occurrences);
        }

        // Record the positions of the new pairs.
        for block in self.occurrences.chunks(BLOCK) {
            poll(block.len());
            for occurrence in block {
                if occurrence.after != SENTINEL {
                    add_posting(&mut self.right[occurrence.after as usize], &mut self.postings, occurrence.position);
                }
                if occurrence.before != SENTINEL && occurrence.before != new {
                    add_posting(&mut self.left[occurrence.before as usize], &mut self.postings, occurrence.previous);
                }
            }
        }
        for after in touched_right {
            self.right[after as usize] = NO_NEIGHBOUR;
        }
        for before in touched_left {
            self.left[before as usize] = NO_NEIGHBOUR;
        }
        self.occurrences.iter().map(|occurrence| occurrence.weight).sum()
    }

    fn subtract(&mut self, pair: u64, count: u64) {
        if let Some(pair) = self.pairs.get_mut(&pair) {
            pair.count -= count;
        }
    }

    /// Tracks a new pair if it reaches the threshold. Returns the start of its postings, or usize::MAX.
    fn track(&mut self, pair: u64, count: u64, occurrences: u32) -> usize {
        if count < self.threshold {
            return usize::MAX;
        }
        let start = self.postings.len();
        self.postings.resize(start + occurrences as usize, UNTRACKED);
        self.pairs.insert(pair, Pair { count, start, occurrences });
        self.queue.push(&self.tokens, Candidate { count, pair });
        start
    }
}

#[inline(always)]
fn add_posting(neighbour: &mut Neighbour, postings: &mut [u32], position: u32) {
    if neighbour.next != usize::MAX {
        postings[neighbour.next] = position;
        neighbour.next += 1;
    }
}
