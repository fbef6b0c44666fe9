//! Encoding in two levels: cached phase-1 pieces, then phase-2 merges over runs of phase-1 tokens.
//!
//! A merge (a, b) joins text only where the last byte of a meets the first byte of b. So between two bytes at
//! which no merge of a level can join, that level's merges never cross, and text is cut there into pieces that
//! are short, repeat, and are looked up instead of merged. Likewise for phase 2: it never crosses a seam of
//! phase-1 tokens that is not the (rightmost leaf, leftmost leaf) of one of its merges.
//!
//! Level by level equals plain rank-order merging, whatever the list and wherever it is split: see `levels`.
//!
//! A list may give a token several derivations (files made from tiktoken ranks do). Only one of them ever applies:
//! see `keep_live`. The others are dropped before anything is built.

pub mod batch;
mod bits;
pub mod definition;
pub mod dropout;
pub mod encoder;
pub mod level1;
pub mod level2;
mod levels;
mod merge;
pub mod offsets;
pub mod packed;
mod pairs;
pub mod preparation;
pub mod rules;
pub mod spans;
pub mod state;
pub mod stream;
pub mod superwords;
#[cfg(test)]
pub mod tests;
