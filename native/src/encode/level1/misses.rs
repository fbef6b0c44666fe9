//! Pieces that are not cached.

use super::cache::{Caches, MediumPieces};
use super::lanes::{Lanes, MOST_TOKENS};
use super::tables::Level1;
use crate::count::keys::hash_key;
use crate::encode::merge::{merge, Scratch};
use crate::encode::pairs::{byte_pair, is_merge};
use crate::runtime::memory;

/// Misses that are merged together.
const MISSES_PER_BATCH: usize = 32;

/// Merge pending misses once this many tokens follow the first one; they have to be shifted.
const MAX_SHIFTED: usize = 1 << 12;

/// A piece that is not cached.
#[derive(Clone, Copy)]
pub(super) struct Miss {
    pub(super) key: u128,
    pub(super) place: u32,
    pub(super) start: usize,
    pub(super) end: usize,
    /// `packed::FIRST` or 0.
    pub(super) first: u32,
    /// Position of its tokens in the output.
    pub(super) at: usize,
    /// Whether to cache its tokens.
    pub(super) new: bool,
}

/// Pieces whose tokens are missing in the output.
#[derive(Default)]
pub(super) struct Misses {
    pub(super) list: Vec<Miss>,
    lanes: Lanes,
    recent: Recent,
    ids: Vec<u32>,
    scratch: Scratch,
}

/// By hash of the piece: number of the latest miss, perhaps of an earlier batch. A new word often comes again at once.
struct Recent([usize; RECENT]);

const RECENT: usize = 2 * MISSES_PER_BATCH;

impl Default for Recent {
    fn default() -> Self {
        Self([0; RECENT])
    }
}

impl Recent {
    /// Notes a miss of the list. Returns an earlier one of the same piece, if it is the latest with its hash.
    #[inline(always)]
    fn repeated(&mut self, text: &[u8], list: &[Miss], number: usize) -> Option<usize> {
        let miss = &list[number];
        let hash = if miss.key != 0 {
            miss.place as usize
        } else {
            let [start, end] = MediumPieces::key(text, miss.start, miss.end)?;
            (hash_key(start) ^ hash_key(end)) as usize
        };
        let before = std::mem::replace(&mut self.0[hash % RECENT], number);
        let same = |other: &Miss| other.key == miss.key && text[other.start..other.end] == text[miss.start..miss.end];
        (before < number && same(&list[before])).then_some(before)
    }
}

impl Misses {
    /// Whether to merge them now. `n`: number of tokens in the output.
    #[inline(always)]
    pub(super) fn are_due(&self, n: usize) -> bool {
        self.list.len() >= MISSES_PER_BATCH || self.list.first().is_some_and(|miss| n - miss.at > MAX_SHIFTED)
    }

    /// Inserts the tokens of the pieces where they belong.
    #[inline(never)]
    pub(super) fn merge(&mut self, level: &Level1, text: &[u8], caches: &mut Caches, out: &mut Vec<u32>) {
        let Self { list, lanes, recent, ids, scratch } = self;
        let Caches { short, medium, long, lists } = caches;
        lanes.clear();
        for number in 0..list.len() {
            if let Some(before) = recent.repeated(text, list, number) {
                lanes.add_again(before);
                continue;
            }
            let Miss { key, start, end, new, .. } = &mut list[number];
            let bytes = &text[*start..*end];
            if let Some(packed) = long.get(bytes) {
                lanes.add_merged(packed);
                continue;
            }
            *new = true;
            if let Some(id) = level.short_whole_tokens().filter(|_| *key != 0).and_then(|tokens| tokens.get(*key)) {
                lanes.add_merged(&[id]);
            } else if bytes.len() <= MOST_TOKENS && bytes.is_ascii() {
                let found = bytes.windows(2).map(|two| {
                    let found = level.bytes[byte_pair(two[0], two[1])];
                    (is_merge(found), found)
                });
                lanes.add(bytes.iter().map(|&byte| level.packed_bytes[byte as usize]), found);
            } else {
                ids.clear();
                memory::reserve(ids, bytes.len());
                level.characters.each(bytes, &level.packed_bytes, |id| ids.push(id));
                if ids.len() <= MOST_TOKENS {
                    lanes.add(ids.iter().copied(), ids.windows(2).map(|two| level.pairs.find(two[0], two[1])));
                } else {
                    merge(ids, |left, right| level.pairs.get(left, right), scratch);
                    lanes.add_merged(ids);
                }
            }
        }
        lanes.merge(&level.pairs);

        for (lane, &Miss { key, place, start, end, .. }) in list.iter().enumerate().filter(|(_, miss)| miss.new) {
            let packed = lanes.get(lane);
            if !level.packed.is_empty() {
                packed.iter_mut().for_each(|id| *id = level.packed[*id as usize]);
            }
            if key != 0 {
                short.insert(place, key, packed, lists);
            } else if let Some(key) = MediumPieces::key(text, start, end) {
                medium.insert(key, packed, lists);
            } else {
                long.insert(&text[start..end], packed);
            }
        }

        let mut end = out.len();
        let mut to = end + (0..list.len()).map(|lane| lanes.get(lane).len()).sum::<usize>();
        memory::reserve(out, to - end);
        out.resize(to, 0);
        for (lane, &Miss { first, at, .. }) in list.iter().enumerate().rev() {
            let packed = lanes.get(lane);
            to -= end - at;
            out.copy_within(at..end, to);
            (end, to) = (at, to - packed.len());
            out[to..to + packed.len()].copy_from_slice(packed);
            out[to] |= first;
        }
        list.clear();
    }
}
