//! Level 1: pieces of text between which no phase-1 merge can join, looked up in a cache or merged.

pub mod cache;
mod characters;
pub(super) mod lanes;
mod lookup;
pub(super) mod pieces;
pub(super) mod queue;
mod seams;
pub(super) mod token_index;
pub(super) mod whole_tokens;
