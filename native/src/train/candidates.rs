//! Candidates for the next merge, the best first.

use super::options::Tie;
use crate::vocabulary::Tokens;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) count: u64,
    pub(super) pair: u64,
}

#[inline(always)]
pub(super) fn key(left: u32, right: u32) -> u64 {
    (left as u64) << 32 | right as u64
}

#[inline(always)]
pub(super) fn parts(pair: u64) -> (u32, u32) {
    ((pair >> 32) as u32, pair as u32)
}

/// A max-heap whose order depends on the token table.
pub(super) struct Queue {
    pub(super) heap: Vec<Candidate>,
    pub(super) tie: Tie,
}

impl Queue {
    pub(super) fn before(&self, tokens: &Tokens, a: Candidate, b: Candidate) -> bool {
        if a.count != b.count {
            return a.count > b.count;
        }
        if self.tie == Tie::LowestIds {
            return a.pair < b.pair;
        }
        let strings = |pair| {
            let (left, right) = parts(pair);
            (tokens.get(left), tokens.get(right))
        };
        // Different tokens have equal strings only in imported vocabularies; then ids decide.
        match strings(a.pair).cmp(&strings(b.pair)) {
            std::cmp::Ordering::Equal => a.pair < b.pair,
            order => (order == std::cmp::Ordering::Greater) == (self.tie == Tie::LexicographicGreatest),
        }
    }

    pub(super) fn push(&mut self, tokens: &Tokens, candidate: Candidate) {
        self.heap.push(candidate);
        let mut at = self.heap.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.before(tokens, self.heap[at], self.heap[parent]) {
                break;
            }
            self.heap.swap(at, parent);
            at = parent;
        }
    }

    pub(super) fn pop(&mut self, tokens: &Tokens) -> Option<Candidate> {
        let last = self.heap.pop()?;
        if self.heap.is_empty() {
            return Some(last);
        }
        let top = std::mem::replace(&mut self.heap[0], last);
        let mut at = 0;
        loop {
            let mut best = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.before(tokens, self.heap[child], self.heap[best]) {
                    best = child;
                }
            }
            if best == at {
                return Some(top);
            }
            self.heap.swap(at, best);
            at = best;
        }
    }
}
