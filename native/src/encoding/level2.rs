//! Level 2: phase-2 merges over runs of phase-1 tokens, cut at the seams that they cannot cross.

use super::merging::{merge, merge_long, merge_short, Scratch, SCAN};
use super::pairs::{found, joins, made, Found, PairTable, ABSENT, SEAM};
use super::rules::Rule;
use super::words::{FIRST, ID, LEFT_OF_SEAM, LEFT_PART, RIGHT_OF_SEAM, RIGHT_PART};

/// Phase-2 merges, and the seams that they can cross, in one table.
pub(super) struct Level2 {
    pairs: PairTable,
    /// Whether seams are known: otherwise only those at the ends of the scanner's pieces are closed.
    seams: bool,
    ordered: bool,
}

impl Level2 {
    /// The level, and by id the words of all tokens. `leaves`: the leftmost and the rightmost phase-1 token of each.
    pub(super) fn new(
        n_tokens: usize,
        rules: &[Rule],
        leaves: Option<(Vec<u32>, Vec<u32>)>,
        ordered: bool,
    ) -> (Self, Vec<u32>) {
        let mut words: Vec<u32> = (0..n_tokens as u32).collect();
        let seams = leaves.is_some();
        for Rule { merge, .. } in rules {
            words[merge.left as usize] |= LEFT_PART;
            words[merge.right as usize] |= RIGHT_PART;
        }
        let mut pairs = PairTable::new(if seams { 2 * rules.len() } else { rules.len() });
        if let Some((leftmost, rightmost)) = leaves {
            for Rule { merge, .. } in rules {
                let (left, right) = (rightmost[merge.left as usize], leftmost[merge.right as usize]);
                words[left as usize] |= LEFT_OF_SEAM;
                words[right as usize] |= RIGHT_OF_SEAM;
                pairs.insert(left, right, SEAM);
            }
        }
        for Rule { rank, merge } in rules {
            pairs.insert(merge.left, merge.right, found(*rank, words[merge.new as usize]));
        }
        (Self { pairs, seams, ordered }, words)
    }

    /// What merging two neighbours in a run gives.
    #[inline(always)]
    fn pair(&self, left: u32, right: u32) -> Found {
        if left & LEFT_PART == 0 || right & RIGHT_PART == 0 {
            return ABSENT;
        }
        self.pairs.get(left & ID, right & ID)
    }

    /// Ids of the merged words, appended to `out`. Words with `FIRST` have a closed seam in front.
    #[inline(always)]
    pub(super) fn merge(&self, words: &[u32], scratch: &mut Scratch, out: &mut Vec<u32>) {
        if !self.seams {
            return self.merge_between_firsts(words, scratch, out);
        }
        let mut start = 0;
        scratch.found.clear();
        for at in 1..words.len() {
            let (left, right) = (words[at - 1], words[at]);
            if left & LEFT_OF_SEAM != 0 && right & (RIGHT_OF_SEAM | FIRST) == RIGHT_OF_SEAM {
                let found = self.pairs.get(left & ID, right & ID);
                if found != ABSENT {
                    scratch.found.push(found);
                    continue;
                }
            }
            self.merge_run(&words[start..at], scratch, out);
            start = at;
        }
        self.merge_run(&words[start..], scratch, out);
    }

    /// Merges a run whose pairs are looked up already, in `scratch.found`, which it empties.
    #[inline(always)]
    fn merge_run(&self, run: &[u32], scratch: &mut Scratch, out: &mut Vec<u32>) {
        match *run {
            [] => {}
            [token] => return out.push(token & ID),
            [left, right] => {
                let found = scratch.found[0];
                if joins(found) {
                    out.push(made(found) & ID);
                } else {
                    out.extend_from_slice(&[left & ID, right & ID]);
                }
            }
            _ => self.merge_long_run(run, scratch, out),
        }
        scratch.found.clear();
    }

    #[inline(never)]
    fn merge_long_run(&self, run: &[u32], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let mut ids = std::mem::take(&mut scratch.run);
        ids.clear();
        ids.extend_from_slice(run);
        let pair = |left: u32, right: u32| self.pair(left, right);
        if ids.len() > SCAN {
            merge_long(&mut ids, pair, self.ordered, scratch);
        } else {
            let n = merge_short(&mut ids, &mut scratch.found, pair);
            ids.truncate(n);
        }
        out.extend(ids.iter().map(|&word| word & ID));
        scratch.run = ids;
    }

    #[inline(never)]
    fn merge_between_firsts(&self, words: &[u32], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let mut start = 0;
        while start < words.len() {
            let length = words[start + 1..].iter().position(|word| word & FIRST != 0);
            let end = length.map_or(words.len(), |length| start + 1 + length);
            let mut ids = std::mem::take(&mut scratch.run);
            ids.clear();
            ids.extend_from_slice(&words[start..end]);
            merge(&mut ids, |left, right| self.pair(left, right), self.ordered, scratch);
            out.extend(ids.iter().map(|&word| word & ID));
            scratch.run = ids;
            start = end;
        }
    }
}
