//! Level 2: phase-2 merges on runs of phase-1 tokens, split at seams that no merge can cross.

use super::merge::{merge, merge_long, merge_short, Scratch, SCAN};
use super::packed::{FIRST, ID, LEFT_OF_SEAM, LEFT_PART, RIGHT_OF_SEAM, RIGHT_PART};
use super::pairs::{is_merge, pair_merge, product, FixedPairs, PairMerge, PairTable, NO_MERGE, SEAM};
use super::rules::Rule;
use crate::runtime::{interrupt::poll, memory};

/// Seams looked up together.
const BLOCK: usize = 256;

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

    /// Appends the ids of the merged tokens to `out`. Tokens with `FIRST` have a closed seam before them.
    #[inline(always)]
    pub(super) fn merge(&self, packed: &[u32], scratch: &mut Scratch, out: &mut Vec<u32>) {
        memory::reserve(out, packed.len());
        if !self.seams {
            return self.merge_between_firsts(packed, scratch, out);
        }
        // Whether phase 2 can cross a seam is unpredictable, and the answer is a cache miss: collect the candidate
        // seams, then prefetch their slots, then read the answers, and branch only for seams that can be crossed.
        let mut done = 0;
        let mut seams = [(0, 0); BLOCK];
        let mut run = std::mem::take(&mut scratch.found);
        run.clear();
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
                if found == NO_MERGE {
                    continue;
                }
                // A run of k tokens has k - 1 consecutive seams.
                if run.is_empty() || at != done + run.len() + 1 {
                    self.end_run(packed, &mut done, &mut run, at - 1, scratch, out);
                }
                memory::push(&mut run, found);
            }
        }
        self.end_run(packed, &mut done, &mut run, packed.len(), scratch, out);
        scratch.found = run;
    }

    /// Merges the run that begins at `done`, if there is one, and copies the single tokens up to `next`.
    #[inline(always)]
    fn end_run(
        &self,
        packed: &[u32],
        done: &mut usize,
        run: &mut Vec<PairMerge>,
        next: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        match **run {
            [] => {}
            [found] => {
                if is_merge(found) {
                    out.push(product(found) & ID);
                } else {
                    out.extend_from_slice(&[packed[*done] & ID, packed[*done + 1] & ID]);
                }
                *done += 2;
            }
            _ => {
                let end = *done + run.len() + 1;
                self.merge_long_run(&packed[*done..end], run, scratch, out);
                *done = end;
            }
        }
        run.clear();
        out.extend(packed[*done..next].iter().map(|word| word & ID));
        *done = next;
    }

    #[inline(never)]
    fn merge_long_run(&self, run: &[u32], found: &mut [PairMerge], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let mut ids = std::mem::take(&mut scratch.run);
        ids.clear();
        memory::reserve(&mut ids, run.len());
        ids.extend_from_slice(run);
        let pair = |left: u32, right: u32| self.pair(left, right);
        if ids.len() > SCAN {
            merge_long(&mut ids, pair, scratch);
        } else {
            let n = merge_short(&mut ids, found, pair);
            ids.truncate(n);
        }
        out.extend(ids.iter().map(|&word| word & ID));
        scratch.run = ids;
    }

    #[inline(never)]
    fn merge_between_firsts(&self, packed: &[u32], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let mut start = 0;
        while start < packed.len() {
            let length = packed[start + 1..].iter().position(|word| word & FIRST != 0);
            let end = length.map_or(packed.len(), |length| start + 1 + length);
            let mut ids = std::mem::take(&mut scratch.run);
            ids.clear();
            memory::reserve(&mut ids, end - start);
            ids.extend_from_slice(&packed[start..end]);
            merge(&mut ids, |left, right| self.pair(left, right), scratch);
            out.extend(ids.iter().map(|&word| word & ID));
            scratch.run = ids;
            start = end;
        }
    }
}
