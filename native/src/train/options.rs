//! What the merge loop is configured with.

use rustc_hash::FxBuildHasher;
/// Which of the most frequent pairs is merged first.
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

/// What a new token may not be.
#[derive(Clone, Debug, Default)]
pub struct Veto {
    pub max_bytes: Option<usize>,
    /// Non-empty parts between spaces (0x20).
    pub max_words: Option<usize>,
    /// Byte strings that no new token may contain.
    pub forbid: Vec<Vec<u8>>,
    /// Byte strings that no new token may be (special tokens).
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
            || self.forbid.iter().any(|part| memchr::memmem::find(token, part).is_some())
            || self.reserved.iter().any(|string| string == token)
    }
}

/// What only phase 2 asks of a merge loop.
#[derive(Default)]
pub struct Phase2Options<'a> {
    /// Most tokens of the start in a new token.
    pub max_tokens: Option<u32>,
    /// How many tokens of the start each token consists of, where the table holds more than those: by id.
    pub widths: Vec<u32>,
    /// In a row of one token, count the pairs that can be merged at once, not all adjacent ones: (a, a, a) is one.
    pub non_overlapping: bool,
    /// Pairs that were rejected_pairs before, for good.
    pub rejected_pairs: RejectedPairs,
    /// Asked about every pair that nothing else refuses, with its parts' bytes and its count: whether to refuse it.
    /// None stops the loop.
    pub judge: Option<Judge<'a>>,
}

pub type RejectedPairs = hashbrown::HashSet<u64, FxBuildHasher>;

pub type Judge<'a> = &'a mut dyn FnMut(&[u8], &[u8], u64) -> Option<bool>;
