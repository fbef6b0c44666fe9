//! Threads, memory, interruption and messages.

pub mod interrupt;
pub mod memory;
pub mod parallel;
pub mod pool;
pub mod quoting;
#[cfg(test)]
pub mod random;
