//! Pieces of a text and their tokens: looked up together, or merged together.

use std::ops::Range;

use super::cache::{self, Cache, TOKENS};
use super::lanes::{Lanes, MOST_TOKENS};
use super::merges::Level1;
use crate::encode::merge::{merge_sequence, Scratch};
use crate::encode::packed::{COUNT, COUNT_SHIFT, FIRST};
use crate::runtime::interrupt::poll;

/// A batch is full with this many pieces. It has space for those of one more window.
const FULL: usize = 512;
const SPACE: usize = FULL + 64;

/// Pieces of a window that are added together: a branch on their number would often be mispredicted.
const TOGETHER: usize = 8;

/// More tokens of a piece are copied with those of absent pieces.
const MOST_RECORDED: usize = 31;

/// Size of the table of absent pieces, which finds those that recur in a batch: a new word often comes again at once.
const RECENT: usize = 256;

/// Blocks of 64 bytes that are cut together.
pub(super) const NOTED: usize = 64;

/// In the end of a piece: its first token gets `packed::FIRST`.
pub(super) const MARK_FIRST: u64 = 1 << 63;

/// Progress of cutting a text into pieces.
#[derive(Clone, Copy, Default)]
pub(super) struct Cutting {
    /// Start of the part that is not queued yet, and whether a piece of the scanner starts there.
    pub(super) part: usize,
    pub(super) starts_piece: bool,
    /// Number of the current block of 64 bytes.
    pub(super) block: usize,
}

/// Level 1 of an encoding thread: a batch of consecutive pieces, and the cache.
pub(in crate::encode) struct Pieces {
    n: usize,
    /// Start of the first piece.
    start: usize,
    /// Ends of the pieces, with marks.
    ends: [u64; SPACE + TOGETHER],
    /// Keys of the pieces, and their cache sets.
    keys: [u128; SPACE],
    sets: [u32; SPACE],
    /// Tokens of the pieces that are cached.
    tokens: [u32; SPACE * MOST_RECORDED],
    absent: Vec<Absent>,
    lanes: Lanes,
    ids: Vec<u32>,
    scratch: Scratch,
    cache: Cache,
    /// Where `run` is in the text.
    pub(super) cutting: Cutting,
    /// Ends of pieces of the scanner in the current block and those after it: one bit for each byte.
    pub(super) noted: [u64; NOTED + 1],
    /// Packed tokens that are gathered for level 2.
    pub(in crate::encode) gathered: Vec<u32>,
}

/// A piece that is not in the cache, or has many tokens.
#[derive(Clone, Copy)]
struct Absent {
    piece: usize,
    /// Number of tokens before it in `Pieces::tokens`.
    at: usize,
    /// Whether to cache its tokens.
    is_new: bool,
}

impl Pieces {
    /// `sets`: size of the cache.
    pub(in crate::encode) fn new(level: &Level1, sets: usize) -> Self {
        Self {
            n: 0,
            start: 0,
            ends: [0; SPACE + TOGETHER],
            keys: [0; SPACE],
            sets: [0; SPACE],
            tokens: [0; SPACE * MOST_RECORDED],
            absent: Vec::new(),
            lanes: Lanes::default(),
            ids: Vec::new(),
            scratch: Scratch::default(),
            cache: Cache::new(level, sets),
            cutting: Cutting::default(),
            noted: [0; NOTED + 1],
            gathered: Vec::new(),
        }
    }

    /// Empties the batch: the next piece starts here.
    #[inline(always)]
    pub(super) fn start_at(&mut self, start: usize) {
        (self.n, self.start) = (0, start);
    }

    /// Adds a piece by its end, perhaps with a mark. Returns whether the batch is full.
    #[inline(always)]
    pub(super) fn push(&mut self, end: u64) -> bool {
        self.ends[self.n] = end;
        self.n += 1;
        self.n >= FULL
    }

    /// Adds the pieces that end at `cuts`: bit i stands for an end before byte `at + i`. With `FIRSTS`, the first of them
    /// gets the mark `first`, and so does each one after an end in `ends`. Returns whether the batch is full.
    #[inline(always)]
    pub(super) fn push_all<const FIRSTS: bool>(&mut self, at: usize, mut cuts: u64, ends: u64, mut first: u64) -> bool {
        let mut n = self.n;
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
        self.n >= FULL
    }

    /// Appends the packed tokens of a text that is one piece.
    pub(in crate::encode) fn append_one_piece(&mut self, level: &Level1, text: &[u8], out: &mut Vec<u32>) {
        self.start_at(0);
        self.push(text.len() as u64);
        self.look_up::<false>(level, text, out);
    }

    /// The place of a piece of the batch in the text.
    #[inline(always)]
    fn place(&self, piece: usize) -> Range<usize> {
        let start = if piece == 0 { self.start } else { (self.ends[piece - 1] & !MARK_FIRST) as usize };
        start..(self.ends[piece] & !MARK_FIRST) as usize
    }

