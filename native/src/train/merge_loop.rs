//! The merge loop of BPE, for both phases: weighted words in, merges out.
//!
//! One flat array of cells holds all words, separated by sentinels. A token that covers several cells is stored in the
//! first; the second and the last store its length, so both neighbours are found in O(1). The positions of a pair are
//! recorded once, when its newer member is created: no occurrence can appear later, and those that disappear are
//! noticed when the pair is merged. So a merge costs what it touches, and all lists together hold at most three entries
//! per cell. Pairs below a threshold are not tracked, since counts only fall. When the queue runs empty, the threshold
//! is lowered and the cells are counted again.

use std::time::{Duration, Instant};

use super::candidates::{key, parts, Candidate, Queue};
use super::cells::{Weights, Words, DEAD};
use super::occurrences::{Map, Neighbour, Occurrence, Pair, NOWHERE, NO_NEIGHBOUR};
use super::options::{Phase2Options, RejectedPairs, Tie, Veto};
use super::report::{Merge, Report, Stop};
use crate::vocabulary::Tokens;

/// Time between two reports of progress.
pub(super) const PROGRESS: Duration = Duration::from_millis(100);

/// By Zipf's law, count times rank is nearly constant: 1/60 to 1/150 of English text, at 10,000 to 128,000 merges.
const ZIPF: u64 = 128;
/// For phase 2, whose ranks start at the transition: mostly 1/9 to 1/54 of the text.
const ZIPF_PHASE2: u64 = 32;

/// The pair to merge next.
struct Selected {
    pair: u64,
    place: Pair,
}

pub struct MergeLoop<'a> {
    pub(super) cells: Vec<u32>,
    pub(super) runs: Vec<(u32, u64)>,
    weighted: u64,
    pub(super) tokens: Tokens,
    ids_by_hash: hashbrown::HashTable<u32>,
    veto: &'a Veto,
    phase2: Phase2Options<'a>,
    min_count: u64,
    zipf: u64,
    pub(super) threshold: u64,
    pub(super) pairs: Map<u64, Pair>,
    pub(super) postings: Vec<u32>,
    pub(super) queue: Queue,
    pub(super) left: Vec<Neighbour>,
    pub(super) right: Vec<Neighbour>,
    pub(super) occurrences: Vec<Occurrence>,
    pub report: Report,
}

fn hash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

impl<'a> MergeLoop<'a> {
    /// Ids in `words` are those of `tokens`; new tokens get the following ids. No pair with a count below `min_count`
    /// (at least 1) is merged. If phase 2 left out seams, `min_count` is its threshold.
    pub fn new(words: Words, tokens: Tokens, tie: Tie, veto: &'a Veto, min_count: u64) -> Self {
        let this = Self::with_phase2(words, tokens, tie, veto, min_count, Phase2Options::default());
        Self { zipf: ZIPF, ..this }
    }

    /// `new` with the options of phase 2.
    pub fn with_phase2(
        words: Words,
        tokens: Tokens,
        tie: Tie,
        veto: &'a Veto,
        min_count: u64,
        mut phase2: Phase2Options<'a>,
    ) -> Self {
        let mut ids_by_hash = hashbrown::HashTable::with_capacity(tokens.len() * 2);
        for id in 0..tokens.len() as u32 {
            ids_by_hash.insert_unique(hash(tokens.get(id)), id, |&id| hash(tokens.get(id)));
        }
        if phase2.max_tokens.is_some() {
            phase2.widths.resize(tokens.len(), 1);
        }
        Self {
            cells: words.cells,
            runs: words.runs,
            weighted: words.weighted,
            left: vec![NO_NEIGHBOUR; tokens.len()],
            right: vec![NO_NEIGHBOUR; tokens.len()],
            tokens,
            ids_by_hash,
            veto,
            phase2,
            min_count: min_count.max(1),
            zipf: ZIPF_PHASE2,
            threshold: u64::MAX,
            pairs: Map::default(),
            postings: Vec::new(),
            queue: Queue { heap: Vec::new(), tie },
            occurrences: Vec::new(),
            report: Report::default(),
        }
    }

    /// A count that the last of `total` merges will probably reach. If it does not, lowering the threshold costs one
    /// pass over the cells. A threshold that is far too low costs memory for pairs that are never merged.
    fn guess_threshold(&self, total: usize) -> u64 {
        (self.weighted / (self.zipf * total.max(1) as u64)).max(self.min_count)
    }

    /// Merges until there are `total` merges. `progress(number of merges so far)` stops the loop by returning false.
    pub fn run(&mut self, total: usize, mut progress: impl FnMut(usize) -> bool) -> Stop {
        if self.threshold == u64::MAX {
            self.threshold = self.guess_threshold(total);
            self.index();
        }
        let mut reported = Instant::now();
        while self.report.merges.len() < total {
            if reported.elapsed() > PROGRESS {
                reported = Instant::now();
                if !progress(self.report.merges.len()) {
                    return Stop::Interrupted;
                }
            }
            let (token, best) = match self.select() {
                Ok(selected) => selected,
                Err(stop) => return stop,
            };
            let (left, right) = parts(best.pair);
            self.make(&token, left, right, best.place);
            self.report.merges.push(Merge { left, right, count: best.place.count });
        }
        Stop::Full
    }

