//! Level 1: pieces of text between which no phase-1 merge can join, looked up in a cache or merged.

mod cache;
mod characters;
mod lanes;
mod misses;
pub(super) mod pieces;
mod queue;
mod seams;
pub(super) mod tables;
mod token_index;
mod whole_tokens;
