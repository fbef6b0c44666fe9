//! The caches of a thread: pieces of text and their tokens.

use super::tables::Level1;
use super::token_index::TokenIndex;
use crate::count::keys::{hash_key, short_key};
use crate::encode::packed::{COUNT, COUNT_SHIFT};
use crate::runtime::interrupt::poll;
use crate::runtime::memory::{self, huge_filled, prefetch};

/// Caches by the length of a piece.
pub(super) struct Caches {
    pub(super) short: ShortPieces,
    pub(super) medium: MediumPieces,
    pub(super) long: LongPieces,
    pub(super) lists: Lists,
}

impl Caches {
    /// Caches with the short pieces that become one token: a third to a half of the new pieces of a text.
    pub(super) fn new(level: &Level1, sets: usize) -> Self {
        let (mut short, mut lists) = (ShortPieces::new(sets), Lists::default());
        for (key, id) in
            level.token_index.iter().chain(level.short_whole_tokens().into_iter().flat_map(TokenIndex::iter))
        {
            poll(1);
            let place = ShortPieces::place(short.sets(), key);
            short.insert(place, key, &[level.packed.get(id as usize).copied().unwrap_or(id)], &mut lists);
        }
        Self { short, medium: MediumPieces::new(), long: LongPieces::default(), lists }
    }
}

/// Maximum number of tokens in an entry of a short piece. More are in a list.
pub(super) const TOKENS: usize = 4;

/// In the key of an entry of a short piece: it refers to a list.
const IN_LIST: u128 = 1 << 126;

/// Longer pieces are not cached.
const LONG_BYTES: usize = 1 << 12;

/// Maximum size of the cache of long pieces, in bytes.
const LONG_MEMORY: usize = 1 << 23;

/// Key of an empty entry.
const NO_KEY: u128 = u128::MAX;

#[derive(Clone, Copy)]
struct Entry {
    key: u128,
    packed: [u32; TOKENS],
}

/// A cache set of two entries, the most recently used first: one cache line of the processor.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Set([Entry; 2]);

/// Cache of pieces of up to 15 bytes, by key (`keys::short_key`): two-way set-associative.
pub(super) struct ShortPieces {
    sets: Vec<Set>,
}

impl ShortPieces {
    /// A cache of `n` sets (a power of two) of 64 bytes each.
    pub(super) fn new(n: usize) -> Self {
        Self { sets: huge_filled(n, Set([Entry { key: NO_KEY, packed: [0; TOKENS] }; 2])) }
    }

    #[inline(always)]
    pub(super) fn sets(&mut self) -> &mut [Set] {
        &mut self.sets
    }

    /// The set of a key; prefetches it.
    #[inline(always)]
    pub(super) fn place(sets: &[Set], key: u128) -> u32 {
        let place = hash_key(key) as usize & (sets.len() - 1);
        prefetch(sets, place);
        place as u32
    }

    /// The packed tokens of a key. The first holds their number minus one (`COUNT`).
    #[inline(always)]
    pub(super) fn get(sets: &mut [Set], place: u32, key: u128) -> Option<&[u32; TOKENS]> {
        let set = &mut sets[place as usize].0;
        if set[0].key != key {
            if set[1].key != key {
                return None;
            }
            set.swap(0, 1);
        }
        Some(&set[0].packed)
    }

    /// The tokens of a piece that has more than `TOKENS`. Such pieces are common only in scripts that the tokenizer hardly
    /// knows.
    #[inline(never)]
    pub(super) fn get_list<'l>(sets: &mut [Set], place: u32, key: u128, lists: &'l Lists) -> Option<&'l [u32]> {
        let [place @ .., length, _] = *Self::get(sets, place, key | IN_LIST)?;
        lists.get(place, length as usize)
    }

    /// Evicts the LRU entry and inserts at the LRU position, so that one-off pieces never displace a hot one: half of
    /// all pieces never recur.
    pub(super) fn insert(&mut self, place: u32, key: u128, packed: &[u32], lists: &mut Lists) {
        let mut entry = Entry { key, packed: [0; TOKENS] };
        if packed.len() <= TOKENS {
            entry.packed[..packed.len()].copy_from_slice(packed);
            entry.packed[0] = entry.packed[0] & !COUNT | (packed.len() as u32 - 1) << COUNT_SHIFT;
        } else {
            let [low, high] = lists.put(packed);
            entry = Entry { key: key | IN_LIST, packed: [low, high, packed.len() as u32, 0] };
        }
        let set = &mut self.sets[place as usize].0;
        let way = (set[0].key != entry.key && set[0].key != NO_KEY) as usize;
        set[way] = entry;
    }
}

