//! Level 1: the phase-1 merges.
//!
//! 1. `run` cuts the text into pieces that no level-1 merge crosses: those of the scanner, cut further (also by `seams`).
//! 2. `pieces` looks the pieces up in the thread's `cache`, many at a time.
//! 3. Pieces that are not cached are merged, many at a time (`lanes`) or alone if they are long, and cached.

mod cache;
mod characters;
mod lanes;
pub mod merges;
pub(super) mod piece_sink;
pub(super) mod pieces;
mod seams;
