//! Cuts a text into the pieces of level 1. No level-1 merge crosses the end of a piece.
//!
//! Words are pieces as the scanner gives them. Longer stretches of text are cut at dead byte pairs (`Level1::dead`), and
//! what is still long between characters (`seams`).

use super::merges::Level1;
use super::pieces::{Cutting, Pieces, MARK_FIRST, NOTED};
use crate::count::keys::SHORT;
use crate::encode::packed::FIRST;
use crate::pretokenize::sink::{each_piece, Sink};
use crate::runtime::interrupt::poll;

/// Pieces of more bytes are cut if nothing else says so. Cutting costs more than it saves on shorter ones.
const WORD: usize = 31;

/// With superwords, pieces up to this length stay whole: in code, most have one to three bytes.
const TINY: usize = 4;

/// Without superwords, runs of one byte, such as indentation, are not cut up to this length: they recur.
const LONG_RUN: usize = 1 << 10;

/// Level-1 tokens gathered before level 2 merges them.
const GATHERED: usize = 1 << 10;

/// Level 1 on one text: takes the pieces of the scanner and appends packed tokens to `out`, at the latest in `finish`.
///
/// `FIRSTS`: the first token of each piece of the scanner gets `packed::FIRST`. Tokens of whole pieces go to `take`, many
/// at a time.
///
/// Functions out of line get a copy (`reborrow`). As nothing points to the original, it stays in registers.
pub(in crate::encode) struct PieceSink<'a, const FIRSTS: bool> {
    level: &'a Level1,
    pieces: &'a mut Pieces,
    text: &'a [u8],
    out: &'a mut Vec<u32>,
    take: Option<Take<'a>>,
}

/// Takes packed tokens of whole pieces of the scanner.
pub(in crate::encode) type Take<'a> = &'a mut dyn FnMut(&[u32]);

impl Level1 {
    /// Starts on a text.
    #[inline(always)]
    pub(in crate::encode) fn piece_sink<'a, const FIRSTS: bool>(
        &'a self,
        text: &'a [u8],
        pieces: &'a mut Pieces,
        out: &'a mut Vec<u32>,
        take: Option<Take<'a>>,
    ) -> PieceSink<'a, FIRSTS> {
        pieces.start_at(0);
        pieces.cutting = Cutting { part: 0, starts_piece: true, block: 0 };
        pieces.noted.fill(0);
        PieceSink { level: self, pieces, text, out, take }
    }

    /// Whether ends are collected and cut 64 bytes at a time. Not with `whole_tokens`, which need each piece by itself.
    #[inline(always)]
    fn cuts_blocks(&self) -> bool {
        self.cut_all && self.whole_tokens.is_empty()
    }
}

