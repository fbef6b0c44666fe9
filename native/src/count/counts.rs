//! Sums of counts.

use super::spill::{Source, Sum};
use crate::runtime::interrupt::poll;

/// Work of summing one string's counts, in units of `poll`.
const WORK_PER_SUM: usize = 16;

/// Distinct pretokens, sorted and concatenated, with their counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub data: Vec<u8>,
    pub offsets: Vec<i64>,
    pub counts: Vec<u64>,
}

impl Counts {
    /// Merges sorted sources and sums their counts.
    pub fn sum(sources: Vec<Source>) -> Result<Self, String> {
        let most: usize = sources.iter().map(Source::len).sum();
        let mut sum = Sum::new(sources)?;
        let mut this =
            Self { offsets: Vec::with_capacity(most + 1), counts: Vec::with_capacity(most), ..Self::default() };
        this.offsets.push(0);
        while let Some(count) = sum.next_onto(&mut this.data)? {
            poll(WORK_PER_SUM);
            this.offsets.push(this.data.len() as i64);
            this.counts.push(count);
        }
        Ok(this)
    }
}
