//! What one thread remembers: pieces of text and their tokens.

use crate::count::keys::hash_key;
use crate::encode::packed::{COUNT, COUNT_SHIFT};
use crate::runtime::memory::{on_huge_pages, prefetch};

/// Most tokens of a piece that has an entry.
pub(in crate::encode) const TOKENS: usize = 4;

/// Longer pieces are merged each time they come.
const LONG_BYTES: usize = 1 << 12;

/// Bytes of long pieces and of their tokens that are kept.
const LONG_MEMORY: usize = 1 << 23;

/// The key of an entry that is not in use.
const NO_KEY: u128 = u128::MAX;

#[derive(Clone, Copy)]
struct Entry {
    key: u128,
    words: [u32; TOKENS],
}

/// Two entries, the one used last in front: one line of the processor's cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(in crate::encode) struct Pair([Entry; 2]);

/// Pieces of up to 15 bytes by their keys (`keys::short_key`).
pub(in crate::encode) struct Short {
    pairs: Vec<Pair>,
}

impl Short {
    /// A cache of 64 bytes times `n`, a power of two.
    pub(in crate::encode) fn new(n: usize) -> Self {
        Self { pairs: on_huge_pages(n, Pair([Entry { key: NO_KEY, words: [0; TOKENS] }; 2])) }
    }

    #[inline(always)]
    pub(in crate::encode) fn pairs(&mut self) -> &mut [Pair] {
        &mut self.pairs
    }

    /// Where the key's entries are; asks for them.
    #[inline(always)]
    pub(in crate::encode) fn place(pairs: &[Pair], key: u128) -> u32 {
        let place = hash_key(key) as usize & (pairs.len() - 1);
        prefetch(pairs, place);
        place as u32
    }

    /// The words, their number less one in the first (`COUNT`).
    #[inline(always)]
    pub(in crate::encode) fn get(pairs: &mut [Pair], place: u32, key: u128) -> Option<&[u32; TOKENS]> {
        let pair = &mut pairs[place as usize].0;
        if pair[0].key != key {
            if pair[1].key != key {
                return None;
            }
            pair.swap(0, 1);
        }
        Some(&pair[0].words)
    }

    /// In place of the entry that was used longer ago, to be the first to go until it is used again: half of all pieces
    /// never come again, and one of them does not drive out another that does.
    pub(in crate::encode) fn insert(&mut self, place: u32, key: u128, words: &[u32]) {
        let mut entry = Entry { key, words: [0; TOKENS] };
        entry.words[..words.len()].copy_from_slice(words);
        entry.words[0] = entry.words[0] & !COUNT | (words.len() as u32 - 1) << COUNT_SHIFT;
        let pair = &mut self.pairs[place as usize].0;
        let way = (pair[0].key != key && pair[0].key != NO_KEY) as usize;
        pair[way] = entry;
    }
}

/// Longer pieces, by their bytes.
#[derive(Default)]
pub(in crate::encode) struct LongPieces {
    table: hashbrown::HashMap<Box<[u8]>, Box<[u32]>, rustc_hash::FxBuildHasher>,
    memory: usize,
}

impl LongPieces {
    pub(in crate::encode) fn get(&self, piece: &[u8]) -> Option<&[u32]> {
        self.table.get(piece).map(|words| &**words)
    }

    pub(in crate::encode) fn insert(&mut self, piece: &[u8], words: &[u32]) {
        if piece.len() > LONG_BYTES {
            return;
        }
        self.memory += piece.len() + 4 * words.len() + 64;
        if self.memory > LONG_MEMORY {
            *self = Self::default();
        }
        self.table.insert(piece.into(), words.into());
    }
}
