//! The cache of a thread: pieces of text and their packed tokens.

use super::merges::Level1;
use crate::count::keys::{hash_key, short_key, SHORT};
use crate::encode::packed::{COUNT, COUNT_SHIFT};
use crate::runtime::memory::{huge_filled, prefetch};

/// Maximum number of tokens in an entry. More are in a record.
pub(super) const TOKENS: usize = 4;

/// Longer pieces are not cached.
const LONGEST: usize = 1 << 12;

/// Size of the ring buffer of records: 4 MiB.
const RECORDS: usize = 1 << 22;

/// In a key: it holds a hash, of a piece of more than 15 bytes.
const HASH: u128 = 1 << 127;
/// In a key: the entry refers to a record.
const RECORD: u128 = 1 << 126;

const EMPTY: u128 = u128::MAX;

/// The key of a piece: its bytes if it is short.
#[inline(always)]
pub(super) fn key(text: &[u8], start: usize, end: usize) -> u128 {
    if end - start <= SHORT {
        return short_key(text, start, end);
    }
    long_key(&text[start..end])
}

/// Out of line: few pieces are long.
#[cold]
#[inline(never)]
fn long_key(piece: &[u8]) -> u128 {
    HASH | (piece.len() as u128) << 64 | u128::from(xxhash_rust::xxh3::xxh3_64(piece))
}

#[derive(Clone, Copy)]
struct Entry {
    key: u128,
    /// The tokens; the first one holds their number minus one (`COUNT`). Or a record: its position, low half first, the
    /// number of its tokens and of its bytes.
    packed: [u32; TOKENS],
}

/// Two entries, the most recently used first: one cache line of the processor.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Set([Entry; 2]);

/// A two-way set-associative table of pieces. If an entry is too small, it points to a record: the tokens, and before
/// them the bytes of a long piece.
pub(super) struct Cache {
    sets: Vec<Set>,
    records: Vec<u8>,
    /// Bytes written to `records` so far. The last `RECORDS` of them are there.
    written: u64,
}

impl Cache {
    /// A cache of `n` sets (a power of two), with the known tokens that fit: a third to a half of a text's distinct pieces.
    pub(super) fn new(level: &Level1, n: usize) -> Self {
        let empty = Set([Entry { key: EMPTY, packed: [0; TOKENS] }; 2]);
        let mut cache = Self { sets: huge_filled(n, empty), records: Vec::new(), written: 0 };
        for &(key, id) in &level.known {
            let set = cache.set(key);
            cache.insert(set, key, &[], &[level.pack(id)]);
        }
        cache
    }

    /// The set of a key; prefetches it.
    #[inline(always)]
    pub(super) fn set(&self, key: u128) -> u32 {
        let set = hash_key(key) as usize & (self.sets.len() - 1);
        prefetch(&self.sets, set);
        set as u32
    }

    /// The tokens of a piece if they are in an entry.
    #[inline(always)]
    pub(super) fn get(&mut self, set: u32, key: u128) -> Option<&[u32; TOKENS]> {
        let entries = &mut self.sets[set as usize].0;
        if entries[0].key != key {
            if entries[1].key != key {
                return None;
            }
            entries.swap(0, 1);
        }
        Some(&entries[0].packed)
    }

    /// The tokens of a piece if they are in a record.
    #[inline(always)]
    pub(super) fn get_record(
        &mut self,
        set: u32,
        key: u128,
        piece: &[u8],
    ) -> Option<impl ExactSizeIterator<Item = u32> + '_> {
        let [low, high, n_tokens, n_bytes] = *self.get(set, key | RECORD)?;
        let position = u64::from(high) << 32 | u64::from(low);
        if self.written - position > RECORDS as u64 {
            return None; // overwritten
        }
        let (bytes, rest) = self.records[position as usize % RECORDS..].split_at(n_bytes as usize);
        let tokens = rest[..4 * n_tokens as usize].chunks_exact(4);
        (n_bytes == 0 || bytes == piece)
            .then(|| tokens.map(|token| u32::from_le_bytes(token.try_into().expect("four"))))
    }

    /// Evicts the LRU entry and inserts at the LRU position, so that a one-off piece never displaces the entry of
    /// its set that was used last: half of all pieces never recur.
    #[inline(always)]
    pub(super) fn insert(&mut self, set: u32, key: u128, piece: &[u8], packed: &[u32]) {
        let mut entry = Entry { key, packed: [0; TOKENS] };
        if key & HASH == 0 && packed.len() <= TOKENS {
            entry.packed[..packed.len()].copy_from_slice(packed);
            entry.packed[0] = entry.packed[0] & !COUNT | (packed.len() as u32 - 1) << COUNT_SHIFT;
        } else if piece.len() <= LONGEST {
            let bytes = if key & HASH == 0 { &[] } else { piece };
            let position = self.record(bytes, packed);
            entry.key |= RECORD;
            entry.packed = [position as u32, (position >> 32) as u32, packed.len() as u32, bytes.len() as u32];
        } else {
            return;
        }
        let entries = &mut self.sets[set as usize].0;
        let way = (entries[0].key != entry.key && entries[0].key != EMPTY) as usize;
        entries[way] = entry;
    }

    /// Writes a record. Returns its position among all bytes written so far.
    fn record(&mut self, bytes: &[u8], packed: &[u32]) -> u64 {
        let length = bytes.len() + size_of_val(packed);
        let mut start = self.written as usize % RECORDS;
        if start + length > RECORDS {
            self.written += (RECORDS - start) as u64; // begin again
            start = 0;
        }
        if start + length > self.records.len() {
            self.records.resize((2 * (start + length)).clamp(RECORDS / 64, RECORDS), 0);
        }
        let (to_bytes, to_tokens) = self.records[start..start + length].split_at_mut(bytes.len());
        to_bytes.copy_from_slice(bytes);
        to_tokens.chunks_exact_mut(4).zip(packed).for_each(|(to, token)| to.copy_from_slice(&token.to_le_bytes()));
        let position = self.written;
        self.written += length as u64;
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::tests::{one_pass, random_merges};
    use crate::runtime::random::Random;

    #[test]
    fn records_are_kept_until_they_are_overwritten() {
        let (tokens, merges) = random_merges(&mut Random(1), 3, 9);
        let level = Level1::new(&one_pass(&tokens, &merges, 9, ""), &[], false, Vec::new());
        let mut cache = Cache::new(&level, 1 << 17);
        let piece = |i: usize| format!("{i:0width$}", width = 8 + i % 90).into_bytes();
        let packed = |i: usize| (0..1 + i % 9).map(|j| (i + j) as u32).collect::<Vec<u32>>();
        let n = 80_000;
        for i in 0..n {
            let key = key(&piece(i), 0, piece(i).len());
            let set = cache.set(key);
            cache.insert(set, key, &piece(i), &packed(i));
        }
        let mut found = 0;
        for i in 0..n {
            let key = key(&piece(i), 0, piece(i).len());
            let set = cache.set(key);
            if let Some(record) = cache.get_record(set, key, &piece(i)) {
                assert!(record.eq(packed(i)), "{i}");
                found += 1;
            }
        }
        assert!((n / 4..n * 3 / 4).contains(&found), "{found}"); // the older half is overwritten
    }
}