impl<const FIRSTS: bool> PieceSink<'_, FIRSTS> {
    const MARK: u64 = if FIRSTS { MARK_FIRST } else { 0 };

    #[inline(always)]
    pub(in crate::encode) fn reborrow(&mut self) -> PieceSink<'_, FIRSTS> {
        let take = self.take.as_mut().map(|take| &mut **take as Take);
        PieceSink { level: self.level, pieces: self.pieces, text: self.text, out: self.out, take }
    }

    /// Adds a piece as it is.
    #[inline(always)]
    fn push(&mut self, end: usize) {
        if self.pieces.push(end as u64 | Self::MARK) {
            self.reborrow().look_up();
        }
    }

    /// Appends the tokens of the pieces so far.
    pub(in crate::encode) fn finish(mut self) {
        if self.level.cuts_blocks() {
            let blocks = self.text.len() / 64 + 1;
            self.reborrow().cut_blocks(blocks);
        }
        self.reborrow().look_up();
        if let Some(take) = self.take {
            take(self.out);
        }
    }

    /// Appends the tokens of the batch, and passes on those of whole pieces if they are many.
    #[inline(never)]
    fn look_up(self) {
        let before = self.out.len();
        self.pieces.look_up::<FIRSTS>(self.level, self.text, self.out);
        let Some(take) = self.take else { return };
        if self.out.len() >= GATHERED {
            let last_first = self.out[before..].iter().rposition(|token| token & FIRST != 0);
            if let Some(end) = last_first.map(|at| before + at).filter(|&end| end > 0) {
                take(&self.out[..end]);
                self.out.drain(..end);
            }
        }
    }

    /// Adds a long piece, or one that may be a token: it, or its parts.
    #[inline(never)]
    fn split(mut self, start: usize, end: usize) {
        let piece = &self.text[start..end];
        if let Some(&id) = self.level.whole_tokens.get(piece) {
            self.reborrow().look_up();
            self.out.push(self.level.pack(id) | if FIRSTS { FIRST } else { 0 });
            return self.pieces.start_at(end);
        }
        let whole = if self.level.cut_all { TINY } else { WORD };
        if piece.len() <= whole || piece.len() <= LONG_RUN && piece.iter().all(|&byte| byte == piece[0]) {
            return self.push(end);
        }
        (self.pieces.cutting.part, self.pieces.cutting.starts_piece) = (start, true);
        for block in (start / 64)..=((end - 1) / 64) {
            let at = 64 * block;
            let after_start = if start < at { u64::MAX } else { (u64::MAX << (start - at)) << 1 };
            let before_end = u64::MAX >> (64usize.saturating_sub(end - at)).min(63);
            self.add_parts(at, self.level.dead_pairs(self.text, at) & after_start & before_end, 0);
        }
        self.add_parts(end, 1, 1);
    }

    /// Notes ends of pieces: bit i of `ends` stands for an end before byte `at + i`.
    #[inline(always)]
    fn note_ends(&mut self, at: usize, ends: u64) {
        if at / 64 - self.pieces.cutting.block >= NOTED {
            self.reborrow().cut_blocks(at / 64);
        }
        let noted = &mut self.pieces.noted[at / 64 - self.pieces.cutting.block..][..2];
        noted[0] |= ends << (at % 64);
        noted[1] |= ends >> 1 >> (63 - at % 64);
    }

    /// Cuts the blocks before this one, whose ends of pieces are all known.
    #[inline(never)]
    fn cut_blocks(mut self, before: usize) {
        let first = self.pieces.cutting.block;
        for block in first..before {
            poll(64);
            let (at, ends) = (64 * block, self.pieces.noted.get_mut(block - first).map_or(0, std::mem::take));
            // Inside of pieces of up to four bytes.
            let tiny = ends << 1 & (ends >> 1 | ends >> 2 | ends >> 3)
                | ends << 2 & (ends >> 1 | ends >> 2)
                | ends << 3 & ends >> 1;
            self.add_parts(at, ends | self.level.dead_pairs(self.text, at) & !tiny, ends);
        }
        self.pieces.cutting.block = before;
        self.pieces.noted[0] = self.pieces.noted.get_mut(before - first).map_or(0, std::mem::take);
    }

    /// Adds the parts that end at `cuts`, relative to `at`. Those in `ends` are ends of pieces, too.
    #[inline(always)]
    fn add_parts(&mut self, at: usize, mut cuts: u64, ends: u64) {
        if cuts == 0 {
            return;
        }
        let Cutting { mut part, mut starts_piece, .. } = self.pieces.cutting;
        let (first, last) = (cuts.trailing_zeros(), cuts.ilog2());
        let next = (at + last as usize, ends >> last & 1 != 0);
        (self.pieces.cutting.part, self.pieces.cutting.starts_piece) = next;
        let others = cuts & (cuts - 1);
        if at + first as usize - part <= SHORT && others & !near::<SHORT>(cuts) == 0 {
            if self.pieces.push_all::<FIRSTS>(at, cuts, ends, if starts_piece { Self::MARK } else { 0 }) {
                self.reborrow().look_up();
            }
            return;
        }
        while cuts != 0 {
            let i = cuts.trailing_zeros() as usize;
            let (end, first) = (at + i, if starts_piece { Self::MARK } else { 0 });
            if end - part > SHORT {
                self.reborrow().add_long_part(part, end, first);
            } else if self.pieces.push(end as u64 | first) {
                self.reborrow().look_up();
            }
            (part, starts_piece) = (end, ends >> i & 1 != 0);
            cuts &= cuts - 1;
        }
    }

    /// Adds a long part of a piece, or parts of it. `first`: mark of the first of them.
    #[inline(never)]
    fn add_long_part(mut self, start: usize, end: usize, mut first: u64) {
        let (level, text) = (self.level, self.text);
        let mut push = |end: usize| {
            if self.pieces.push(end as u64 | first) {
                self.reborrow().look_up();
            }
            first = 0;
        };
        level.seams.each_uncrossed(text, start..end, &mut push);
        push(end);
    }
}

impl<const FIRSTS: bool> Sink for PieceSink<'_, FIRSTS> {
    #[inline(always)]
    fn piece(&mut self, start: usize, end: usize) {
        if self.level.cuts_blocks() {
            self.note_ends(end, 1);
        } else if end - start <= WORD && !self.level.cut_all && self.level.whole_tokens.is_empty() {
            self.push(end);
        } else {
            self.reborrow().split(start, end);
        }
    }

    #[inline(always)]
    fn pieces(&mut self, start: usize, at: usize, ends: u64) -> usize {
        if self.level.cuts_blocks() {
            self.note_ends(at, ends);
            return if ends == 0 { start } else { at + ends.ilog2() as usize };
        }
        let words = !self.level.cut_all && self.level.whole_tokens.is_empty();
        if words && ends != 0 && start == at && ends & !near::<WORD>(ends | 1) == 0 {
            if self.pieces.push_all::<FIRSTS>(at, ends, ends, Self::MARK) {
                self.reborrow().look_up();
            }
            return at + ends.ilog2() as usize;
        }
        each_piece(start, at, ends, |start, end| self.piece(start, end))
    }
}

/// The `N` positions after each set bit.
#[inline(always)]
fn near<const N: usize>(mask: u64) -> u64 {
    let mut near = mask << 1;
    let mut n = 1;
    while 2 * n <= N {
        near |= near << n;
        n *= 2;
    }
    near | near << (N - n)
}
