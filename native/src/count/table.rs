//! A hash table that counts byte strings, and its contents in sorted order.

use hashbrown::hash_table::HashTable;

use super::keys::{hash_key, short_key, SHORT};
use crate::runtime::interrupt::poll;
use crate::runtime::memory::prefetch;

/// Keys gathered before the table is probed, so that cache misses overlap.
const AHEAD: usize = 64;

#[derive(Clone, Copy, Default)]
struct Slot {
    // Two halves, not a u128: its alignment would pad the slot from 24 to 32 bytes.
    low: u64,
    high: u64, // 0 if empty (the top byte is the length)
    count: u64,
}

#[derive(Clone, Copy)]
struct Long {
    start: usize, // into the arena
    length: u32,
    hash: u32, // so that the table grows without reading the arena
    count: u64,
}

impl Long {
    fn hash(bytes: &[u8]) -> u32 {
        (xxhash_rust::xxh3::xxh3_64(bytes) >> 32) as u32
    }

    /// The hash for the table, which uses the highest and the lowest bits.
    fn spread(hash: u32) -> u64 {
        (hash as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Counts of byte strings.
pub struct Table {
    slots: Vec<Slot>,
    used: usize,
    pending: [(u128, u64, u64); AHEAD], // keys, their hashes and counts
    n_pending: usize,
    long: HashTable<Long>,
    arena: Vec<u8>,
    /// Bytes of the distinct short strings.
    short_bytes: usize,
    limit: usize,
    full: bool,
}

impl Default for Table {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Table {
    /// An empty table that reports `is_full` before it would use more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            slots: vec![Slot::default(); 4 * AHEAD],
            used: 0,
            pending: [(0, 0, 0); AHEAD],
            n_pending: 0,
            long: HashTable::new(),
            arena: Vec::new(),
            short_bytes: 0,
            limit,
            full: false,
        }
    }

    /// Whether the table should be emptied: it could not grow, or grew beyond its limit.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Counts the non-empty string `text[start..end]` once.
    #[inline(always)]
    pub fn add(&mut self, text: &[u8], start: usize, end: usize) {
        if end - start > SHORT {
            return self.add_long(&text[start..end], 1);
        }
        self.add_key(short_key(text, start, end), 1);
    }

    /// Counts a string of up to `SHORT` bytes by its key.
    #[inline(always)]
    pub fn add_key(&mut self, key: u128, count: u64) {
        let hash = hash_key(key);
        prefetch(&self.slots, hash as usize & (self.slots.len() - 1));
        self.pending[self.n_pending & (AHEAD - 1)] = (key, hash, count);
        self.n_pending += 1;
        if self.n_pending == AHEAD {
            self.settle();
        }
    }

    /// Inserts the pending keys. Afterwards, `memory` does not depend on the order of the strings.
    #[inline(never)]
    pub fn settle(&mut self) {
        for i in 0..self.n_pending {
            let (key, hash, count) = self.pending[i];
            self.add_short(key, hash, count);
        }
        poll(AHEAD * SHORT);
        self.n_pending = 0;
        if self.used * 5 > self.slots.len() * 3 {
            // Growing holds both tables at once. Without growing, there may be space for more pending keys.
            self.full = self.memory() + 2 * self.slots.len() * size_of::<Slot>() > self.limit;
            if !self.full || self.used + AHEAD >= self.slots.len() {
                self.grow();
            }
        }
    }

    #[inline(always)]
    fn add_short(&mut self, key: u128, hash: u64, count: u64) {
        let (low, high) = (key as u64, (key >> 64) as u64);
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.low == low && slot.high == high {
                slot.count += count;
                return;
            }
            if slot.high == 0 {
                *slot = Slot { low, high, count };
                self.used += 1;
                self.short_bytes += (high >> 56) as usize;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let factor = if self.slots.len() < 1 << 16 { 4 } else { 2 };
        let bigger = vec![Slot::default(); self.slots.len() * factor];
        let old = std::mem::replace(&mut self.slots, bigger);
        (self.used, self.short_bytes) = (0, 0);
        for slot in old.into_iter().filter(|slot| slot.high != 0) {
            let key = (slot.high as u128) << 64 | slot.low as u128;
            self.add_short(key, hash_key(key), slot.count);
        }
    }

    /// Counts a string of more than `SHORT` bytes.
    #[inline(never)]
    pub fn add_long(&mut self, bytes: &[u8], count: u64) {
        let (hash, arena) = (Long::hash(bytes), &mut self.arena);
        let found = self.long.find_mut(Long::spread(hash), |long| {
            long.hash == hash && arena[long.start..][..long.length as usize] == *bytes
        });
        if let Some(long) = found {
            long.count += count; // `entry` would make room for one more, and `memory` depend on the order of strings
        } else {
            let length = u32::try_from(bytes.len()).expect("a pretoken of less than 4 GiB");
            let new = Long { start: arena.len(), length, hash, count };
            self.long.insert_unique(Long::spread(hash), new, |long| Long::spread(long.hash));
            let end = arena.len() + bytes.len();
            if end > arena.capacity() {
                // A power of two, so that `memory` does not depend on the order of the strings.
                arena.reserve_exact(end.next_power_of_two() - arena.len());
            }
            arena.extend_from_slice(bytes);
            self.full |= self.memory() > self.limit;
        }
        poll(bytes.len());
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.slots.len() * size_of::<Slot>() + self.long.capacity() * 8 * size_of::<Long>() / 7 + self.arena.capacity()
    }

    /// Number of distinct strings, except for pending ones.
    pub fn n_strings(&self) -> usize {
        self.used + self.long.len()
    }

    /// Bytes of the distinct strings, except for pending ones.
    pub fn n_bytes(&self) -> usize {
        self.short_bytes + self.arena.len()
    }

    /// Calls `take` with each distinct string and its count, in any order, except for pending ones.
    pub fn each<'a>(&'a self, mut take: impl FnMut(Counted<'a>, u64)) {
        for slot in self.slots.iter().filter(|slot| slot.high != 0) {
            take(Counted::Short((slot.high as u128) << 64 | slot.low as u128), slot.count);
        }
        for long in &self.long {
            take(Counted::Long(&self.arena[long.start..][..long.length as usize]), long.count);
        }
    }

    /// All counts, sorted by bytes.
    pub fn into_sorted(mut self) -> Sorted {
        self.settle();
        let mut short = self.slots;
        short.retain(|slot| slot.high != 0);
        // As big-endian integers, keys compare like strings; of equal prefixes the shorter comes first.
        for slot in &mut short {
            let key = (slot.high as u128) << 64 | slot.low as u128;
            let ordered = ordered_key(key);
            (slot.high, slot.low) = ((ordered >> 64) as u64, ordered as u64);
        }
        short.sort_unstable_by_key(|slot| (slot.high, slot.low));
        let mut long: Vec<Long> = Vec::with_capacity(self.long.len());
        long.extend(self.long);
        let arena = self.arena;
        let spelled = |long: &Long| &arena[long.start..][..long.length as usize];
        long.sort_unstable_by(|a, b| spelled(a).cmp(spelled(b)));
        Sorted { short, long, arena, next_short: 0, next_long: 0 }
    }
}

/// A string of a table.
pub enum Counted<'a> {
    /// Its key.
    Short(u128),
    Long(&'a [u8]),
}

/// The bytes of a short key in big-endian order, with the length in the lowest byte.
fn ordered_key(key: u128) -> u128 {
    (key & ((1 << 120) - 1)).swap_bytes() | key >> 120
}

/// Sort key of a string: its first 15 bytes in big-endian order, and its length (at most 16) in the lowest byte.
/// Strings with equal heads are equal, unless both are longer than 15 bytes.
pub fn head(bytes: &[u8]) -> u128 {
    let mut first = [0; 16];
    let length = bytes.len().min(SHORT);
    first[..length].copy_from_slice(&bytes[..length]);
    first[15] = bytes.len().min(SHORT + 1) as u8;
    u128::from_be_bytes(first)
}

/// The strings of a table in sorted order.
pub struct Sorted {
    short: Vec<Slot>,
    long: Vec<Long>,
    arena: Vec<u8>,
    next_short: usize,
    next_long: usize,
}

impl Sorted {
    pub fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the next string to `bytes` and returns its count; None at the end.
    pub fn next_into(&mut self, bytes: &mut Vec<u8>) -> Option<u64> {
        let short = self.short.get(self.next_short).map(|slot| (slot.high as u128) << 64 | slot.low as u128);
        let long = self.long.get(self.next_long).map(|long| &self.arena[long.start..][..long.length as usize]);
        bytes.clear();
        let short_first = match (short, long) {
            (None, None) => return None,
            (Some(short), Some(long)) => short < head(long),
            (short, None) => short.is_some(),
            (None, Some(_)) => false,
        };
        if short_first {
            let key = short.expect("there is a short one");
            bytes.extend_from_slice(&key.to_be_bytes()[..(key & 0xFF) as usize]);
            self.next_short += 1;
            Some(self.short[self.next_short - 1].count)
        } else {
            bytes.extend_from_slice(long.expect("there is a long one"));
            self.next_long += 1;
            Some(self.long[self.next_long - 1].count)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_order_as_bytes_do() {
        let words: [&[u8]; 6] = [b"", b"a", b"a\0", b"ab", b"abcdefghijklmno", b"abcdefghijklmnop"];
        for pair in words.windows(2) {
            assert!(head(pair[0]) < head(pair[1]), "{pair:?}");
        }
    }
}
