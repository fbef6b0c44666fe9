//! Tokens and merges of a tokenizer.

/// Ids are below this.
pub const MOST_IDS: usize = 1 << 24;

/// Maximum number of merges; a token can have several.
pub const MOST_MERGES: usize = 1 << 25;

/// A merge by ids. Its index in the list is its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeRule {
    pub left: u32,
    pub right: u32,
    pub new: u32,
}

/// Bytes of tokens by id.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl Tokens {
    pub fn push(&mut self, bytes: &[u8]) -> u32 {
        self.data.extend_from_slice(bytes);
        self.ends.push(self.data.len());
        (self.ends.len() - 1) as u32
    }

    pub fn get(&self, id: u32) -> &[u8] {
        let start = if id == 0 { 0 } else { self.ends[id as usize - 1] };
        &self.data[start..self.ends[id as usize]]
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}
