//! What one thread remembers: pieces of text and their tokens.

use crate::count::keys::hash_key;
use crate::encode::packed::{COUNT, COUNT_SHIFT};
use crate::runtime::memory::{huge_filled, prefetch};

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
    packed: [u32; TOKENS],
}

/// Two entries, the one used last in front: one line of the processor's cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(in crate::encode) struct Set([Entry; 2]);

/// Pieces of up to 15 bytes by their keys (`keys::short_key`).
pub(in crate::encode) struct ShortPieces {
    sets: Vec<Set>,
}

impl ShortPieces {
    /// A cache of 64 bytes times `n`, a power of two.
    pub(in crate::encode) fn new(n: usize) -> Self {
        Self { sets: huge_filled(n, Set([Entry { key: NO_KEY, packed: [0; TOKENS] }; 2])) }
    }

    #[inline(always)]
    pub(in crate::encode) fn sets(&mut self) -> &mut [Set] {
        &mut self.sets
    }

    /// Where the key's entries are; asks for them.
    #[inline(always)]
    pub(in crate::encode) fn place(sets: &[Set], key: u128) -> u32 {
        let place = hash_key(key) as usize & (sets.len() - 1);
        prefetch(sets, place);
        place as u32
    }

    /// The packed, their number less one in the first (`COUNT`).
    #[inline(always)]
    pub(in crate::encode) fn get(sets: &mut [Set], place: u32, key: u128) -> Option<&[u32; TOKENS]> {
        let set = &mut sets[place as usize].0;
        if set[0].key != key {
            if set[1].key != key {
                return None;
            }
            set.swap(0, 1);
        }
        Some(&set[0].packed)
    }

    /// In place of the entry that was used longer ago, to be the first to go until it is used again: half of all pieces
    /// never come again, and one of them does not drive out another that does.
    pub(in crate::encode) fn insert(&mut self, place: u32, key: u128, packed: &[u32]) {
        let mut entry = Entry { key, packed: [0; TOKENS] };
        entry.packed[..packed.len()].copy_from_slice(packed);
        entry.packed[0] = entry.packed[0] & !COUNT | (packed.len() as u32 - 1) << COUNT_SHIFT;
        let set = &mut self.sets[place as usize].0;
        let way = (set[0].key != key && set[0].key != NO_KEY) as usize;
        set[way] = entry;
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
        self.table.get(piece).map(|packed| &**packed)
    }

    pub(in crate::encode) fn insert(&mut self, piece: &[u8], packed: &[u32]) {
        if piece.len() > LONG_BYTES {
            return;
        }
        self.memory += piece.len() + 4 * packed.len() + 64;
        if self.memory > LONG_MEMORY {
            *self = Self::default();
        }
        self.table.insert(piece.into(), packed.into());
    }
}
