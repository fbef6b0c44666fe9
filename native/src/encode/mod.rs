//! Encoding in two levels: cached phase-1 pieces, then phase-2 merges on runs of phase-1 tokens. Two-pass encoding,
//! which needs both patterns, is in `encoder` (`encode_in_spans`).
//!
//! A merge (a, b) joins text only where the last byte of a is followed by the first byte of b. So if no merge of a
//! level can join two adjacent bytes, no merge of that level crosses them, and the text can be cut there. The pieces
//! are short and repeat, so they are looked up instead of merged. Phase 2 works the same way: it never crosses a seam
//! of phase-1 tokens that is not the (rightmost leaf, leftmost leaf) of one of its merges.
//!
//! Merging level by level equals plain merging by rank, for any list and any split (see `levels`).
//!
//! A list may give a token several derivations, as files made from tiktoken ranks do. Only one of them ever applies
//! (see `keep_live`); the others are dropped first.

pub mod batch;
mod bits;
pub mod definition;
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
