//! What one thread remembers: pieces of text and their tokens.

use super::lanes::Lanes;
use super::merging::Scratch;
use super::queue::{Missed, Queue, AHEAD};
use super::words::{COUNT, COUNT_SHIFT};
use crate::keys::{hash_key, prefetch};
use crate::memory::on_huge_pages;

/// Most tokens of a piece that has an entry.
pub(super) const TOKENS: usize = 4;

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
pub(super) struct Pair([Entry; 2]);

/// Pieces of up to 15 bytes by their keys (`keys::short_key`).
pub(super) struct Short {
    pairs: Vec<Pair>,
}

impl Short {
    /// A cache of 64 bytes times `n`, a power of two.
    fn new(n: usize) -> Self {
        Self { pairs: on_huge_pages(n, Pair([Entry { key: NO_KEY, words: [0; TOKENS] }; 2])) }
    }

    #[inline(always)]
    pub(super) fn pairs(&mut self) -> &mut [Pair] {
        &mut self.pairs
    }

    /// Where the key's entries are; asks for them.
    #[inline(always)]
    pub(super) fn place(pairs: &[Pair], key: u128) -> u32 {
        let place = hash_key(key) as usize & (pairs.len() - 1);
        prefetch(pairs, place);
        place as u32
    }

    /// The words, their number less one in the first (`COUNT`).
    #[inline(always)]
    pub(super) fn get(pairs: &mut [Pair], place: u32, key: u128) -> Option<&[u32; TOKENS]> {
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
    pub(super) fn insert(&mut self, place: u32, key: u128, words: &[u32]) {
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
pub(super) struct LongPieces {
    table: hashbrown::HashMap<Box<[u8]>, Box<[u32]>, rustc_hash::FxBuildHasher>,
    memory: usize,
}

impl LongPieces {
    pub(super) fn get(&self, piece: &[u8]) -> Option<&[u32]> {
        self.table.get(piece).map(|words| &**words)
    }

    pub(super) fn insert(&mut self, piece: &[u8], words: &[u32]) {
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

/// What one thread needs: a bounded cache of pieces, and room to work.
pub struct State {
    pub(super) short: Short,
    pub(super) long: LongPieces,
    pub(super) queue: Queue,
    /// What the pieces of the queue become.
    pub(super) room: [u32; AHEAD * TOKENS],
    pub(super) missed: Vec<Missed>,
    pub(super) lanes: Lanes,
    /// Dead byte pairs (see `pieces`) in a block of 64 bytes, and where it starts.
    pub(super) dead: u64,
    pub(super) block: usize,
    /// Of one text, for who makes something else of them.
    pub ids: Vec<u32>,
    pub(super) piece: Vec<u32>,
    pub(super) words: Vec<u32>,
    pub(super) gathered: Vec<u32>,
    pub(super) tokens: Vec<u32>,
    pub(super) ends: Vec<usize>,
    pub(super) boundaries: Vec<usize>,
    pub(super) scratch: Scratch,
}

impl State {
    pub(super) fn new(cache: usize) -> Self {
        Self {
            short: Short::new(cache),
            long: LongPieces::default(),
            queue: Queue::new(),
            room: [0; AHEAD * TOKENS],
            missed: Vec::new(),
            lanes: Lanes::default(),
            dead: 0,
            block: usize::MAX,
            ids: Vec::new(),
            piece: Vec::new(),
            words: Vec::new(),
            gathered: Vec::new(),
            tokens: Vec::new(),
            ends: Vec::new(),
            boundaries: Vec::new(),
            scratch: Scratch::default(),
        }
    }
}
