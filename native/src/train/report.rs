//! What the merge loop reports.

use std::time::Duration;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    pub left: u32,
    pub right: u32,
    pub count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Full,
    /// No pair is left with `min_count` or more.
    Exhausted,
    /// The progress callback asked to stop.
    Interrupted,
}

#[derive(Clone, Default)]
pub struct Report {
    pub merges: Vec<Merge>,
    pub rejected: u64,
    /// Those of them whose tokens would have had more than `Veto::max_bytes` bytes.
    pub too_long: u64,
    /// Pairs that were not merged because their concatenation is a token already.
    pub already_tokens: u64,
    /// Time spent on finding the best pair; the rest went into merging it.
    pub selecting: Duration,
}
