//! Level 1 on a text: cuts pieces where none of its merges can join, and appends their tokens.

use std::ops::Range;

use super::cache::{Caches, MEDIUM, TOKENS};
use super::misses::Misses;
use super::queue::{Queue, MARK_FIRST, MARK_PART};
use super::tables::Level1;
use crate::count::keys::SHORT;
use crate::encode::packed::FIRST;
use crate::runtime::{interrupt::poll, memory};

/// Bytes between two calls of `poll`.
const POLLED: usize = 1 << 12;

/// Level 1 of an encoding thread: the pieces that are pending, and caches.
pub(in crate::encode) struct Pieces {
    queue: Queue,
    misses: Misses,
    caches: Caches,
    /// Dead byte pairs (see `Level1::dead_pairs`) of a block of 64 bytes, and the start of the block.
    dead: u64,
    block: usize,
    /// Packed tokens that are gathered for level 2.
    pub(in crate::encode) gathered: Vec<u32>,
}

/// Level 1 on one text. The tokens of a piece are appended to `out` when they are known, at the latest by `flush`.
/// `FIRSTS`: the first token of each piece of the scanner is marked with `packed::FIRST`.
pub(in crate::encode) struct Run<'a, const FIRSTS: bool> {
    level: &'a Level1,
    pieces: &'a mut Pieces,
    text: &'a [u8],
    /// Packed tokens.
    pub(in crate::encode) out: &'a mut Vec<u32>,
}

impl Pieces {
    /// `sets`: size of the cache of short pieces.
    pub(in crate::encode) fn new(level: &Level1, sets: usize) -> Self {
        Self {
            queue: Queue::new(),
            misses: Misses::default(),
            caches: Caches::new(level, sets),
            dead: 0,
            block: usize::MAX,
            gathered: Vec::new(),
        }
    }
}

impl Level1 {
    /// Starts on a text.
    #[inline(always)]
    pub(in crate::encode) fn run<'a, const FIRSTS: bool>(
        &'a self,
        text: &'a [u8],
        pieces: &'a mut Pieces,
        out: &'a mut Vec<u32>,
    ) -> Run<'a, FIRSTS> {
        pieces.queue.start_at(0);
        pieces.misses.list.clear();
        pieces.block = usize::MAX;
        Run { level: self, pieces, text, out }
    }

    /// Appends the packed tokens of merging a non-empty text, without replacing whole pieces by tokens.
    pub(in crate::encode) fn merged(&self, text: &[u8], pieces: &mut Pieces, out: &mut Vec<u32>) {
        let mut run = self.run::<true>(text, pieces, out);
        run.queue(text.len() as u64 | MARK_PART);
        run.finish();
    }
}

impl<const FIRSTS: bool> Run<'_, FIRSTS> {
    const FIRST: u64 = if FIRSTS { MARK_FIRST } else { 0 };

    /// The same run, for functions out of line and closures. As nothing points to it, it stays in registers.
    #[inline(always)]
    pub(in crate::encode) fn apart(&mut self) -> Run<'_, FIRSTS> {
        Run { level: self.level, pieces: self.pieces, text: self.text, out: self.out }
    }

    /// Adds a piece of the scanner. It starts where the one before ended.
    #[inline(always)]
    pub(in crate::encode) fn push(&mut self, start: usize, end: usize) {
        // With superwords, half of the pieces of code have one to three bytes: cutting them does not pay.
        let uncut = if self.level.cut_all { TOKENS } else { SHORT };
        if end - start > uncut {
            return self.apart().split(start, end);
        }
        self.queue(end as u64 | Self::FIRST);
    }

    /// Appends the tokens of all pieces so far.
    #[inline(always)]
    pub(in crate::encode) fn flush(&mut self) {
        self.apart().look_up(true);
    }

    #[inline(always)]
    pub(in crate::encode) fn finish(mut self) {
        self.flush();
    }

    /// `push` of a long piece: splits it where level 1 never merges.
    #[inline(never)]
    fn split(mut self, start: usize, end: usize) {
        if let Some(id) = self.level.whole_tokens.as_ref().and_then(|tokens| tokens.get(&self.text[start..end])) {
            self.flush();
            memory::push(self.out, if FIRSTS { id | FIRST } else { id });
            return self.pieces.queue.start_at(end);
        }
        if !self.level.cut_all && end - start <= MEDIUM {
            // Merging its parts instead would save less than cutting costs.
            return self.queue(end as u64 | Self::FIRST);
        }
        // A part of a piece must not be confused with a whole piece.
        let part = if self.level.short_whole_tokens().is_some() { MARK_PART } else { 0 };
        let (mut at, mut from, mut marks) = (start + 1, start, Self::FIRST | part);
        while at < end {
            let block = at & !63;
            if block != self.pieces.block {
                if block % POLLED == 0 {
                    poll(POLLED);
                }
                self.pieces.block = block;
                self.pieces.dead = self.level.dead_pairs(self.text, block);
            }
            let stop = end.min(block + 64);
            let mut cuts = self.pieces.dead & (u64::MAX << (at - block)) & (u64::MAX >> (block + 64 - stop));
            while cuts != 0 {
                let cut = block + cuts.trailing_zeros() as usize;
                self.split_characters(from..cut, marks, part);
                (from, marks) = (cut, part);
                cuts &= cuts - 1;
            }
            at = stop;
        }
        self.split_characters(from..end, marks, part);
    }

    /// Queues a part of a piece, or parts of it if it is long: with marks of the first one and of the others.
    #[inline(always)]
    fn split_characters(&mut self, range: Range<usize>, mut marks: u64, part: u64) {
        let end = range.end as u64;
        if range.len() > SHORT {
            self.level.seams.each_uncrossed(self.text, range, |cut| {
                self.queue(cut as u64 | marks);
                marks = part;
            });
        }
        self.queue(end | marks);
    }

    /// Queues a piece: its end, with marks.
    #[inline(always)]
    fn queue(&mut self, end: u64) {
        if self.pieces.queue.push(end) {
            self.apart().look_up(false);
        }
    }

    /// Appends the tokens of the queued pieces that are cached, and those of the misses if they are due or with `all`.
    #[inline(never)]
    fn look_up(self, all: bool) {
        let Self { level, pieces: Pieces { queue, misses, caches, .. }, text, out } = self;
        if FIRSTS || level.short_whole_tokens().is_some() {
            queue.look_up::<true>(text, caches, misses, out);
        } else {
            queue.look_up::<false>(text, caches, misses, out);
        }
        if misses.are_due(out.len()) || all && !misses.list.is_empty() {
            misses.merge(level, text, caches, out);
        }
    }
}
