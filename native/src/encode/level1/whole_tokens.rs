//! Tokens that replace a whole piece of the scanner although merges do not produce them (`ignore_merges`).

use super::token_index::TokenIndex;
use crate::count::keys::{short_key, SHORT};
use crate::vocabulary::Tokens;

/// Tokens by the bytes of a whole piece.
pub(in crate::encode) struct WholeTokens {
    /// Tokens of up to 15 bytes: whole pieces that are not split are looked up here.
    pub(super) short: TokenIndex,
    ids: hashbrown::HashMap<Box<[u8]>, u32, rustc_hash::FxBuildHasher>,
    /// By a hash of the first two bytes: a bit per token length, with one bit for 63 and above. There are few tokens,
    /// so this rejects nearly every piece.
    lengths: Vec<u64>,
}

impl WholeTokens {
    pub(super) fn new(tokens: &Tokens, ids: &[u32]) -> Self {
        let mut this =
            Self { short: TokenIndex::new(tokens.len()), ids: Default::default(), lengths: vec![0; 1 << 12] };
        for &id in ids {
            let bytes = tokens.get(id);
            if (1..=SHORT).contains(&bytes.len()) {
                this.short.insert(short_key(bytes, 0, bytes.len()), id);
            }
            this.lengths[Self::slot(bytes)] |= 1 << bytes.len().min(63);
            this.ids.insert(bytes.into(), id);
        }
        this
    }

    #[inline(always)]
    fn slot(bytes: &[u8]) -> usize {
        ((bytes[0] as usize) << 4 ^ bytes[1] as usize) & 0xFFF
    }

    #[inline(always)]
    pub(super) fn get(&self, piece: &[u8]) -> Option<u32> {
        if piece.len() < 2 || self.lengths[Self::slot(piece)] >> piece.len().min(63) & 1 == 0 {
            return None;
        }
        self.ids.get(piece).copied()
    }
}
