//! Finds starts of pieces in a window of 64 bytes by bit algebra, instead of one branch per character.
//!
//! A window begins where a piece begins. So it does not depend on the text before it, like the scalar scanners, and the
//! two can alternate at any piece: what the algebra cannot decide is left to them. Bit i of a mask stands for byte i, so
//! `mask << 1` refers to the byte before and `mask >> 1` to the byte after.
//!
//! Only certain starts are reported. What depends on text after the window (does this white space end at a word?) is
//! left to the next window, which begins at the last start.

use super::{
    classes::Classes,
    scalar::{contraction, small_contraction},
    sink::Sink,
    spans_plus::{self, may_continue_number},
    wide::Wide,
};
use crate::text::masks::{Bytes, BLOCK, PADDING};

/// The result of a window.
pub struct Window {
    /// Certain starts of pieces.
    starts: u64,
    /// Bytes that the scalar scanner has to handle, because the algebra cannot.
    scalar: usize,
}

/// A shorter rest of the text is left to the scalar scanner.
const WORTH_A_WINDOW: usize = 12;

/// Splits a text with `window(bytes, at)`, and with the scalar scanner `next(at)` where that is not certain.
#[inline(always)]
pub fn pieces(
    text: &[u8],
    mut sink: impl Sink,
    window: impl Fn(&[u8; BLOCK], usize) -> Window,
    next: impl Fn(usize) -> usize,
) {
    let (mut at, mut scalar_until) = (0, 0);
    while at < text.len() {
        if at >= scalar_until {
            let rest = &text[at..];
            let mut padded = [PADDING; BLOCK];
            let bytes = rest.first_chunk().or_else(|| {
                padded[..rest.len()].copy_from_slice(rest);
                (rest.len() >= WORTH_A_WINDOW).then_some(&padded)
            });
            if let Some(bytes) = bytes {
                let Window { starts, scalar } = window(bytes, at);
                // After the last window, only the uncertain end of the text is left.
                scalar_until = if rest.len() < BLOCK { text.len() } else { at + scalar };
                let first = at;
                at = sink.pieces(at, at, starts & !1);
                if at > first {
                    continue;
                }
            }
        }
        let end = next(at);
        sink.piece(at, end);
        at = end;
    }
}

/// The certain ones of `starts`: those before `end` and before `trouble`; if the text before it ends in a run of `open`
/// characters, those up to the run's first.
#[inline(always)]
fn certain(starts: u64, end: usize, trouble: u64, open: impl Fn(u64) -> u64) -> Window {
    let scalar = BLOCK - trouble.leading_zeros() as usize;
    let length = end.min(trouble.trailing_zeros() as usize);
    if length == 0 {
        return Window { starts: 0, scalar };
    }
    let last = 1 << (length - 1);
    let run = (open(last) << (BLOCK - length)).leading_ones() as usize;
    let certain_length = (length - run + 1).min(length);
    Window { starts: starts & (u64::MAX >> (BLOCK - certain_length)), scalar }
}

/// Calls `bit` with the index of every set bit, in order.
#[inline(always)]
fn each_bit(mut mask: u64, mut bit: impl FnMut(usize)) {
    while mask != 0 {
        bit(mask.trailing_zeros() as usize);
        mask &= mask - 1;
    }
}

#[inline(always)]
fn bit(i: usize) -> u64 {
    1u64.checked_shl(i as u32).unwrap_or(0)
}

/// First bytes of the runs of a class.
#[inline(always)]
pub fn runs(class: u64) -> u64 {
    class & !(class << 1)
}

/// The classes that all patterns use. Bytes outside ASCII are others, unless `all_classes` finds that they are letters.
pub struct ClassMasks {
    pub letter: u64,
    pub number: u64,
    pub white: u64,
    pub space: u64,
    pub other: u64,
    /// Bytes outside ASCII.
    pub outside: u64,
}

#[inline(always)]
pub fn ascii_classes(block: impl Bytes) -> ClassMasks {
    let (letter, number, space) = (block.letters(), block.within(b'0', b'9'), block.equal(b' '));
    let white = space | block.within(b'\t', b'\r');
    ClassMasks { letter, number, white, space, other: !(letter | number | white), outside: block.wide() }
}