    /// Makes a token and merges its pair. Returns the number of tokens that this removes from the words.
    fn make(&mut self, token: &[u8], left: u32, right: u32, place: Pair) -> u64 {
        let id = self.tokens.push(token);
        if self.phase2.max_tokens.is_some() {
            self.phase2.widths.push(self.width(left, right));
        }
        let tokens = &self.tokens;
        self.ids_by_hash.insert_unique(hash(token), id, |&id| hash(tokens.get(id)));
        self.left.push(NO_NEIGHBOUR);
        self.right.push(NO_NEIGHBOUR);
        self.merge(left, right, id, place)
    }

    /// Counts and tracks all pairs, however rare, so that `apply` finds them.
    pub(super) fn track_all(&mut self) {
        (self.min_count, self.threshold) = (1, 1);
        self.index();
    }

    /// The best pair of at least `min_count` and its count. It remains tracked, for `apply`, but is not found again.
    pub(super) fn best(&mut self, min_count: u64) -> Option<Merge> {
        let (_, best) = self.select().ok()?;
        self.pairs.insert(best.pair, best.place);
        let (left, right) = parts(best.pair);
        Some(Merge { left, right, count: best.place.count }).filter(|merge| merge.count >= min_count)
    }

    /// Merges a pair that may be of any count, or absent. Returns the number of tokens that this removes from the words.
    pub(super) fn apply(&mut self, left: u32, right: u32) -> u64 {
        let place = self.pairs.remove(&key(left, right)).unwrap_or(NOWHERE);
        let token = [self.tokens.get(left), self.tokens.get(right)].concat();
        self.make(&token, left, right, place)
    }

    /// Pops the best pair that may be merged, with the bytes of its product.
    fn select(&mut self) -> Result<(Vec<u8>, Selected), Stop> {
        loop {
            let Some(top) = self.queue.pop(&self.tokens) else {
                if self.threshold == self.min_count {
                    return Err(Stop::Exhausted);
                }
                self.threshold = (self.threshold / 2).max(self.min_count);
                self.index();
                continue;
            };
            let Some(&tracked) = self.pairs.get(&top.pair) else {
                continue;
            };
            let (left, right) = parts(top.pair);
            let mut pair = tracked;
            if self.phase2.non_overlapping && left == right {
                // At most the tracked count of adjacent pairs. Like it, this can only fall.
                pair.count = self.mergeable_at_once(left, &tracked);
            }
            if pair.count != top.count {
                if pair.count >= self.threshold {
                    let fresh = Candidate { count: pair.count, pair: top.pair };
                    self.queue.push(&self.tokens, fresh);
                } else {
                    self.pairs.remove(&top.pair);
                }
                continue;
            }
            self.pairs.remove(&top.pair);
            if self.phase2.rejected_pairs.contains(&top.pair) {
                continue;
            }
            let (first, second) = (self.tokens.get(left), self.tokens.get(right));
            let token = [first, second].concat();
            let too_wide = self.phase2.max_tokens.is_some_and(|most| self.width(left, right) > most);
            if too_wide || self.veto.rejects(&token) {
                self.report.rejected += 1;
                self.report.too_long += u64::from(self.veto.is_too_long(&token));
            } else if self.ids_by_hash.find(hash(&token), |&id| *self.tokens.get(id) == *token).is_some() {
                self.report.already_tokens += 1;
            } else {
                match self.phase2.judge.as_mut().map_or(Some(false), |judge| judge(first, second, pair.count)) {
                    None => return Err(Stop::Interrupted),
                    Some(false) => return Ok((token, Selected { pair: top.pair, place: pair })),
                    Some(true) => self.report.rejected += 1,
                }
            }
            // If the cells are counted again at a lower threshold, the pair is still there.
            self.phase2.rejected_pairs.insert(top.pair);
        }
    }

    /// Number of initial tokens in the product of a pair.
    fn width(&self, left: u32, right: u32) -> u32 {
        self.phase2.widths[left as usize].saturating_add(self.phase2.widths[right as usize])
    }

    /// Number of non-overlapping pairs of a token with itself: k / 2 in a row of k tokens.
    fn mergeable_at_once(&self, token: u32, pair: &Pair) -> u64 {
        let mut weights = Weights::new(&self.runs);
        let (mut count, mut free) = (0, 0);
        for &position in &self.postings[pair.start..pair.start + pair.occurrences as usize] {
            if position < free || self.cells[position as usize] != token {
                continue;
            }
            let second = self.next(position);
            if self.cells[second as usize] == token {
                count += weights.at(position);
                free = self.next(second);
            }
        }
        count
    }

    /// The report, and the rejected pairs.
    pub fn finish(self) -> (Report, RejectedPairs) {
        (self.report, self.phase2.rejected_pairs)
    }

    #[inline(always)]
    pub(super) fn next(&self, position: u32) -> u32 {
        let cell = self.cells[position as usize + 1];
        if cell & DEAD != 0 {
            position + (cell & !DEAD)
        } else {
            position + 1
        }
    }

    /// The first cell of the token before `position`, or the sentinel.
    #[inline(always)]
    pub(super) fn previous(&self, position: u32) -> u32 {
        let cell = self.cells[position as usize - 1];
        if cell & DEAD != 0 {
            position - (cell & !DEAD)
        } else {
            position - 1
        }
    }
}
