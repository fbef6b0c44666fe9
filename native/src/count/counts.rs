//! Sums of counts.

use super::spill::{Source, Sum};
use crate::runtime::{interrupt::poll, memory};

/// Work of adding up one string's counts, as `poll` takes it.
const WORK_PER_SUM: usize = 16;

/// Distinct pretokens in order of bytes, laid end to end, and how often each occurs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub data: Vec<u8>,
    pub offsets: Vec<i64>,
    pub counts: Vec<u64>,
}

impl Counts {
    /// Adds up sorted sources.
    pub fn sum(sources: Vec<Source>) -> Result<Self, String> {
        let most: usize = sources.iter().map(Source::len).sum();
        let mut sum = Sum::new(sources)?;
        let mut this =
            Self { offsets: memory::with_capacity(most + 1), counts: memory::with_capacity(most), ..Self::default() };
        this.offsets.push(0);
        while let Some(count) = sum.next_onto(&mut this.data)? {
            poll(WORK_PER_SUM);
            this.offsets.push(this.data.len() as i64);
            this.counts.push(count);
        }
        Ok(this)
    }
}