/// The classes in a window, and what is known of its characters outside ASCII.
#[inline(always)]
pub fn all_classes<B: Bytes, const CASES: bool>(bytes: &[u8; BLOCK], table: &Classes) -> (ClassMasks, Wide) {
    let mut class = ascii_classes(B::load(bytes));
    let wide = Wide::new::<B, CASES>(bytes, class.outside, table);
    class.letter |= wide.letter;
    class.other &= !wide.letter;
    (class, wide)
}

/// Starts of words without a space before them, and starts in white space: of a run, and of its last character if the
/// word after it takes that.
#[inline(always)]
fn words(class: &ClassMasks, runs: u64, joins: u64) -> u64 {
    let ClassMasks { white, space, .. } = *class;
    (runs & !(space << 1)) | (white & (!(white << 1) | (joins >> 1)))
}

#[inline(always)]
pub fn gpt2<B: Bytes>(table: &Classes, bytes: &[u8; BLOCK], text: &[u8], at: usize) -> Window {
    let block = B::load(bytes);
    let (class, wide) = all_classes::<B, false>(bytes, table);
    let mut starts = words(&class, runs(class.letter) | runs(class.number) | runs(class.other), !class.white);
    each_bit(block.equal(b'\'') & (starts | 1), |i| {
        let length = small_contraction(text, at + i);
        if length > 0 {
            starts = starts & !bit(i + 1) | bit(i + length);
        }
    });
    certain(starts, wide.end, wide.trouble, |_| class.white)
}

#[inline(always)]
pub fn whitespace<B: Bytes>(table: &Classes, bytes: &[u8; BLOCK]) -> Window {
    let (class, wide) = all_classes::<B, false>(bytes, table);
    let starts = words(&class, runs(!class.white), !class.white);
    certain(starts, wide.end, wide.trouble, |_| class.white)
}

#[inline(always)]
pub fn uw_paper<B: Bytes>(table: &Classes, bytes: &[u8; BLOCK]) -> Window {
    let (class, wide) = all_classes::<B, false>(bytes, table);
    let number = class.number;
    let joins = class.letter | class.other;
    let starts = words(&class, runs(class.letter) | runs(class.other), joins) | triples(number);
    certain(starts, wide.end, wide.trouble, |last| if number & last != 0 { number } else { class.white })
}

/// Runs of a class that begin at one of `starts`.
#[inline(always)]
pub fn continued(class: u64, starts: u64) -> u64 {
    // Adding its first bit to a run of ones clears the run and carries into the zero after it.
    class & !class.wrapping_add(class & starts)
}

/// The common part of the cl100k and the o200k family: (starts except words and numbers, starts of runs of others,
/// white space except line breaks, line breaks that belong to the others before them).
#[inline(always)]
fn lines(block: impl Bytes, class: &ClassMasks) -> (u64, u64, u64, u64) {
    let ClassMasks { white, space, other, .. } = *class;
    let newline = block.equal(b'\n') | block.equal(b'\r');
    let blank = white & !newline;
    let others = runs(other) & !(space << 1);
    let taken = continued(newline, other << 1);
    let fresh = white & !taken;
    // A piece starts after the last line break of white space, but not after line breaks that belong to others.
    let mut after = blank & (newline << 1);
    each_bit(blank & (newline >> 1), |i| {
        let before = !blank & (bit(i) - 1);
        after &= !bit(BLOCK - before.leading_zeros() as usize);
    });
    (others | runs(fresh) | after | (blank & !(white >> 1)), others, blank, taken)
}

/// Starts of numbers, cut from the left every `MOST` digits.
#[inline(always)]
pub fn numbers<const MOST: usize>(number: u64) -> u64 {
    if MOST == 1 {
        return number;
    }
    let mut starts = runs(number);
    let full = number & number << 1 & number << 2 & number << 3;
    let mut more = starts << 3 & full;
    while more != 0 {
        starts |= more;
        more = more << 3 & full;
    }
    starts
}

