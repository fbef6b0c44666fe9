//! Counts of distinct pretokens: one table per thread, added up at the end.

use aho_corasick::{AhoCorasick, MatchKind};
use hashbrown::hash_table::{Entry, HashTable};

use crate::corpus::Batch;
use crate::parallel;
use crate::patterns::Scanner;

/// Longest key that a table entry holds inline.
pub const SHORT: usize = 15;
/// Pieces gathered before the table is probed, so that cache misses overlap.
const AHEAD: usize = 64;
const CHUNK_BYTES: usize = 1 << 18;

/// Up to 15 bytes and their number (in the top byte) as one integer.
#[inline(always)]
pub fn short_key(text: &[u8], start: usize, end: usize) -> u128 {
    let length = end - start;
    debug_assert!(length <= SHORT);
    let raw = if start + 16 <= text.len() {
        u128::from_le_bytes(text[start..start + 16].try_into().expect("16 bytes"))
    } else {
        let mut bytes = [0; 16];
        bytes[..length].copy_from_slice(&text[start..end]);
        u128::from_le_bytes(bytes)
    };
    (raw & ((1u128 << (8 * length)) - 1)) | (length as u128) << 120
}

#[inline(always)]
pub fn hash_key(key: u128) -> u64 {
    let (low, high) = (key as u64, (key >> 64) as u64);
    let mixed = (low ^ high.rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29) ^ high).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 32)
}

#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, and the pointer is within or just past the slice.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch(slice.as_ptr().wrapping_add(index).cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

#[derive(Clone, Copy, Default)]
struct Slot {
    key: u128, // 0: empty (no key has length 0)
    count: u64,
}

/// Byte strings and how often each occurred.
pub struct Table {
    slots: Vec<Slot>,
    used: usize,
    long: HashTable<(Box<[u8]>, u64)>,
    pending: Vec<u128>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            slots: vec![Slot::default(); 1 << 12],
            used: 0,
            long: HashTable::new(),
            pending: Vec::with_capacity(AHEAD),
        }
    }
}

impl Table {
    #[inline(always)]
    pub fn add(&mut self, text: &[u8], start: usize, end: usize) {
        if end - start > SHORT {
            return self.add_long(&text[start..end], 1);
        }
        let key = short_key(text, start, end);
        prefetch(&self.slots, self.home(key));
        self.pending.push(key);
        if self.pending.len() == AHEAD {
            self.settle();
        }
    }

    #[inline(always)]
    fn home(&self, key: u128) -> usize {
        (hash_key(key) as usize) & (self.slots.len() - 1)
    }

    fn settle(&mut self) {
        if (self.used + AHEAD) * 2 > self.slots.len() {
            self.grow();
        }
        for i in 0..self.pending.len() {
            let key = self.pending[i];
            self.add_short(key, 1);
        }
        self.pending.clear();
    }

    #[inline(always)]
    fn add_short(&mut self, key: u128, count: u64) {
        let mut at = self.home(key);
        loop {
            let slot = &mut self.slots[at];
            if slot.key == key {
                slot.count += count;
                return;
            }
            if slot.key == 0 {
                *slot = Slot { key, count };
                self.used += 1;
                return;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn grow(&mut self) {
        let bigger = vec![Slot::default(); self.slots.len() * 4];
        let old = std::mem::replace(&mut self.slots, bigger);
        self.used = 0;
        for slot in old.into_iter().filter(|slot| slot.key != 0) {
            self.add_short(slot.key, slot.count);
        }
    }

    fn add_long(&mut self, bytes: &[u8], count: u64) {
        let hash = |bytes: &[u8]| xxhash_rust::xxh3::xxh3_64(bytes);
        match self.long.entry(hash(bytes), |entry| *entry.0 == *bytes, |entry| hash(&entry.0)) {
            Entry::Occupied(mut entry) => entry.get_mut().1 += count,
            Entry::Vacant(entry) => {
                entry.insert((bytes.into(), count));
            }
        }
    }

    /// Adds another table's counts.
    pub fn merge(&mut self, mut other: Table) {
        self.settle();
        other.settle();
        for slot in other.slots.into_iter().filter(|slot| slot.key != 0) {
            if (self.used + 1) * 2 > self.slots.len() {
                self.grow();
            }
            self.add_short(slot.key, slot.count);
        }
        for (bytes, count) in other.long {
            self.add_long(&bytes, count);
        }
    }

    /// Sorted by bytes: (all bytes, offsets, counts).
    pub fn sorted(mut self) -> (Vec<u8>, Vec<i64>, Vec<u64>) {
        self.settle();
        // Big-endian keys without their length compare as the byte strings do; equal prefixes by length.
        let mut short: Vec<(u128, u64)> = self
            .slots
            .into_iter()
            .filter(|slot| slot.key != 0)
            .map(|slot| {
                let length = slot.key >> 120;
                ((slot.key & ((1 << 120) - 1)).swap_bytes() | length, slot.count)
            })
            .collect();
        short.sort_unstable();
        let mut long: Vec<(Box<[u8]>, u64)> = self.long.into_iter().collect();
        long.sort_unstable();

        let (mut data, mut offsets, mut counts) = (Vec::new(), vec![0i64], Vec::new());
        let mut long = long.into_iter().peekable();
        let mut push = |bytes: &[u8], count| {
            data.extend_from_slice(bytes);
            offsets.push(data.len() as i64);
            counts.push(count);
        };
        for (key, count) in short {
            let bytes = key.to_be_bytes();
            let bytes = &bytes[..(key & 0xFF) as usize];
            while let Some((first, count)) = long.next_if(|(first, _)| **first < *bytes) {
                push(&first, count);
            }
            push(bytes, count);
        }
        for (bytes, count) in long {
            push(&bytes, count);
        }
        (data, offsets, counts)
    }
}

/// What a merge may not cross before any pattern is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Document,
    /// Lines with their line feed, as HF reads files.
    Line,
}

impl Unit {
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "document" => Ok(Self::Document),
            "line" => Ok(Self::Line),
            _ => Err(format!("unit is {name:?}; it is one of: document, line")),
        }
    }

