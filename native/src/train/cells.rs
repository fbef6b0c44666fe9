//! Weighted words as one flat array of cells.

use crate::runtime::interrupt::poll;

/// Words between two calls of `poll`, and the work of each.
const BLOCK: usize = 1 << 10;
const WORK: usize = 8;

pub(super) const DEAD: u32 = 1 << 31;

pub(super) const SENTINEL: u32 = DEAD - 1;

/// Words as cells, most frequent first, with their weights as runs of equal weight.
pub struct Words {
    pub(super) cells: Vec<u32>,
    pub(super) runs: Vec<(u32, u64)>, // (end of the run, weight)
    /// Number of tokens of all words, times their weights: no count of the loop is greater.
    pub(super) weighted: u64,
}

impl Words {
    /// `word(i)` returns the ids of word i. Words of fewer than two ids have no pairs and are left out.
    pub fn new<I: ExactSizeIterator<Item = u32>>(weights: &[u64], word: impl Fn(usize) -> I) -> Result<Self, String> {
        let mut order: Vec<u32> = Vec::with_capacity(weights.len());
        order.extend((0..weights.len() as u32).filter(|&i| weights[i as usize] > 0 && word(i as usize).len() > 1));
        // Most frequent first, so that equal weights form few runs; ties in a fixed order.
        order.sort_unstable_by_key(|&i| (std::cmp::Reverse(weights[i as usize]), i));
        let total = order.iter().map(|&i| word(i as usize).len() + 1).sum::<usize>() + 1;
        let weighted = order
            .iter()
            .try_fold(0u64, |sum, &i| sum.checked_add(weights[i as usize].checked_mul(word(i as usize).len() as u64)?))
            .ok_or("the sum of the counts does not fit 64 bits; use smaller counts or weights")?;
        if total >= DEAD as usize {
            return Err(format!("{total} cells are too many for one merge loop (at most 2^31)"));
        }
        let mut cells = Vec::with_capacity(total);
        let mut runs: Vec<(u32, u64)> = Vec::new();
        cells.push(SENTINEL);
        for (n, i) in order.into_iter().enumerate() {
            if n % BLOCK == 0 {
                poll(WORK * BLOCK);
            }
            cells.extend(word(i as usize));
            cells.push(SENTINEL);
            let weight = weights[i as usize];
            match runs.last_mut() {
                Some((end, last)) if *last == weight => *end = cells.len() as u32,
                _ => runs.push((cells.len() as u32, weight)),
            }
        }
        Ok(Self { cells, runs, weighted })
    }
}

/// Looks up weights of ascending positions.
pub(super) struct Weights<'a> {
    runs: &'a [(u32, u64)],
    at: usize,
}

impl<'a> Weights<'a> {
    pub(super) fn new(runs: &'a [(u32, u64)]) -> Self {
        Self { runs, at: 0 }
    }

    #[inline(always)]
    pub(super) fn at(&mut self, position: u32) -> u64 {
        if self.runs[self.at].0 <= position {
            // Usually the next run or one nearby; far jumps by bisection.
            self.at += 1;
            if self.runs[self.at].0 <= position {
                self.at += self.runs[self.at..].partition_point(|&(end, _)| end <= position);
            }
        }
        self.runs[self.at].1
    }
}
