//! Level 1 on a text: cuts pieces where none of its merges can join, and appends their tokens.

use super::cache::{Caches, MEDIUM, TOKENS};
use super::misses::Misses;
use super::queue::{Queue, MARK_FIRST, MARK_PART};
use super::tables::Level1;
use crate::count::keys::SHORT;
use crate::encode::packed::FIRST;
use crate::runtime::{interrupt::poll, memory};

/// Longer runs of one byte are cut like other pieces.
const LONG_RUN: usize = 1 << 10;

/// Bytes between two calls of `poll`.
const POLLED: usize = 1 << 12;

/// Level 1 of an encoding thread: the pieces that are pending, and caches.
pub(in crate::encode) struct Pieces {
    queue: Queue,
    misses: Misses,
    caches: Caches,
    cutting: Cutting,
    /// Packed tokens that are gathered for level 2.
    pub(in crate::encode) gathered: Vec<u32>,
}

/// Where pieces are cut: at dead byte pairs (see `Level1::dead_pairs`).
#[derive(Clone, Copy)]
struct Cutting {
    /// Start of the part that is not queued yet, and whether a piece of the scanner starts there.
    part: usize,
    starts_piece: bool,
    /// Cuts at or before this byte are queued.
    seen: usize,
    /// Dead pairs of a block of 64 bytes, and the start of the block.
    dead: u64,
    block: usize,
}

