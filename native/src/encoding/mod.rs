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

mod batch;
mod cache;
mod encoder;
mod known;
mod lanes;
mod level2;
mod levels;
mod lookup;
mod merging;
mod pairs;
mod pieces;
mod queue;
mod rules;
mod spans;
#[cfg(test)]
pub mod tests;
mod whole;
mod words;

pub use cache::State;
pub use encoder::Encoder;
pub use level2::{Room, Superwords};
pub use rules::{recover_merges, superword_rank};
pub(crate) use spans::between_closed_seams;
pub use words::{MOST_IDS, MOST_MERGES};

use crate::merging::Tokens;
use crate::patterns::{self, Scanner};

struct Bits(Vec<u64>);

impl Bits {
    fn new(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    #[inline(always)]
    fn set(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    #[inline(always)]
    fn get(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 != 0
    }
}

/// A merge by ids; its place in the list is its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeRule {
    pub left: u32,
    pub right: u32,
    pub new: u32,
}

/// What defines an encoding (see DESIGN: one-pass and two-pass).
pub struct Definition {
    /// Bytes of every token by id; special tokens too. At most `MOST_IDS`.
    pub tokens: Tokens,
    pub byte_ids: [u32; 256],
    pub merges: Vec<MergeRule>,
    /// Merges of phase 1; the rest are phase 2's.
    pub phase1: usize,
    /// Cuts the text first: the fence of a one-pass tokenizer, the phase-1 pattern of any other.
    pub scanner: Scanner,
    /// Two-pass: phase-2 merges do not cross the ends of this one's pieces.
    pub fence: Option<Scanner>,
    /// Two-pass: phase 2 merges only whole pretokens that are one of these tokens (by id); None for any token.
    pub eligible: Option<Vec<bool>>,
}

/// Tokens in which a regex finds something; those that are no whole characters are never whole pretokens.
pub fn eligible(pattern: &str, tokens: &Tokens) -> Result<Vec<bool>, String> {
    patterns::found_in(pattern, (0..tokens.len() as u32).map(|id| tokens.get(id)))
        .map_err(|error| format!("eligible: {error}"))
}
