//! Threads, memory, interruption and messages.

pub mod interrupt;
pub mod lock_free;
pub mod memory;
pub mod ordered;
pub mod parallel;
pub mod quoting;
#[cfg(test)]
pub mod random;
