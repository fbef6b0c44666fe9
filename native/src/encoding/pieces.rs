//! Level 1: text is cut into pieces that are looked up instead of merged.

use super::cache::{Pending, State, AHEAD, TOKENS};
use super::known::{Known, Origins};
use super::merging::{merge_long, merge_short, Scratch, SCAN};
use super::pairs::{found, FixedPairs, Found, PairTable, ABSENT};
use super::rules::Rule;
use super::words::{COUNT, COUNT_SHIFT};
use super::{Bits, Definition};
use crate::keys::{short_key, SHORT};

/// In a key: the piece is a part of one of the scanner's.
const PART: u128 = 1 << 127;

/// The merges of level 1, and what follows from them.
pub(super) struct Level1 {
    pairs: FixedPairs,
    /// Merges of two bytes, by the bytes.
    bytes: Vec<Found>,
    byte_words: [u32; 256],
    /// By two bytes: 1 where no merge joins a token that ends in the first to one that begins with the second.
    dead: Box<[u8; 1 << 16]>,
    /// Cut at dead byte pairs whatever the length: the scanner's pieces are long.
    pub(super) cut_all: bool,
    /// What a whole piece of the scanner becomes although merges do not make it.
    whole: Option<Known>,
    /// What a piece becomes that is one token's bytes, for all threads.
    known: Known,
    /// By id: the word of each token.
    words: Vec<u32>,
}

impl Level1 {
    pub(super) fn new(definition: &Definition, rules: &[Rule], cut_all: bool, words: Vec<u32>) -> Self {
        let Definition { tokens, byte_ids, .. } = definition;
        let mut pairs = PairTable::new(rules.len());
        let mut dead: Box<[u8; 1 << 16]> = vec![1; 1 << 16].try_into().expect("a length");
        for Rule { rank, merge } in rules {
            pairs.insert(merge.left, merge.right, found(*rank, merge.new));
            if let (Some(&last), Some(&first)) = (tokens.get(merge.left).last(), tokens.get(merge.right).first()) {
                dead[byte_pair(last, first)] = 0;
            }
        }
        let bytes = (0..1usize << 16).map(|two| match dead[two] {
            0 => pairs.get(byte_ids[two >> 8], byte_ids[two & 0xFF]),
            _ => ABSENT,
        });
        let bytes = bytes.collect();
        let pairs = FixedPairs::new(&pairs);
        let mut level =
            Self { pairs, bytes, byte_words: *byte_ids, dead, cut_all, whole: None, known: Known::default(), words };
        level.known = level.known_tokens(definition, rules);
        level
    }

    /// Tokens of up to 15 bytes that merging their own bytes gives.
    fn known_tokens(&self, definition: &Definition, rules: &[Rule]) -> Known {
        let tokens = &definition.tokens;
        let origins = Origins::new(definition, rules);
        let mut known = Known::new(tokens.len());
        let (mut ids, mut scratch) = (Vec::new(), Scratch::default());
        let mut makes_itself = |id: u32, bytes: &[u8]| {
            self.merge_bytes(bytes, &mut ids, &mut scratch);
            ids == [id]
        };
        // Whether each token makes itself, parts first: ranks are in that order where there are origins.
        let mut whole = Bits::new(tokens.len());
        definition.byte_ids.iter().for_each(|&id| whole.set(id as usize));
        for Rule { merge, .. } in rules {
            let (id, bytes) = (merge.new, tokens.get(merge.new));
            let found = match &origins {
                None => bytes.len() <= SHORT && makes_itself(id, bytes),
                Some(origins) => {
                    whole.get(merge.left as usize)
                        && whole.get(merge.right as usize)
                        && origins.meet(merge, |left, right| self.pairs.get(left, right))
                }
            };
            if found {
                whole.set(id as usize);
                if bytes.len() <= SHORT {
                    known.insert(short_key(bytes, 0, bytes.len()), id);
                }
            }
        }
        known
    }

    /// Makes pieces of up to 15 bytes that are one of these tokens become it, although merges do not make it.
    /// Not with `cut_all`, where what is looked up are parts of pieces.
    pub(super) fn know(&mut self, definition: &Definition, ids: &[u32]) {
        if self.cut_all {
            return;
        }
        let mut whole = Known::new(definition.tokens.len());
        for &id in ids {
            let bytes = definition.tokens.get(id);
            if (1..=SHORT).contains(&bytes.len()) {
                whole.insert(short_key(bytes, 0, bytes.len()), id);
            }
        }
        self.whole = Some(whole);
    }

    /// Whether the bytes are up to 15 that make one token.
    pub(super) fn knows(&self, bytes: &[u8]) -> bool {
        bytes.len() <= SHORT && self.known.get(short_key(bytes, 0, bytes.len())).is_some()
    }

    /// The word of a token.
    #[inline(always)]
    pub(super) fn word(&self, id: u32) -> u32 {
        self.words[id as usize]
    }

    /// Forgets what is pending from another text.
    #[inline(always)]
    pub(super) fn begin(&self, state: &mut State) {
        state.n_pending = 0;
        state.block = usize::MAX;
    }

