//! Pieces that are looked up in the caches together.

use super::cache::{Caches, MediumPieces, ShortPieces, MEDIUM, MEDIUM_TOKENS, TOKENS};
use super::misses::{Miss, Misses};
use crate::count::keys::{short_key, SHORT};
use crate::encode::packed::{COUNT, COUNT_SHIFT, FIRST};
use crate::runtime::{interrupt::poll, memory};

/// The queue is full with this many pieces. It has space for those of one more window.
const AHEAD: usize = 64;
const SPACE: usize = AHEAD + 64;

/// Pieces of a window that are queued together: a branch on their number would often be mispredicted.
const TOGETHER: usize = 8;

/// Marks in a queued end: the first token gets `packed::FIRST`; the key gets `PART`.
pub(super) const MARK_FIRST: u64 = 1 << 63;
pub(super) const MARK_PART: u64 = 1 << 62;
const END: u64 = MARK_PART - 1;

/// In a key: the piece is a part of one of the scanner's pieces.
const PART: u128 = 1 << 127;

/// Consecutive pieces of a text.
pub(super) struct Queue {
    n: usize,
    /// Start of the first piece.
    start: usize,
    /// Ends of the pieces, with marks.
    ends: [u64; SPACE + TOGETHER],
    /// Keys of the pieces (0 for long ones), and their cache sets.
    keys: [u128; SPACE],
    places: [u32; SPACE],
    /// Tokens of the pieces that are cached, at most `MEDIUM` for each.
    room: [u32; SPACE * MEDIUM],
    /// Pieces that are not cached, with the number of tokens before theirs.
    absent: Vec<(usize, usize)>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            n: 0,
            start: 0,
            ends: [0; SPACE + TOGETHER],
            keys: [0; SPACE],
            places: [0; SPACE],
            room: [0; SPACE * MEDIUM],
            absent: Vec::new(),
        }
    }

    /// Empties the queue.
    #[inline(always)]
    pub(super) fn start_at(&mut self, start: usize) {
        (self.n, self.start) = (0, start);
    }

    /// Adds a piece. Returns whether the queue is full.
    #[inline(always)]
    pub(super) fn push(&mut self, end: u64) -> bool {
        self.ends[self.n & (SPACE - 1)] = end;
        self.n += 1;
        self.n >= AHEAD
    }

    /// Adds pieces without marks: bit i of `ends` stands for an end before byte `at + i`. Returns whether the queue is full.
    #[inline(always)]
    pub(super) fn push_window(&mut self, at: usize, ends: u64) -> bool {
        self.push_parts::<false>(at, ends, 0, 0)
    }

    /// Adds parts of pieces that end at `cuts`, relative to `at`. Those in `ends` are ends of pieces, too. `first`: mark of
    /// the first of these parts; with `FIRSTS`, every part that begins a piece gets `MARK_FIRST`. Returns whether the queue
    /// is full.
    #[inline(always)]
    pub(super) fn push_parts<const FIRSTS: bool>(
        &mut self,
        at: usize,
        mut cuts: u64,
        ends: u64,
        mut first: u64,
    ) -> bool {
        let mut n = self.n & (SPACE - 1);
        self.n += cuts.count_ones() as usize;
        while cuts != 0 {
            let slots: &mut [u64; TOGETHER] = self.ends[n..].first_chunk_mut().expect("space");
            for slot in slots {
                let i = (cuts | 1 << 63).trailing_zeros(); // anything if no cut is left
                *slot = (at + i as usize) as u64 | first;
                first = if FIRSTS && ends >> i & 1 != 0 { MARK_FIRST } else { 0 };
                cuts &= cuts.wrapping_sub(1);
            }
            n += TOGETHER;
        }
        self.n >= AHEAD
    }

    /// Empties the queue: appends the tokens of the pieces that are cached, and adds the others to the misses.
    /// `MARKS`: marks that ends may have.
    #[inline(never)]
    pub(super) fn look_up<const MARKS: u64>(
        &mut self,
        text: &[u8],
        caches: &mut Caches,
        misses: &mut Misses,
        out: &mut Vec<u32>,
    ) {
        let Caches { short, medium, long, lists } = caches;
        let unmarked = |end: u64| (if MARKS != 0 { end & END } else { end }) as usize;
        // All keys first, so that their entries are prefetched while the next keys are computed.
        let Self { n, start: first_start, ends, keys, places, room, absent } = self;
        let (ends, keys, places) = (&ends[..*n], &mut keys[..*n], &mut places[..*n]);
        let sets = short.sets();
        let mut start = *first_start;
        for ((&marked, key), place) in ends.iter().zip(&mut *keys).zip(&mut *places) {
            let end = unmarked(marked);
            let part = if MARKS & marked & MARK_PART != 0 { PART } else { 0 };
            if end - start <= SHORT {
                *key = short_key(text, start, end) | part;
                *place = ShortPieces::place(sets, *key);
            } else {
                *key = 0;
                if let Some(key) = MediumPieces::key(text, start, end) {
                    medium.prefetch(key);
                }
            }
            start = end;
        }
        let mut at = 0;
        let start_of = |i: usize| if i == 0 { *first_start } else { unmarked(ends[i - 1]) };
        for (i, ((&marked, &key), &place)) in ends.iter().zip(&*keys).zip(&*places).enumerate() {
            let first = if MARKS & marked & MARK_FIRST != 0 { FIRST } else { 0 };
            if key == 0 {
                let (start, end) = (start_of(i), unmarked(marked));
                let key = MediumPieces::key(text, start, end);
                if let Some((tokens, n)) = key.and_then(|key| medium.get(key)) {
                    let to: &mut [u32; MEDIUM_TOKENS] = room[at..].first_chunk_mut().expect("space");
                    *to = *tokens;
                    to[0] |= first;
                    at += n;
                    continue;
                }
                let packed = match key {
                    Some(key) => medium.get_list(key, lists),
                    // `room` has space for `MEDIUM` tokens per piece. Longer lists are found when misses are merged.
                    None => long.get(&text[start..end]).filter(|packed| packed.len() <= MEDIUM),
                };
                match packed {
                    Some(packed) => at += copy(packed, first, &mut room[at..]),
                    None => note_miss(absent, i, at),
                }
                continue;
            }
            match ShortPieces::get(sets, place, key) {
                Some(packed) => {
                    // Copy all four and advance by their number: no branch on it.
                    let to: &mut [u32; TOKENS] = room[at..].first_chunk_mut().expect("space");
                    *to = [packed[0] & !COUNT, packed[1], packed[2], packed[3]];
                    to[0] |= first;
                    at += (packed[0] >> COUNT_SHIFT & 3) as usize + 1;
                }
                None => match ShortPieces::get_list(sets, place, key, lists) {
                    Some(packed) => at += copy(packed, first, &mut room[at..]),
                    None => note_miss(absent, i, at),
                },
            }
        }
        for (i, at) in absent.drain(..) {
            let start = start_of(i);
            let first = if MARKS & ends[i] & MARK_FIRST != 0 { FIRST } else { 0 };
            let (key, place, end, at) = (keys[i], places[i], unmarked(ends[i]), out.len() + at);
            misses.list.push(Miss { key, place, start, end, first, at, new: false });
        }
        poll(start - *first_start);
        (*n, *first_start) = (0, start);
        memory::reserve(out, at);
        out.extend_from_slice(&room[..at]);
    }
}

/// Copies the tokens of a piece, the first one with its mark. Returns their number.
#[inline(never)]
fn copy(packed: &[u32], first: u32, room: &mut [u32]) -> usize {
    room[..packed.len()].copy_from_slice(packed);
    room[0] |= first;
    packed.len()
}

/// Out of line: most pieces are cached.
#[cold]
#[inline(never)]
fn note_miss(absent: &mut Vec<(usize, usize)>, i: usize, at: usize) {
    absent.push((i, at));
}
