//! The definition of an encoding.

use crate::pretokenize::scanner::{self, Scanner};
use crate::vocabulary::{MergeRule, Tokens};

/// The definition of an encoding: one-pass, or two-pass with a `second_pass_fence`.
pub struct Definition {
    /// Bytes of every token by id, special tokens included. At most `MOST_IDS`.
    pub tokens: Tokens,
    pub byte_ids: [u32; 256],
    pub merges: Vec<MergeRule>,
    /// Number of phase-1 merges; the rest belong to phase 2.
    pub phase1: usize,
    /// Splits the text first: by the fence of a one-pass tokenizer with superwords, otherwise by the phase-1 pattern.
    pub scanner: Scanner,
    /// Two-pass only: phase-2 merges do not cross the ends of its pieces. Python's `Definition.fence` is also set for
    /// one-pass tokenizers with superwords; here it is their `scanner`.
    pub second_pass_fence: Option<Scanner>,
    /// Two-pass only: by id, whether phase 2 may merge the token if it is a whole pretoken; it then merges no parts of
    /// pretokens. None: phase 2 merges any token.
    pub eligible: Option<Vec<bool>>,
}

/// By id, whether the regex matches in the token. False for tokens that are not valid UTF-8: those are never whole
/// pretokens.
pub fn eligible(pattern: &str, tokens: &Tokens) -> Result<Vec<bool>, String> {
    scanner::found_in(pattern, (0..tokens.len() as u32).map(|id| tokens.get(id)))
        .map_err(|error| format!("eligible: {error}"))
}