/// Token lists that do not fit an entry of a cache: a ring buffer.
#[derive(Default)]
pub(super) struct Lists {
    tokens: Vec<u32>,
    /// Tokens written so far, of which the last `LISTED` are kept.
    written: u64,
}

/// Size of the ring buffer: 2 MiB.
const LISTED: usize = 1 << 19;

impl Lists {
    /// Appends at most `MEDIUM` tokens. Returns their position among all tokens written so far, low half first.
    fn put(&mut self, packed: &[u32]) -> [u32; 2] {
        let mut start = self.written as usize % LISTED;
        if start + packed.len() > LISTED {
            self.written += (LISTED - start) as u64;
            start = 0;
        }
        let end = start + packed.len();
        if end > self.tokens.len() {
            let size = (2 * end).clamp(LISTED / 64, LISTED);
            let more = size - self.tokens.len();
            memory::reserve(&mut self.tokens, more);
            self.tokens.resize(size, 0);
        }
        self.tokens[start..end].copy_from_slice(packed);
        let at = self.written;
        self.written += packed.len() as u64;
        [at as u32, (at >> 32) as u32]
    }

    /// The tokens at a position; None if they are overwritten.
    #[inline(always)]
    fn get(&self, [low, high]: [u32; 2], length: usize) -> Option<&[u32]> {
        let at = (high as u64) << 32 | low as u64;
        let start = at as usize % LISTED;
        (self.written - at <= LISTED as u64).then(|| &self.tokens[start..start + length])
    }
}

/// Maximum length of a medium piece, and maximum number of tokens in its entry. More are in a list.
pub(super) const MEDIUM: usize = 31;
pub(super) const MEDIUM_TOKENS: usize = 7;

/// One cache line of the processor.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Medium {
    key: [u128; 2],
    tokens: [u32; MEDIUM_TOKENS],
    length: u32,
}

/// Cache of pieces of 16 to 31 bytes: direct-mapped. It grows with their number, because many texts have few.
pub(super) struct MediumPieces {
    entries: Vec<Medium>,
    inserted: usize,
}

/// Entries of 64 bytes: at most 512 KiB.
const MEDIUM_ENTRIES: std::ops::RangeInclusive<usize> = 1 << 9..=1 << 13;

impl MediumPieces {
    pub(super) fn new() -> Self {
        Self::with(*MEDIUM_ENTRIES.start())
    }

    fn with(n: usize) -> Self {
        let empty = Medium { key: [NO_KEY; 2], tokens: [0; MEDIUM_TOKENS], length: 0 };
        Self { entries: huge_filled(n, empty), inserted: 0 }
    }

    /// The key of a piece; None if it is too long.
    #[inline(always)]
    pub(super) fn key(text: &[u8], start: usize, end: usize) -> Option<[u128; 2]> {
        let middle = start + 16;
        (end - start <= MEDIUM).then(|| {
            [u128::from_le_bytes(*text[start..].first_chunk().expect("16 bytes")), short_key(text, middle, end)]
        })
    }

    #[inline(always)]
    fn place(&self, key: [u128; 2]) -> usize {
        (hash_key(key[0]) ^ hash_key(key[1]).rotate_left(32)) as usize & (self.entries.len() - 1)
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, key: [u128; 2]) {
        prefetch(&self.entries, self.place(key));
    }

    #[inline(always)]
    pub(super) fn get(&self, key: [u128; 2]) -> Option<(&[u32; MEDIUM_TOKENS], usize)> {
        let entry = &self.entries[self.place(key)];
        (entry.key == key && entry.length as usize <= MEDIUM_TOKENS).then_some((&entry.tokens, entry.length as usize))
    }

