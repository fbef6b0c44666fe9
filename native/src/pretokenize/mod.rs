//! Pretokenization patterns: hand-written scanners for the named ones, a regex engine for any other.
//!
//! A pattern cuts text as HF's `Split(pattern, "isolated")` does: its matches are pieces, and so are the gaps
//! between them. Pieces cover the text, so a scanner only reports where each one ends. A pattern of several lines is
//! a sequence: each line's regex cuts the pieces of the one before, as HF's `Sequence` of splits does.

mod bounded_regex;
pub mod classes;
mod emoji;
mod fences;
pub(crate) mod masks;
pub mod named;
mod scalar;
pub mod scanner;
mod seed_plus;
mod sentences;
#[cfg(test)]
mod tests;
mod windows;
