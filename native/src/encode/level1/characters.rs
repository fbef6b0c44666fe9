//! Merging from characters instead of bytes, where that gives the same tokens: a third of the steps in most scripts.
//!
//! While the bytes of a character are not merged, one of the merges that form its token is possible. So if every other
//! merge that joins a part of the character has a higher rank, the token is formed whatever is around it. If, in
//! addition, no merge that joins the token has a lower rank than those that form it, then a sequence in which the token
//! is formed already merges to the same result.

use super::seams::character_length;
use crate::encode::pairs::byte_pair;
use crate::encode::{definition::Definition, rules::Rule};
use crate::runtime::memory::huge_filled;
use crate::text::utf8::{decode, is_start};

const NEVER: u32 = u32::MAX;

/// Tokens of characters of two or three bytes.
#[derive(Default)]
pub(in crate::encode) struct Characters {
    /// By code point: the token, and the highest rank of the merges that form it (`NEVER` without a token).
    tokens: Vec<(u32, u32)>,
    /// By the last byte of a character and the first byte of the next: lowest rank of the merges that join a part of
    /// either. Empty if there are no tokens.
    crossing: Vec<u32>,
}

impl Characters {
    /// `known`: tokens that merging their own bytes produces.
    pub(in crate::encode) fn new(definition: &Definition, rules: &[Rule], known: &[(u128, u32)]) -> Self {
        let code_point = |bytes: &[u8]| {
            let length = character_length(*bytes.first()?);
            let whole = (2..=3).contains(&length) && bytes.len() == length && std::str::from_utf8(bytes).is_ok();
            whole.then(|| decode(bytes, 0).0 as usize)
        };
        let mut tokens = huge_filled(1 << 16, (0, NEVER));
        let mut rank_of = vec![0; definition.tokens.len()]; // the highest one of a token
        rules.iter().for_each(|rule| rank_of[rule.merge.new as usize] = rule.rank);
        let (mut is_known, mut any) = (vec![false; definition.tokens.len()], false);
        known.iter().for_each(|&(_, id)| is_known[id as usize] = true);
        for Rule { merge, .. } in rules {
            let bytes = definition.tokens.get(merge.new);
            if let Some(at) = code_point(bytes) {
                if is_known[merge.new as usize] {
                    // A part has at most two bytes, so its own parts are bytes.
                    let [new, left, right] = [merge.new, merge.left, merge.right].map(|id| rank_of[id as usize]);
                    let earlier = if tokens[at].1 == NEVER { 0 } else { tokens[at].1 }; // of another derivation
                    (tokens[at], any) = ((merge.new, new.max(left).max(right).max(earlier)), true);
                }
            }
        }
        if !any {
            return Self::default();
        }
        let mut crossing = vec![NEVER; 1 << 16];
        for &Rule { rank, merge } in rules {
            let (left, right) = (definition.tokens.get(merge.left), definition.tokens.get(merge.right));
            for part in [left, right] {
                if let Some(at) = code_point(part).filter(|&at| tokens[at].1 != NEVER && tokens[at].1 > rank) {
                    tokens[at].1 = NEVER;
                }
            }
            let (Some(&last), Some(&first)) = (left.last(), right.first()) else { continue };
            let parts = !left.iter().any(|&byte| is_start(byte)) || right.len() < character_length(first);
            if parts {
                let lowest = &mut crossing[byte_pair(last, first)];
                *lowest = rank.min(*lowest);
            }
        }
        Self { tokens, crossing }
    }

    /// Calls `put` with the tokens to merge: of characters where that is exact, otherwise of bytes.
    #[inline(always)]
    pub(in crate::encode) fn each(&self, piece: &[u8], bytes: &[u32; 256], mut put: impl FnMut(u32)) {
        let (mut at, mut before) = (0, NEVER);
        while at < piece.len() {
            let (code_point, length) = decode(piece, at);
            let end = at + length;
            let after = if end == piece.len() { NEVER } else { self.lowest(piece[end - 1], piece[end]) };
            // Not four bytes, which have no entry, and no overlong form of a character.
            let whole = length == 2 + (code_point >= 0x800) as usize;
            match self.tokens.get(code_point as usize) {
                Some(&(token, formed)) if whole && formed < before && formed < after => put(token),
                _ => piece[at..end].iter().for_each(|&byte| put(bytes[byte as usize])),
            }
            (at, before) = (end, after);
        }
    }

    /// Lowest rank of the merges that join parts of two characters.
    #[inline(always)]
    fn lowest(&self, last: u8, first: u8) -> u32 {
        self.crossing.get(byte_pair(last, first)).copied().unwrap_or(NEVER)
    }
}