    /// The tokens of a piece if they are in a list.
    pub(super) fn get_list<'a>(&self, key: [u128; 2], lists: &'a Lists) -> Option<&'a [u32]> {
        let entry = &self.entries[self.place(key)];
        if entry.key != key || entry.length as usize <= MEDIUM_TOKENS {
            return None;
        }
        lists.get([entry.tokens[0], entry.tokens[1]], entry.length as usize)
    }

    pub(super) fn insert(&mut self, key: [u128; 2], packed: &[u32], lists: &mut Lists) {
        self.inserted += 1;
        if self.inserted > self.entries.len() && self.entries.len() < *MEDIUM_ENTRIES.end() {
            let larger = Self { inserted: self.inserted, ..Self::with(4 * self.entries.len()) };
            for entry in std::mem::replace(self, larger).entries.into_iter().filter(|entry| entry.length > 0) {
                let place = self.place(entry.key);
                self.entries[place] = entry;
            }
        }
        let mut entry = Medium { key, tokens: [0; MEDIUM_TOKENS], length: packed.len() as u32 };
        if packed.len() <= MEDIUM_TOKENS {
            entry.tokens[..packed.len()].copy_from_slice(packed);
        } else {
            [entry.tokens[0], entry.tokens[1]] = lists.put(packed);
        }
        let place = self.place(key);
        self.entries[place] = entry;
    }
}

/// Cache of longer pieces, by their bytes.
#[derive(Default)]
pub(super) struct LongPieces {
    table: hashbrown::HashMap<Box<[u8]>, Box<[u32]>, rustc_hash::FxBuildHasher>,
    memory: usize,
}

impl LongPieces {
    #[inline(always)]
    pub(super) fn get(&self, piece: &[u8]) -> Option<&[u32]> {
        if !(MEDIUM + 1..=LONG_BYTES).contains(&piece.len()) {
            return None;
        }
        self.table.get(piece).map(|packed| &**packed)
    }

    pub(super) fn insert(&mut self, piece: &[u8], packed: &[u32]) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_kept_until_they_are_overwritten() {
        let mut lists = Lists::default();
        let written: Vec<([u32; 2], Vec<u32>)> = (0..100_000)
            .map(|i| {
                let tokens: Vec<u32> = (0..5 + i % 27).map(|j| i * 31 + j).collect();
                (lists.put(&tokens), tokens)
            })
            .collect();
        let kept = |(at, tokens): &([u32; 2], Vec<u32>)| match lists.get(*at, tokens.len()) {
            Some(found) => {
                assert_eq!(found, tokens);
                true
            }
            None => false,
        };
        let first = written.iter().position(kept).expect("some are kept");
        assert!(written[first..].iter().all(kept));
        let n: usize = written[first..].iter().map(|(_, tokens)| tokens.len()).sum();
        assert!(first > 0 && (LISTED - 2 * MEDIUM..=LISTED).contains(&n), "{first} {n}");
    }

    #[test]
    fn medium_pieces_keep_their_tokens_when_the_cache_grows() {
        let (mut medium, mut lists) = (MediumPieces::new(), Lists::default());
        let key = |i: usize| {
            let text = format!("a piece of text {i:9} and what follows it");
            MediumPieces::key(text.as_bytes(), 0, 25).expect("25 bytes")
        };
        let kept = |medium: &MediumPieces, n: usize| {
            (0..n).filter(|&i| medium.get(key(i)).is_some_and(|(tokens, n)| tokens[..n] == [i as u32, 7])).count()
        };
        let n = *MEDIUM_ENTRIES.start();
        (0..n).for_each(|i| medium.insert(key(i), &[i as u32, 7], &mut lists));
        let before = kept(&medium, n);
        assert!(before > n / 2, "{before}");
        medium.insert(key(n), &[n as u32, 7], &mut lists);
        assert_eq!(medium.entries.len(), 4 * n);
        assert!(kept(&medium, n) + 1 >= before);
        assert_eq!(medium.get(key(n)).map(|(tokens, _)| tokens[0]), Some(n as u32));
    }
}
