//! Pretokenization patterns: hand-written scanners for the named ones, a regex engine for any other.
//!
//! A pattern splits text like HF's `Split(pattern, "isolated")`: its matches are pieces, and so are the gaps between
//! them. Pieces cover the text, so a scanner only reports where each one ends. A pattern of several lines is a
//! sequence: each line's regex splits the pieces of the line before, like HF's `Sequence` of splits.

mod bounded_regex;
pub mod classes;
mod emoji;
mod fence_scanners;
pub mod patterns;
mod scalar;
pub mod scanner;
mod sentences;
pub mod sink;
mod spans_plus;
#[cfg(test)]
pub(crate) mod tests;
mod wide;
mod windows;