    #[inline]
    pub fn split<E>(self, text: &[u8], mut unit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Document => unit(text),
            Self::Line => text.split_inclusive(|&byte| byte == b'\n').try_for_each(unit),
        }
    }
}

/// Cuts out special strings, longest first where several start at one place.
pub struct Specials(Option<AhoCorasick>);

impl Specials {
    pub fn new(strings: &[String]) -> Result<Self, String> {
        if strings.is_empty() {
            return Ok(Self(None));
        }
        AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(strings)
            .map(|automaton| Self(Some(automaton)))
            .map_err(|error| error.to_string())
    }

    /// Calls `ordinary` with each stretch of text between special strings.
    pub fn between<E>(&self, text: &[u8], mut ordinary: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut start = 0;
        if let Some(automaton) = &self.0 {
            for found in automaton.find_iter(text) {
                ordinary(&text[start..found.start()])?;
                start = found.end();
            }
        }
        ordinary(&text[start..])
    }
}

/// Counts the pretokens of batches.
pub struct Counter {
    scanner: Scanner,
    unit: Unit,
    specials: Specials,
    tables: Vec<Table>,
    pub bytes: u64,
    pub documents: u64,
}

impl Counter {
    pub fn new(scanner: Scanner, unit: Unit, specials: Specials, threads: usize) -> Self {
        Self {
            scanner,
            unit,
            specials,
            tables: (0..threads.max(1)).map(|_| Table::default()).collect(),
            bytes: 0,
            documents: 0,
        }
    }

    pub fn add(&mut self, batch: &Batch) -> Result<(), String> {
        let chunks = parallel::chunks(&batch.offsets, CHUNK_BYTES);
        let (scanner, unit, specials) = (&self.scanner, self.unit, &self.specials);
        parallel::for_each(&mut self.tables, chunks.len(), |table, i| {
            chunks[i].clone().try_for_each(|document| {
                specials.between(batch.document(document), |text| {
                    unit.split(text, |text| scanner.pieces(text, |start, end| table.add(text, start, end)))
                })
            })
        })?;
        self.bytes += batch.data.len() as u64;
        self.documents += batch.len() as u64;
        Ok(())
    }

    pub fn finish(self) -> Table {
        let mut tables = self.tables.into_iter();
        let mut total = tables.next().expect("at least one table");
        tables.for_each(|table| total.merge(table));
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_and_sorted() {
        let text =
            "the cat\0 the\0 cat and a very-long-pretoken-indeed-it-is and antidisestablishmentarianism ".repeat(50);
        let mut batch = Batch::default();
        batch.push(text.as_bytes());
        batch.push(b"");
        batch.push("the the <|s|>the antidisestablishmentarianism".as_bytes());
        let specials = || Specials::new(&["<|s|>".to_string()]).unwrap();
        let scanner = || Scanner::new(crate::patterns::NAMED[0].1).unwrap();
        let mut expected = std::collections::BTreeMap::<Vec<u8>, u64>::new();
        for i in 0..batch.len() {
            specials()
                .between(batch.document(i), |text| {
                    scanner().pieces(text, |s, e| *expected.entry(text[s..e].to_vec()).or_default() += 1)
                })
                .unwrap();
        }
        for threads in [1, 3] {
            let mut counter = Counter::new(scanner(), Unit::Document, specials(), threads);
            counter.add(&batch).unwrap();
            let (data, offsets, counts) = counter.finish().sorted();
            let found: Vec<_> = (0..counts.len())
                .map(|i| (data[offsets[i] as usize..offsets[i + 1] as usize].to_vec(), counts[i]))
                .collect();
            assert_eq!(found, expected.clone().into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn sorted_orders_prefixes_before_their_extensions() {
        let mut table = Table::default();
        let words: [&[u8]; 6] = [b"b", b"a", b"a\0", b"a\0\0", b"aaaaaaaaaaaaaaaaaaaa", b"aaaaaaaaaaaaaaa"];
        for word in words {
            table.add(word, 0, word.len());
        }
        let (data, offsets, _) = table.sorted();
        let found: Vec<&[u8]> = offsets.windows(2).map(|w| &data[w[0] as usize..w[1] as usize]).collect();
        let mut expected = words.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}
