//! The merges of level 1, and tables derived from them.

use super::characters::Characters;
use super::seams::Seams;
use super::token_index::{Origins, TokenIndex};
use super::whole_tokens::WholeTokens;
use crate::count::keys::{short_key, SHORT};
use crate::encode::merge::{merge, Scratch};
use crate::encode::pairs::{byte_pair, pair_merge, FixedPairs, PairMerge, PairTable, NO_MERGE};
use crate::encode::{bits::Bits, definition::Definition, rules::Rule};
use crate::runtime::memory;
use crate::text::masks::high_bits;

/// See `Level1::dead`. It is the high bit, so that one instruction turns bytes into a bit mask.
const DEAD: u8 = 1 << 7;

/// The merges of level 1, and tables derived from them.
pub(in crate::encode) struct Level1 {
    pub(super) pairs: FixedPairs,
    /// Merges of two bytes, indexed by the bytes.
    pub(super) bytes: Vec<PairMerge>,
    pub(super) packed_bytes: [u32; 256],
    /// Indexed by two bytes: `DEAD` if no merge joins a token that ends in the first to a token that begins with the
    /// second.
    dead: Box<[u8; 1 << 16]>,
    pub(in crate::encode) seams: Seams,
    pub(in crate::encode) characters: Characters,
    /// Cut at dead byte pairs in pieces of any length: the scanner's pieces are long.
    pub(super) cut_all: bool,
    /// Tokens that replace a whole piece of the scanner although merges do not produce them.
    pub(in crate::encode) whole_tokens: Option<WholeTokens>,
    /// Tokens by their bytes, shared by all threads.
    pub(super) token_index: TokenIndex,
    /// Packed tokens by id. Empty if they equal the ids.
    pub(super) packed: Vec<u32>,
}

impl Level1 {
    pub(in crate::encode) fn new(definition: &Definition, rules: &[Rule], cut_all: bool, packed: Vec<u32>) -> Self {
        let Definition { tokens, byte_ids, .. } = definition;
        let mut pairs = PairTable::new(rules.len());
        let mut dead: Box<[u8; 1 << 16]> = vec![DEAD; 1 << 16].try_into().expect("a length");
        for Rule { rank, merge } in rules {
            pairs.insert(merge.left, merge.right, pair_merge(*rank, merge.new));
            if let (Some(&last), Some(&first)) = (tokens.get(merge.left).last(), tokens.get(merge.right).first()) {
                dead[byte_pair(last, first)] = 0;
            }
        }
        let bytes = (0..=u16::MAX).map(|two| {
            let [left, right] = two.to_le_bytes().map(usize::from);
            match dead[two as usize] {
                DEAD => NO_MERGE,
                _ => pairs.get(byte_ids[left], byte_ids[right]),
            }
        });
        let bytes = bytes.collect();
        let pairs = FixedPairs::new(&pairs);
        let mut level = Self {
            pairs,
            bytes,
            packed_bytes: *byte_ids,
            dead,
            seams: Seams::new(definition, rules),
            characters: Characters::default(),
            cut_all,
            whole_tokens: None,
            token_index: TokenIndex::default(),
            packed,
        };
        level.token_index = level.index_tokens(definition, rules);
        level.characters = Characters::new(definition, rules, &level.token_index);
        level
    }

    /// Indexes tokens of up to 15 bytes that merging their own bytes produces.
    fn index_tokens(&self, definition: &Definition, rules: &[Rule]) -> TokenIndex {
        let tokens = &definition.tokens;
        let origins = Origins::new(definition, rules);
        let mut token_index = TokenIndex::new(tokens.len());
        let (mut ids, mut scratch) = (Vec::new(), Scratch::default());
        let mut makes_itself = |id: u32, bytes: &[u8]| {
            self.merge_bytes(bytes, &mut ids, &mut scratch);
            ids == [id]
        };
        // Whether each token is produced by its own bytes, parts first: ranks are in that order if there are origins.
        let mut produced = Bits::new(tokens.len());
        definition.byte_ids.iter().for_each(|&id| produced.set(id as usize));
        for Rule { merge, .. } in rules {
            let (id, bytes) = (merge.new, tokens.get(merge.new));
            let found = match &origins {
                None => bytes.len() <= SHORT && makes_itself(id, bytes),
                Some(origins) => {
                    produced.get(merge.left as usize)
                        && produced.get(merge.right as usize)
                        && origins.meet(merge, |left, right| self.pairs.get(left, right))
                }
            };
            if found {
                produced.set(id as usize);
                if bytes.len() <= SHORT {
                    token_index.insert(short_key(bytes, 0, bytes.len()), id);
                }
            }
        }
        token_index
    }

    /// Makes these tokens replace whole pieces of the scanner, although merges do not produce them.
    pub(in crate::encode) fn set_whole_tokens(&mut self, definition: &Definition, ids: &[u32]) {
        self.whole_tokens = Some(WholeTokens::new(&definition.tokens, ids));
    }

    /// The whole tokens that are looked up like other short pieces.
    #[inline(always)]
    pub(super) fn short_whole_tokens(&self) -> Option<&TokenIndex> {
        self.whole_tokens.as_ref().map(|tokens| &tokens.short)
    }

    /// Whether merging the bytes, at most 15, produces one token.
    pub(in crate::encode) fn is_token(&self, bytes: &[u8]) -> bool {
        bytes.len() <= SHORT && self.token_index.get(short_key(bytes, 0, bytes.len())).is_some()
    }

    /// The packed token of an id.
    #[inline(always)]
    pub(in crate::encode) fn pack(&self, id: u32) -> u32 {
        self.packed[id as usize]
    }

    /// Bit i is set if no merge of level 1 joins byte `block` + i to the byte before it.
    #[inline(always)]
    pub(super) fn dead_pairs(&self, text: &[u8], block: usize) -> u64 {
        let mut found = [0; 64];
        match text.get(block.wrapping_sub(1)..block + 64) {
            Some(bytes) => {
                let bytes: &[u8; 65] = bytes.try_into().expect("65 bytes");
                // Two bytes are loaded at once.
                let pair = |i: usize| u16::from_le_bytes(*bytes[i..].first_chunk().expect("2 bytes"));
                (0..64).for_each(|i| found[i] = self.dead[pair(i) as usize]);
            }
            None => {
                let first = block.max(1);
                let bytes = &text[first - 1..text.len().min(block + 64)];
                let found = &mut found[first - block..];
                found.iter_mut().zip(bytes.windows(2)).for_each(|(to, two)| *to = self.dead[byte_pair(two[0], two[1])]);
            }
        }
        high_bits(&found)
    }

    /// Merges the bytes of a piece into `ids`.
    fn merge_bytes(&self, bytes: &[u8], ids: &mut Vec<u32>, scratch: &mut Scratch) {
        ids.clear();
        memory::reserve(ids, bytes.len());
        self.characters.each(bytes, &self.packed_bytes, |id| ids.push(id));
        merge(ids, |left, right| self.pairs.get(left, right), scratch);
    }
}
