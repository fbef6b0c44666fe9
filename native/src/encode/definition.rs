//! What defines an encoding.

use crate::pretokenize::scanner::{self, Scanner};
use crate::vocabulary::{MergeRule, Tokens};

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
    scanner::found_in(pattern, (0..tokens.len() as u32).map(|id| tokens.get(id)))
        .map_err(|error| format!("eligible: {error}"))
}
