//! Training: the merge loop of both phases, and phase 2.

pub mod balanced;
mod candidates;
pub mod cells;
pub mod forbidden;
mod index;
pub mod merge_loop;
mod occurrences;
pub mod options;
pub mod phase2;
mod replace;
pub mod report;
