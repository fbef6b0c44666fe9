//! Counts of pretokens, in memory and on disk.

pub mod counter;
pub mod counts;
pub mod keys;
pub mod spill;
pub mod table;
#[cfg(test)]
mod tests;
