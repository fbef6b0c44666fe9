//! Options of the merge loop.

use rustc_hash::FxBuildHasher;

use super::forbidden::Forbidden;

/// Tie-break between pairs of equal count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// The smaller (left id, right id).
    LowestIds,
    /// The greater or smaller (left bytes, right bytes).
    LexicographicGreatest,
    LexicographicSmallest,
}

impl Tie {
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "lowest-ids" => Ok(Self::LowestIds),
            "lexicographic-greatest" => Ok(Self::LexicographicGreatest),
            "lexicographic-smallest" => Ok(Self::LexicographicSmallest),
            _ => Err(format!(
                "tie_break is {name:?}; it is one of: lowest-ids, lexicographic-greatest, lexicographic-smallest"
            )),
        }
    }
}

/// Rejects new tokens.
#[derive(Clone, Debug, Default)]
pub struct Veto {
    pub max_bytes: Option<usize>,
    /// Maximum number of non-empty parts between spaces (0x20).
    pub max_words: Option<usize>,
    /// Regexes that must not match in a new token.
    pub forbid: Option<Forbidden>,
    /// Byte strings that no new token may equal (special tokens).
    pub reserved: Vec<Vec<u8>>,
}

impl Veto {
    pub(super) fn is_too_long(&self, token: &[u8]) -> bool {
        self.max_bytes.is_some_and(|most| token.len() > most)
    }

    pub fn rejects(&self, token: &[u8]) -> bool {
        let words = || token.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).count();
        self.is_too_long(token)
            || self.max_words.is_some_and(|most| words() > most)
            || self.forbid.as_ref().is_some_and(|forbid| forbid.matches(token))
            || self.reserved.iter().any(|string| string == token)
    }
}

/// Options that only phase 2 uses.
#[derive(Default)]
pub struct Phase2Options<'a> {
    /// Maximum number of initial tokens in a new token.
    pub max_tokens: Option<u32>,
    /// By id: number of initial tokens in each token, if the table has more than the initial ones.
    pub widths: Vec<u32>,
    /// In a row of equal tokens, count non-overlapping pairs instead of adjacent ones: (a, a, a) has one.
    pub non_overlapping: bool,
    /// Pairs that are rejected for good.
    pub rejected_pairs: RejectedPairs,
    /// Called with the bytes of both parts and the count for every pair that nothing else rejects. Returns whether to
    /// reject it; None stops the loop.
    pub judge: Option<Judge<'a>>,
}

pub type RejectedPairs = hashbrown::HashSet<u64, FxBuildHasher>;

pub type Judge<'a> = &'a mut dyn FnMut(&[u8], &[u8], u64) -> Option<bool>;