/// Starts of numbers, cut from the right every three digits.
#[inline(always)]
pub fn triples(number: u64) -> u64 {
    let mut starts = runs(number);
    let full = number & number >> 1 & number >> 2;
    let mut cuts = (number & !(number >> 1)) >> 2 & full;
    while cuts != 0 {
        starts |= cuts;
        cuts = cuts >> 3 & full;
    }
    starts
}

#[inline(always)]
pub fn cl100k<B: Bytes, const DIGITS: usize>(table: &Classes, bytes: &[u8; BLOCK], text: &[u8], at: usize) -> Window {
    let block = B::load(bytes);
    let (class, wide) = all_classes::<B, false>(bytes, table);
    let (starts, others, blank, _) = lines(block, &class);
    let words = runs(class.letter) & !((blank | wide.last_bytes(others)) << 1);
    let mut starts = starts | numbers::<DIGITS>(class.number) | words;
    each_bit(block.equal(b'\'') & others, |i| {
        let length = contraction(text, at + i);
        if length > 0 {
            starts |= bit(i + length);
        }
    });
    certain(starts, wide.end, wide.trouble, |_| class.white)
}

#[inline(always)]
pub fn spans_plus<B: Bytes>(bytes: &[u8; BLOCK], text: &[u8], at: usize) -> Window {
    if may_continue_number(bytes[0]) {
        return Window { starts: 0, scalar: 1 };
    }
    let block = B::load(bytes);
    let class = ascii_classes(block);
    let (starts, others, blank, _) = lines(block, &class);
    let mut starts = starts | numbers::<3>(class.number) | runs(class.letter) & !((blank | others) << 1);
    each_bit(block.equal(b'\'') & others, |i| {
        let length = spans_plus::contraction(text, at + i);
        if length > 0 {
            starts |= bit(i + length);
        }
    });
    // A keycap takes the space before it, a number does not.
    let perhaps_keycap = class.number & (class.space << 1) & (class.outside >> 1 | 1 << (BLOCK - 1));
    let mut trouble = class.outside | perhaps_keycap;
    let after = class.number << 1 & !class.number;
    if after & !class.white != 0 {
        let separators = [b',', b'_', b'.', b'%'].map(|byte| block.equal(byte));
        let exponents = block.equal(b'e') | block.equal(b'E');
        trouble |= after & separators.into_iter().fold(exponents, |all, mask| all | mask);
    }
    certain(starts, BLOCK, trouble, |_| class.white)
}

#[inline(always)]
pub fn o200k<B: Bytes, const CONTRACTIONS: bool>(
    table: &Classes,
    bytes: &[u8; BLOCK],
    text: &[u8],
    at: usize,
) -> Window {
    let block = B::load(bytes);
    let (mut class, wide) = all_classes::<B, true>(bytes, table);
    let both = wide.upper & wide.lower;
    let upper = (block.within(b'A', b'Z') | wide.upper) & !both;
    let lower = (class.letter | wide.lower) & !(upper | both);
    // Marks are parts of words, like letters. But in a run of others they belong to that.
    let mark = both & !class.letter;
    class.letter |= mark;
    class.other &= !mark;
    let (starts, others, blank, taken) = lines(block, &class);
    let words = runs(class.letter) & !((blank | wide.last_bytes(others)) << 1) | upper & (lower << 1);
    let mut starts = starts | numbers::<3>(class.number) | words;
    if CONTRACTIONS {
        // A word takes at most one contraction. In order, since the letters of a contraction are not a word of their
        // own.
        let mut end = 0;
        each_bit(block.equal(b'\'') & (class.letter << 1), |i| {
            let length = if i == end { 0 } else { contraction(text, at + i) };
            if length > 0 {
                end = i + length;
                starts = starts & !(bit(end).wrapping_sub(bit(i))) | bit(end);
            }
        });
    }
    // Left to the scalar scanner:
    // - marks after others;
    // - a capital after a character of both cases: whether a word starts there depends on the letters around;
    // - a slash after line breaks that belong to others: it belongs to them, too.
    let slashes = if taken != 0 { block.equal(b'/') & (taken << 1) } else { 0 };
    let trouble = wide.trouble | mark & (class.other << 1) | upper & (both << 1) | slashes;
    certain(starts, wide.end, trouble, |_| class.white)
}