    /// Adds the words of a piece of the scanner to `out`, now or with `settle`. `first` is set in the first of them.
    #[inline(always)]
    pub(super) fn cut(
        &self,
        text: &[u8],
        start: usize,
        end: usize,
        mut first: u32,
        state: &mut State,
        out: &mut Vec<u32>,
    ) {
        if !self.cut_all && end - start <= SHORT {
            return self.push(text, start, end, 0, first, state, out);
        }
        // Parts of pieces are others than whole ones.
        let part = if self.whole.is_some() { PART } else { 0 };
        let (mut begin, mut at) = (start, start + 1);
        while at < end {
            let block = at & !63;
            if block != state.block {
                state.block = block;
                state.dead = self.dead_pairs(text, block);
            }
            let stop = end.min(block + 64);
            let mut cuts = state.dead & (u64::MAX << (at - block)) & (u64::MAX >> (block + 64 - stop));
            while cuts != 0 {
                let cut = block + cuts.trailing_zeros() as usize;
                self.push(text, begin, cut, part, first, state, out);
                (begin, first) = (cut, 0);
                cuts &= cuts - 1;
            }
            at = stop;
        }
        self.push(text, begin, end, part, first, state, out);
    }

    /// The words that merging alone makes of a text, which is not empty, also where a whole piece becomes another token.
    pub(super) fn merged(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) {
        self.begin(state);
        self.push(text, 0, text.len(), PART, 0, state, out);
        self.settle(text, state, out);
    }

    /// Bit i: no merge of level 1 joins byte `block` + i to the one before.
    #[inline(always)]
    fn dead_pairs(&self, text: &[u8], block: usize) -> u64 {
        let mut mask = 0;
        let mut add = |i: usize, two: &[u8]| mask |= (self.dead[byte_pair(two[0], two[1])] as u64) << i;
        match text.get(block.wrapping_sub(1)..block + 64) {
            Some(bytes) => {
                let bytes: &[u8; 65] = bytes.try_into().expect("65 bytes");
                (0..64).for_each(|i| add(i, &bytes[i..i + 2]));
            }
            None => {
                let first = block.max(1);
                let bytes = &text[first - 1..text.len().min(block + 64)];
                bytes.windows(2).enumerate().for_each(|(i, two)| add(first - block + i, two));
            }
        }
        mask
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // one call, three places
    fn push(
        &self,
        text: &[u8],
        start: usize,
        end: usize,
        part: u128,
        first: u32,
        state: &mut State,
        out: &mut Vec<u32>,
    ) {
        let (mut key, mut place) = (0, 0);
        if end - start <= SHORT {
            key = short_key(text, start, end) | part;
            place = state.short.place(key);
        }
        state.pending[state.n_pending & (AHEAD - 1)] = Pending { key, start, end, place, first };
        state.n_pending += 1;
        if state.n_pending == AHEAD {
            self.settle(text, state, out);
        }
    }

    /// Adds the words of all pending pieces.
    #[inline(never)]
    pub(super) fn settle(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) {
        let n = state.n_pending;
        let mut at = out.len();
        out.resize(at + n * TOKENS, 0);
        for i in 0..n {
            let Pending { key, start, end, place, first } = state.pending[i & (AHEAD - 1)];
            let mut words = state.short.get(place, key);
            if words.is_none() || key == 0 {
                words = self.missed(text, i, state);
            }
            match words {
                Some(words) => {
                    // All of them, to keep those that count: no branch on their number.
                    out[at..at + TOKENS].copy_from_slice(&words);
                    out[at] = words[0] & !COUNT | first;
                    at += (words[0] >> COUNT_SHIFT & 3) as usize + 1;
                }
                None => {
                    debug_assert!(end - start > TOKENS);
                    out.truncate(at);
                    out.extend_from_slice(&state.piece);
                    out[at] |= first;
                    at = out.len();
                    out.resize(at + (n - i) * TOKENS, 0);
                }
            }
        }
        out.truncate(at);
        state.n_pending = 0;
    }

    /// The words of the i-th pending piece, which has no entry: in an entry if it can have one, or in `state.piece`.
    #[inline(never)]
    fn missed(&self, text: &[u8], i: usize, state: &mut State) -> Option<[u32; TOKENS]> {
        let Pending { key, start, end, place, .. } = state.pending[i & (AHEAD - 1)];
        let bytes = &text[start..end];
        let State { short, long, piece, scratch, .. } = state;
        if key == 0 {
            if let Some(words) = long.get(bytes) {
                piece.clear();
                piece.extend_from_slice(words);
                return None;
            }
        } else if let Some(id) = self.whole.as_ref().and_then(|whole| whole.get(key)) {
            return Some(short.insert(place, key, &[self.words[id as usize]]));
        } else if let Some(id) = self.known.get(key & !PART) {
            return Some(short.insert(place, key, &[self.words[id as usize]]));
        }
        self.merge_bytes(bytes, piece, scratch);
        piece.iter_mut().for_each(|id| *id = self.words[*id as usize]);
        if key == 0 {
            long.insert(bytes, piece);
            return None;
        }
        (piece.len() <= TOKENS).then(|| short.insert(place, key, piece))
    }

    /// Ids of a piece of text.
    fn merge_bytes(&self, bytes: &[u8], ids: &mut Vec<u32>, scratch: &mut Scratch) {
        ids.clear();
        ids.extend(bytes.iter().map(|&byte| self.byte_words[byte as usize]));
        let pair = |left: u32, right: u32| self.pairs.get(left, right);
        if ids.len() > SCAN {
            return merge_long(ids, pair, scratch);
        }
        let mut found = [ABSENT; SCAN];
        for (found, two) in found.iter_mut().zip(bytes.windows(2)) {
            *found = self.bytes[byte_pair(two[0], two[1])];
        }
        let n = merge_short(ids, &mut found[..bytes.len() - 1], pair);
        ids.truncate(n);
    }
}

#[inline(always)]
fn byte_pair(left: u8, right: u8) -> usize {
    (left as usize) << 8 | right as usize
}