    /// Appends the packed tokens of the batch, and empties it.
    #[inline(never)]
    pub(super) fn look_up<const FIRSTS: bool>(&mut self, level: &Level1, text: &[u8], out: &mut Vec<u32>) {
        let Self { n, cache, absent, tokens, .. } = self;
        let (ends, keys, sets) = (&self.ends[..*n], &mut self.keys[..*n], &mut self.sets[..*n]);

        // 1. The keys of all pieces. Their cache sets are prefetched while the next keys are made.
        let mut start = self.start;
        for ((&end, key), set) in ends.iter().zip(&mut *keys).zip(&mut *sets) {
            let end = (if FIRSTS { end & !MARK_FIRST } else { end }) as usize;
            *key = cache::key(text, start, end);
            *set = cache.set(*key);
            start = end;
        }

        // 2. The tokens of the cached pieces. All four are copied whatever their number, which saves a branch.
        let mut at = 0;
        let mut start = self.start;
        for (piece, ((&end, &key), &set)) in ends.iter().zip(&*keys).zip(&*sets).enumerate() {
            let place = start..(if FIRSTS { end & !MARK_FIRST } else { end }) as usize;
            start = place.end;
            match cache.get(set, key) {
                Some(packed) => {
                    let to: &mut [u32; TOKENS] = tokens[at..].first_chunk_mut().expect("space");
                    *to = [packed[0] & !COUNT | first_mark::<FIRSTS>(end), packed[1], packed[2], packed[3]];
                    at += (packed[0] >> COUNT_SHIFT & 3) as usize + 1;
                }
                None => match recorded(cache, set, key, &text[place], &mut tokens[at..]) {
                    0 => absent.push(Absent { piece, at, is_new: false }),
                    n => {
                        tokens[at] |= first_mark::<FIRSTS>(end);
                        at += n;
                    }
                },
            }
        }

        // 3. The tokens of the others.
        if !absent.is_empty() {
            self.merge_misses(level, text);
        }

        // 4. All tokens in order. New pieces go to the cache.
        let mut copied = 0;
        for number in 0..self.absent.len() {
            let Absent { piece, at, is_new } = self.absent[number];
            out.extend_from_slice(&self.tokens[copied..at]);
            copied = at;
            let first = out.len();
            out.extend_from_slice(self.lanes.get(number));
            if is_new {
                let place = self.place(piece);
                let packed = self.lanes.get(number);
                self.cache.insert(self.sets[piece], self.keys[piece], &text[place], packed);
            }
            out[first] |= first_mark::<FIRSTS>(self.ends[piece]);
        }
        out.extend_from_slice(&self.tokens[copied..at]);
        self.absent.clear();
        poll(start - self.start);
        self.start_at(start);
    }

    /// Merges the absent pieces in `lanes`, in their order.
    #[inline(never)]
    fn merge_misses(&mut self, level: &Level1, text: &[u8]) {
        let mut recent = [0; RECENT]; // by hash: number of the latest absent piece, plus one
        self.lanes.clear();
        for number in 0..self.absent.len() {
            let piece = self.absent[number].piece;
            let (key, set, bytes) = (self.keys[piece], self.sets[piece], &text[self.place(piece)]);
            let before = std::mem::replace(&mut recent[set as usize % RECENT], number + 1);
            if let Some(before) = before.checked_sub(1) {
                let other = self.absent[before].piece;
                if self.keys[other] == key && text[self.place(other)] == *bytes {
                    self.lanes.add_again(before);
                    continue;
                }
            }
            if let Some(packed) = self.cache.get_record(set, key, bytes) {
                self.lanes.add_merged(packed);
                continue;
            }
            self.absent[number].is_new = true;
            if bytes.len() <= MOST_TOKENS && bytes.is_ascii() {
                level.add_to(&mut self.lanes, bytes);
                continue;
            }
            let ids = &mut self.ids;
            ids.clear();
            level.characters.each(bytes, &level.byte_ids, |id| ids.push(id));
            if ids.len() <= MOST_TOKENS {
                self.lanes.add(ids.iter().copied(), ids.windows(2).map(|two| level.pairs.find(two[0], two[1])));
            } else {
                merge_sequence(ids, |left, right| level.pairs.get(left, right), &mut self.scratch);
                self.lanes.add_merged(ids.iter().copied());
            }
        }
        self.lanes.merge_all(&level.pairs);
        if !level.packed.is_empty() {
            for number in (0..self.absent.len()).filter(|&number| self.absent[number].is_new) {
                self.lanes.get(number).iter_mut().for_each(|id| *id = level.packed[*id as usize]);
            }
        }
    }
}

/// `packed::FIRST` if a piece's end has the mark, otherwise 0. Not a branch, which would often be mispredicted.
#[inline(always)]
fn first_mark<const FIRSTS: bool>(end: u64) -> u32 {
    if FIRSTS {
        (end / (MARK_FIRST / u64::from(FIRST))) as u32 & FIRST
    } else {
        0
    }
}

/// Copies the tokens of a piece that are in a record. Returns their number, or 0. Out of line: most are in entries.
#[cold]
#[inline(never)]
fn recorded(cache: &mut Cache, set: u32, key: u128, piece: &[u8], to: &mut [u32]) -> usize {
    let Some(packed) = cache.get_record(set, key, piece).filter(|packed| packed.len() <= MOST_RECORDED) else {
        return 0;
    };
    let n = packed.len();
    to.iter_mut().zip(packed).for_each(|(to, token)| *to = token);
    n
}