impl Cutting {
    /// A piece starts here.
    #[inline(always)]
    fn start_at(&mut self, start: usize) {
        (self.part, self.starts_piece, self.seen) = (start, true, start);
    }
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
            cutting: Cutting { part: 0, starts_piece: true, seen: 0, dead: 0, block: usize::MAX },
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
        pieces.cutting.block = usize::MAX;
        pieces.cutting.start_at(0);
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
        if self.level.cut_all {
            // With superwords, half of the pieces of code have one to three bytes: cutting them does not pay.
            if end - start > TOKENS || self.pieces.cutting.part != start {
                return self.apart().split(start, end);
            }
            self.pieces.cutting.start_at(end);
        } else if end - start > SHORT {
            return self.apart().split(start, end);
        }
        self.queue(end as u64 | Self::FIRST);
    }

    /// Adds the pieces of a window (see `Sink::pieces`) if none is to be cut. Returns whether it did.
    #[inline(always)]
    pub(in crate::encode) fn push_uncut(&mut self, start: usize, at: usize, ends: u64) -> bool {
        let near = if self.level.whole_tokens.is_none() { near::<MEDIUM> } else { near::<SHORT> };
        if self.level.cut_all || start != at || ends & !near(ends | 1) != 0 {
            return false;
        }
        if self.pieces.queue.push_window(at, ends) {
            self.apart().look_up(false);
        }
        true
    }

    /// Whether no token of the piece that starts here is queued or in `out`.
    #[inline(always)]
    pub(in crate::encode) fn is_before(&self, start: usize) -> bool {
        !self.level.cut_all || self.pieces.cutting.part == start
    }

    /// Whether `push_window` may be called.
    #[inline(always)]
    pub(in crate::encode) fn takes_windows(&self) -> bool {
        self.level.cut_all && self.level.whole_tokens.is_none()
    }

    /// Adds the pieces of a window (see `Sink::window`), and the parts of the next one up to its end.
    #[inline(never)]
    pub(in crate::encode) fn push_window(mut self, at: usize, ends: u64, last: usize) {
        if at / POLLED != (at + last) / POLLED {
            poll(POLLED);
        }
        if self.pieces.cutting.seen + 1 < at {
            self.cut_until(at);
        }
        // Inside of pieces of up to four bytes: cutting them does not pay.
        let tiny = ends << 1 & (ends >> 1 | ends >> 2 | ends >> 3)
            | ends << 2 & (ends >> 1 | ends >> 2)
            | ends << 3 & ends >> 1;
        let seen = self.pieces.cutting.seen;
        let after = if seen < at { u64::MAX } else { u64::MAX << (seen - at) << 1 };
        let within = u64::MAX >> (63 - last);
        let dead = self.level.dead_pairs(self.text, at);
        self.queue_parts(at, (ends | dead & !tiny) & after & within, ends, 0);
        self.pieces.cutting.seen = at + last;
    }

    /// `push` of a long piece, or of the rest of a piece: splits it where level 1 never merges.
    #[inline(never)]
    fn split(mut self, start: usize, end: usize) {
        if let Some(id) = self.level.whole_tokens.as_ref().and_then(|tokens| tokens.get(&self.text[start..end])) {
            self.flush();
            memory::push(self.out, if FIRSTS { id | FIRST } else { id });
            self.pieces.cutting.start_at(end);
            return self.pieces.queue.start_at(end);
        }
        let (cut_all, bytes) = (self.level.cut_all, &self.text[start..end]);
        // Medium pieces of plain BPE are not cut, because that costs more than it saves. Runs of one byte, such as
        // indentation, are not cut either: they recur, so they are cached whole.
        let whole =
            !cut_all && bytes.len() <= MEDIUM || bytes.len() <= LONG_RUN && bytes.iter().all(|&b| b == bytes[0]);
        if whole && (!cut_all || self.pieces.cutting.part == start) {
            self.pieces.cutting.start_at(end);
            return self.queue(end as u64 | Self::FIRST);
        }
        if !cut_all {
            self.pieces.cutting.start_at(start);
        }
        self.cut_until(end);
        self.queue_parts(end, 1, 1, self.part_mark());
        self.pieces.cutting.seen = end;
    }

    /// Queues the parts that end before `end` and were not seen yet.
    #[inline(always)]
    fn cut_until(&mut self, end: usize) {
        let mut at = self.pieces.cutting.seen + 1;
        while at < end {
            let block = at & !63;
            if block != self.pieces.cutting.block {
                if block % POLLED == 0 {
                    poll(POLLED);
                }
                self.pieces.cutting.block = block;
                self.pieces.cutting.dead = self.level.dead_pairs(self.text, block);
            }
            let stop = end.min(block + 64);
            let within = (u64::MAX << (at - block)) & (u64::MAX >> (block + 64 - stop));
            self.queue_parts(block, self.pieces.cutting.dead & within, 0, self.part_mark());
            at = stop;
        }
        self.pieces.cutting.seen = end - 1;
    }

    /// The mark of a part, which must not be confused with a whole piece.
    #[inline(always)]
    fn part_mark(&self) -> u64 {
        if self.level.short_whole_tokens().is_some() {
            MARK_PART
        } else {
            0
        }
    }

    /// Queues the parts that end at `cuts`, relative to `at`. Those in `ends` are ends of pieces, too.
    #[inline(always)]
    fn queue_parts(&mut self, at: usize, mut cuts: u64, ends: u64, mark: u64) {
        let Cutting { mut part, mut starts_piece, .. } = self.pieces.cutting;
        if cuts == 0 {
            return;
        }
        let others = cuts & (cuts - 1);
        let short = at + cuts.trailing_zeros() as usize - part <= SHORT && others & !near::<SHORT>(cuts) == 0;
        if short && mark == 0 {
            let last = cuts.ilog2();
            (self.pieces.cutting.part, self.pieces.cutting.starts_piece) = (at + last as usize, ends >> last & 1 != 0);
            if self.pieces.queue.push_parts::<FIRSTS>(at, cuts, ends, if starts_piece { Self::FIRST } else { 0 }) {
                self.apart().look_up(false);
            }
            return;
        }
        while cuts != 0 {
            let i = cuts.trailing_zeros() as usize;
            let ends_piece = ends >> i & 1 != 0;
            let whole = starts_piece && ends_piece;
            let first = if starts_piece { Self::FIRST } else { 0 };
            let end = at + i;
            if end - part > SHORT {
                self.apart().split_characters(part, end, first, mark);
            } else {
                self.queue(end as u64 | first | if whole { 0 } else { mark });
            }
            (part, starts_piece) = (end, ends_piece);
            cuts &= cuts - 1;
        }
        (self.pieces.cutting.part, self.pieces.cutting.starts_piece) = (part, starts_piece);
    }

    /// Queues a part of a piece, or parts of it: with marks of the first one and of all.
    #[inline(never)]
    fn split_characters(mut self, start: usize, end: usize, mut first: u64, mark: u64) {
        self.level.seams.each_uncrossed(self.text, start..end, |cut| {
            self.queue(cut as u64 | first | mark);
            first = 0;
        });
        self.queue(end as u64 | first | mark);
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
        match (FIRSTS, level.short_whole_tokens().is_some()) {
            (false, false) => queue.look_up::<0>(text, caches, misses, out),
            (true, false) => queue.look_up::<MARK_FIRST>(text, caches, misses, out),
            (_, true) => queue.look_up::<{ MARK_FIRST | MARK_PART }>(text, caches, misses, out),
        }
        if misses.are_due(out.len()) || all && !misses.list.is_empty() {
            misses.merge(level, text, caches, out);
        }
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
