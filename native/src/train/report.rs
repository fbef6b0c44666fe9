//! Results of the merge loop.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    pub left: u32,
    pub right: u32,
    pub count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Full,
    /// No pair with at least `min_count` is left.
    Exhausted,
    /// The progress callback asked to stop.
    Interrupted,
}

#[derive(Clone, Default)]
pub struct Report {
    pub merges: Vec<Merge>,
    pub rejected: u64,
    /// Rejected pairs whose product exceeds `Veto::max_bytes`.
    pub too_long: u64,
    /// Pairs that were not merged because their product is a token already.
    pub already_tokens: u64,
}
