//! Phase 2.

mod fragments;
pub mod partial;
pub mod sample;
pub mod sketch;
#[cfg(test)]
mod tests;
pub mod trainer;
pub mod worker;
