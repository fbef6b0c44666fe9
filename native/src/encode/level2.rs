//! Level 2: phase-2 merges on runs of phase-1 tokens, split at seams that no merge can cross.

use std::ops::Range;

use super::merge::{merge, merge_long, merge_short, Scratch, SCAN};
use super::packed::{FIRST, ID, LEFT_OF_SEAM, LEFT_PART, RIGHT_OF_SEAM, RIGHT_PART};
use super::pairs::{is_merge, pair_merge, product, FixedPairs, PairMerge, PairTable, NO_MERGE, SEAM};
use super::rules::Rule;
use crate::runtime::{interrupt::poll, memory};

/// Seams looked up together.
const BLOCK: usize = 256;

/// Level 2 of a thread: scratch space.
#[derive(Default)]
pub struct Runs {
    /// Packed tokens to merge.
    packed: Vec<u32>,
    /// The seams of the current run, and its tokens.
    seams: Vec<PairMerge>,
    ids: Vec<u32>,
    scratch: Scratch,
}

/// Level 2 on packed tokens: finds the runs within which seams can be crossed, and appends the ids of all tokens.
struct Run<'a> {
    level: &'a Level2,
    packed: &'a [u32],
    /// Start of the current run. The tokens before it are in `out`.
    start: usize,
    runs: &'a mut Runs,
    out: &'a mut Vec<u32>,
}

/// Phase-2 merges, and the seams that they can cross, in one table.
pub(super) struct Level2 {
    pairs: FixedPairs,
    /// Whether the seams are in the table. Otherwise only those at the ends of the scanner's pieces are closed.
    seams: bool,
}

impl Level2 {
    /// The level, and the packed tokens by id. `leaves`: leftmost and rightmost phase-1 token of each token.
    pub(super) fn new(n_tokens: usize, rules: &[Rule], leaves: Option<(Vec<u32>, Vec<u32>)>) -> (Self, Vec<u32>) {
        let mut packed: Vec<u32> = (0..n_tokens as u32).collect();
        let seams = leaves.is_some();
        for Rule { merge, .. } in rules {
            packed[merge.left as usize] |= LEFT_PART;
            packed[merge.right as usize] |= RIGHT_PART;
        }
        let mut pairs = PairTable::new(if seams { 2 * rules.len() } else { rules.len() });
        if let Some((leftmost, rightmost)) = leaves {
            for Rule { merge, .. } in rules {
                let (left, right) = (rightmost[merge.left as usize], leftmost[merge.right as usize]);
                packed[left as usize] |= LEFT_OF_SEAM;
                packed[right as usize] |= RIGHT_OF_SEAM;
                pairs.insert(left, right, SEAM);
            }
        }
        for Rule { rank, merge } in rules {
            pairs.insert(merge.left, merge.right, pair_merge(*rank, packed[merge.new as usize]));
        }
        (Self { pairs: FixedPairs::new(&pairs), seams }, packed)
    }

    /// The merge of two adjacent tokens of a run.
    #[inline(always)]
    fn pair(&self, left: u32, right: u32) -> PairMerge {
        if left & LEFT_PART == 0 || right & RIGHT_PART == 0 {
            return NO_MERGE;
        }
        self.pairs.get(left & ID, right & ID)
    }

    /// `merge` of tokens that are packed now.
    pub(super) fn merge_ids(&self, packed: impl ExactSizeIterator<Item = u32>, runs: &mut Runs, out: &mut Vec<u32>) {
        let mut buffer = std::mem::take(&mut runs.packed);
        buffer.clear();
        memory::extend(&mut buffer, packed);
        self.merge(&buffer, runs, out);
        runs.packed = buffer;
    }

