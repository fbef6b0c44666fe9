//! The merges of level 1, and tables derived from them.

use rustc_hash::FxHashMap;

use super::{characters::Characters, lanes::Lanes, seams::Seams};
use crate::count::keys::{short_key, SHORT};
use crate::encode::pairs::{byte_pair, pair_merge, FixedPairs, PairMerge, Pairs, NO_MERGE};
use crate::encode::{definition::Definition, rules::Rule};
use crate::text::masks::high_bits;

/// See `Level1::dead`. It is the high bit, so that one instruction turns bytes into a bit mask.
const DEAD: u8 = 1 << 7;

/// Tokens whose own bytes are merged together to see what they become.
const CHECKED: usize = 256;

/// The merges of level 1, and tables derived from them.
pub(in crate::encode) struct Level1 {
    pub(super) pairs: FixedPairs,
    /// Merges of two bytes, indexed by the bytes.
    pub(super) bytes: Vec<PairMerge>,
    pub(super) byte_ids: [u32; 256],
    /// Indexed by two bytes: `DEAD` if no merge joins a token that ends in the first to a token that begins with the
    /// second.
    pub(super) dead: Box<[u8; 1 << 16]>,
    pub(in crate::encode) seams: Seams,
    pub(in crate::encode) characters: Characters,
    /// Whether to cut all but tiny pieces of the scanner at dead byte pairs: a fence leaves long ones.
    pub(in crate::encode) cut_all: bool,
    /// Tokens that replace a whole piece of the scanner although merges do not produce them (`ignore_merges`).
    pub(super) whole_tokens: FxHashMap<Box<[u8]>, u32>,
    /// Tokens that merging their own bytes produces, by key: what a cache holds from the start.
    pub(super) known: Vec<(u128, u32)>,
    /// Packed tokens by id. Empty if they equal the ids.
    pub(super) packed: Vec<u32>,
}

impl Level1 {
    pub(in crate::encode) fn new(definition: &Definition, rules: &[Rule], cut_all: bool, packed: Vec<u32>) -> Self {
        let Definition { tokens, byte_ids, .. } = definition;
        let mut pairs = Pairs::default();
        let mut dead: Box<[u8; 1 << 16]> = vec![DEAD; 1 << 16].try_into().expect("a length");
        for Rule { rank, merge } in rules {
            pairs.insert((merge.left, merge.right), pair_merge(*rank, merge.new));
            if let (Some(&last), Some(&first)) = (tokens.get(merge.left).last(), tokens.get(merge.right).first()) {
                dead[byte_pair(last, first)] = 0;
            }
        }
        let bytes = (0..=u16::MAX).map(|two| {
            let [left, right] = two.to_le_bytes().map(usize::from);
            pairs.get(&(byte_ids[left], byte_ids[right])).copied().unwrap_or(NO_MERGE)
        });
        let mut level = Self {
            bytes: bytes.collect(),
            pairs: FixedPairs::new(&pairs),
            byte_ids: *byte_ids,
            dead,
            seams: Seams::new(definition, rules),
            characters: Characters::default(),
            cut_all,
            whole_tokens: FxHashMap::default(),
            known: Vec::new(),
            packed,
        };
        level.known = level.known_tokens(definition, rules);
        level.characters = Characters::new(definition, rules, &level.known);
        level
    }

    /// The tokens of up to 15 bytes that merging their own bytes produces.
    fn known_tokens(&self, definition: &Definition, rules: &[Rule]) -> Vec<(u128, u32)> {
        let (mut known, mut lanes) = (Vec::new(), Lanes::default());
        let short = |rule: &&Rule| definition.tokens.get(rule.merge.new).len() <= SHORT;
        let rules: Vec<&Rule> = rules.iter().filter(short).collect();
        for rules in rules.chunks(CHECKED) {
            lanes.clear();
            rules.iter().for_each(|rule| self.add_to(&mut lanes, definition.tokens.get(rule.merge.new)));
            lanes.merge_all(&self.pairs);
            for (i, Rule { merge, .. }) in rules.iter().enumerate() {
                if lanes.get(i) == [merge.new] {
                    let bytes = definition.tokens.get(merge.new);
                    known.push((short_key(bytes, 0, bytes.len()), merge.new));
                }
            }
        }
        known
    }

    /// Adds the bytes of a piece, at most `lanes::MOST_TOKENS`.
    #[inline(always)]
    pub(super) fn add_to(&self, lanes: &mut Lanes, bytes: &[u8]) {
        let pairs = bytes.windows(2).map(|two| self.bytes[byte_pair(two[0], two[1])]);
        lanes.add(bytes.iter().map(|&byte| self.byte_ids[byte as usize]), pairs.map(|pair| (pair != NO_MERGE, pair)));
    }

    /// Makes these tokens replace whole pieces of the scanner.
    pub(in crate::encode) fn set_whole_tokens(&mut self, definition: &Definition, ids: &[u32]) {
        self.whole_tokens = ids.iter().map(|&id| (definition.tokens.get(id).into(), id)).collect();
    }

    /// The packed token of an id.
    #[inline(always)]
    pub(in crate::encode) fn pack(&self, id: u32) -> u32 {
        self.packed.get(id as usize).copied().unwrap_or(id)
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
}
