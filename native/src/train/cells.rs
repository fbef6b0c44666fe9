//! Weighted words as one flat array of cells.

use std::cmp::Reverse;

use super::occurrences::Map;
use crate::runtime::{interrupt::poll, memory::huge_filled};

pub(super) const DEAD: u32 = 1 << 31;

pub(super) const SENTINEL: u32 = DEAD - 1;

/// Words as cells, most frequent first, with their weights as runs of equal weight.
pub struct Words {
    pub(super) cells: Vec<u32>,
    pub(super) runs: Vec<(u32, u64)>, // (end of the run, weight)
    /// Number of tokens of all words, times their weights: no count of the loop is greater.
    pub(super) weighted: u64,
}

/// Takes a word: its weight, its number of ids, and a function that copies the ids.
pub type TakeWord<'a> = dyn FnMut(u64, usize, &dyn Fn(&mut [u32])) + 'a;

impl Words {
    /// `each` passes every word to its argument; it is called twice. Words of fewer than two ids have no pairs and are
    /// left out.
    pub fn new(each: impl Fn(&mut TakeWord)) -> Result<Self, String> {
        let each_word = |take: &mut TakeWord| {
            each(&mut |weight, n, copy| {
                poll(n);
                if weight > 0 && n > 1 {
                    take(weight, n, copy);
                }
            });
        };
        // By weight: first the number of cells, then the first cell that is free.
        let mut places: Map<u64, usize> = Map::default();
        let (mut total, mut weighted) = (1, Some(0u64));
        each_word(&mut |weight, n, _| {
            *places.entry(weight).or_default() += n + 1;
            total += n + 1;
            weighted = weighted.and_then(|sum| sum.checked_add(weight.checked_mul(n as u64)?));
        });
        let weighted = weighted.ok_or("the sum of the counts does not fit 64 bits; use smaller counts or weights")?;
        if total >= DEAD as usize {
            return Err(format!("{total} cells are too many for one merge loop (at most 2^31)"));
        }
        let mut runs: Vec<(u32, u64)> = places.iter().map(|(&weight, &n)| (n as u32, weight)).collect();
        runs.sort_unstable_by_key(|&(_, weight)| Reverse(weight));
        let mut end = 1;
        for (cells, weight) in &mut runs {
            places.insert(*weight, end as usize);
            end += *cells;
            *cells = end;
        }
        let mut cells = huge_filled(total, SENTINEL);
        each_word(&mut |weight, n, copy| {
            let place = places.get_mut(&weight).expect("a known weight");
            copy(&mut cells[*place..*place + n]);
            *place += n + 1;
        });
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