    /// Appends the ids of the merged tokens to `out`. Tokens with `FIRST` have a closed seam before them.
    #[inline(always)]
    pub(super) fn merge(&self, packed: &[u32], runs: &mut Runs, out: &mut Vec<u32>) {
        memory::reserve(out, packed.len());
        if !self.seams {
            return self.merge_between_firsts(packed, runs, out);
        }
        // Whether phase 2 can cross a seam is unpredictable, and the answer is a cache miss: collect the candidate
        // seams, then prefetch their slots, then read the answers, and branch only for seams that can be crossed.
        let mut seams = [(0, 0); BLOCK];
        runs.seams.clear();
        let mut run = Run { level: self, packed, start: 0, runs, out };
        for begin in (1..packed.len()).step_by(BLOCK) {
            let mut n = 0;
            poll(BLOCK);
            for (i, two) in packed[begin - 1..packed.len().min(begin + BLOCK)].windows(2).enumerate() {
                seams[n & (BLOCK - 1)].0 = begin + i;
                let (left, right) = (two[0] & LEFT_OF_SEAM != 0, two[1] & (RIGHT_OF_SEAM | FIRST) == RIGHT_OF_SEAM);
                n += (left & right) as usize; // a branch would be mispredicted too often
            }
            for (at, place) in &mut seams[..n] {
                *place = self.pairs.place_ahead(packed[*at - 1] & ID, packed[*at] & ID);
            }
            for &(at, place) in &seams[..n] {
                let found = self.pairs.get_at(place, packed[at - 1] & ID, packed[at] & ID);
                if found != NO_MERGE {
                    run.push(at, found);
                }
            }
        }
        run.finish();
    }

    #[inline(never)]
    fn merge_between_firsts(&self, packed: &[u32], Runs { ids, scratch, .. }: &mut Runs, out: &mut Vec<u32>) {
        by_firsts(packed, |range| {
            ids.clear();
            memory::reserve(ids, range.len());
            ids.extend_from_slice(&packed[range]);
            merge(ids, |left, right| self.pair(left, right), scratch);
            out.extend(ids.iter().map(|&word| word & ID));
        });
    }
}

impl Run<'_> {
    /// Adds a seam that can be crossed.
    #[inline(always)]
    fn push(&mut self, at: usize, found: PairMerge) {
        // A run of k tokens has k - 1 consecutive seams.
        let seams = &self.runs.seams;
        if seams.is_empty() || at != self.start + seams.len() + 1 {
            self.end(at - 1);
        }
        memory::push(&mut self.runs.seams, found);
    }

    #[inline(always)]
    fn finish(mut self) {
        self.end(self.packed.len());
    }

    /// Merges the current run, if there is one, and copies the single tokens up to the start of the next.
    #[inline(always)]
    fn end(&mut self, next: usize) {
        let Self { packed, start, .. } = *self;
        let end = match *self.runs.seams {
            [] => start,
            [found] => {
                if is_merge(found) {
                    self.out.push(product(found) & ID);
                } else {
                    self.out.extend_from_slice(&[packed[start] & ID, packed[start + 1] & ID]);
                }
                start + 2
            }
            [..] => self.merge_run(),
        };
        self.runs.seams.clear();
        self.out.extend(packed[end..next].iter().map(|word| word & ID));
        self.start = next;
    }

    /// Merges a run of at least three tokens. Returns its end.
    #[inline(never)]
    fn merge_run(&mut self) -> usize {
        let Runs { seams, ids, scratch, .. } = &mut *self.runs;
        let end = self.start + seams.len() + 1;
        ids.clear();
        memory::reserve(ids, end - self.start);
        ids.extend_from_slice(&self.packed[self.start..end]);
        let pair = |left: u32, right: u32| self.level.pair(left, right);
        if ids.len() > SCAN {
            merge_long(ids, pair, scratch);
        } else {
            let n = merge_short(ids, seams, pair);
            ids.truncate(n);
        }
        self.out.extend(ids.iter().map(|&word| word & ID));
        end
    }
}

/// Calls `range` with each range of tokens from one `FIRST` to the next.
pub(super) fn by_firsts(packed: &[u32], mut range: impl FnMut(Range<usize>)) {
    let mut start = 0;
    for (at, word) in packed.iter().enumerate() {
        if word & FIRST != 0 && at > start {
            range(start..at);
            start = at;
        }
    }
    if start < packed.len() {
        range(start..packed.len());
    }
}
