//! Scanners of the fences: patterns with few matches, so most pieces are the gaps between matches.

use super::{
    classes::{Classes, ANY_NUMBER, LETTER, NUMBER, SPACE},
    scalar::{letters, newlines, newlines_and_slashes, numbers, others, punctuation_start, run, triple},
    sink::Sink,
    wide::Wide,
    windows::{all_classes, continued, numbers as number_starts, runs, triples, ClassMasks},
};
use crate::text::masks::{Block, Bytes, BLOCK, PADDING};

/// Blocks of which less is known are left to the scalar scanner.
const WORTH_A_WINDOW: usize = 40;

/// The matches of a fence in the first bytes of a block.
pub struct Found {
    /// Starts and ends of matches.
    boundaries: u64,
    /// Bytes that no match before them reaches, and that no match before them looks beyond.
    apart: u64,
    /// Bytes that the scalar scanner has to handle, because the algebra cannot.
    trouble: u64,
    /// All bytes at which a match may start, whatever the text around the block, and every byte outside ASCII.
    candidates: u64,
}

/// Leaves a block to the scalar scanner.
#[cfg(test)]
pub const UNKNOWN: Found = Found { boundaries: 0, apart: 0, trouble: u64::MAX, candidates: u64::MAX };

/// Reports the matches of a fence and the gaps between them, for each line alone if `lines`. `window` finds them in a
/// block that begins where no match is going on; it gets the line feeds that end a unit. `find(at)` is Ok(end) of a match
/// that starts at `at`, or Err(next position) if there is none; only what a match has after a line feed may differ
/// between a line alone and the text.
#[inline(always)]
pub fn pieces(
    text: &[u8],
    lines: bool,
    mut sink: impl Sink,
    window: impl Fn(&[u8; BLOCK], u64) -> Found,
    find: impl Fn(usize) -> Result<usize, usize>,
) {
    let (mut gap, mut at) = (0, 0);
    let (mut candidates, mut base, mut scalar_until) = (0, 0, 0);
    while at < text.len() {
        if at >= scalar_until {
            let rest = &text[at..];
            let mut padded = [PADDING; BLOCK];
            let bytes = rest.first_chunk().unwrap_or_else(|| {
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            });
            let feeds = if lines { Block::load(bytes).equal(b'\n') } else { 0 };
            let Found { boundaries, apart, trouble, candidates: starts } = window(bytes, feeds);
            (candidates, base) = (starts | feeds, at);
            scalar_until = at + if trouble == 0 { BLOCK } else { BLOCK - trouble.leading_zeros() as usize };
            // Text before the last byte that is apart does not depend on the text after it.
            let known = apart & !trouble & (trouble.wrapping_sub(1));
            if known >> WORTH_A_WINDOW != 0 {
                let last = known.ilog2() as usize;
                let ends = (boundaries | feeds << 1) & (u64::MAX >> (BLOCK - 1 - last)) & !u64::from(gap == at);
                gap = sink.pieces(gap, at, ends);
                at += last;
                if trouble == 0 {
                    scalar_until = at;
                }
                continue;
            }
        }
        let ahead = candidates >> (at - base);
        if ahead & 1 == 0 {
            at = (at + ahead.trailing_zeros() as usize).min(scalar_until);
            continue;
        }
        let found = find(at);
        let (Ok(mut end) | Err(mut end)) = found;
        let feed = if lines { memchr::memchr(b'\n', &text[at..end]) } else { None };
        if let Some(feed) = feed {
            end = at + feed + 1;
        }
        if found.is_ok() && gap < at {
            sink.piece(gap, at);
            gap = at;
        }
        if found.is_ok() || feed.is_some() {
            sink.piece(gap, end);
            gap = end;
        }
        at = end;
    }
    if gap < text.len() {
        sink.piece(gap, text.len());
    }
}

/// The first bytes of a text as a block, padded with zeros.
#[inline(always)]
pub fn load<B: Bytes>(text: &[u8]) -> B {
    if let Some(bytes) = text.first_chunk() {
        return B::load(bytes);
    }
    let mut padded = [0; BLOCK];
    padded[..text.len()].copy_from_slice(text);
    B::load(&padded)
}

/// Bit i of the result is bit i + 1 of the mask. The last bit is set, since the next byte is unknown.
#[inline(always)]
fn next(mask: u64) -> u64 {
    mask >> 1 | 1 << (BLOCK - 1)
}

/// Starts and ends of ` ?[^\s\p{L}\p{N}]{LEAST,}[\r\n]*`, and the slashes right after its line breaks. No match
/// continues after the line feeds `feeds`.
#[inline(always)]
fn punctuation_matches<const LEAST: usize>(
    block: impl Bytes,
    feeds: u64,
    class: &ClassMasks,
    wide: &Wide,
) -> (u64, u64) {
    let ClassMasks { space, other, .. } = *class;
    let newline = (block.equal(b'\n') | block.equal(b'\r')) & !(feeds << 1);
    let (mut starts, mut runs_of_others) = (runs(other), other);
    if LEAST == 2 {
        starts = wide.followed_by(starts, other);
        runs_of_others = continued(other, starts);
    }
    let after = runs_of_others << 1 & !other;
    let newlines = continued(newline, after);
    let ends = after & !newline | newlines << 1 & !newlines;
    (starts & !(space << 1) | starts >> 1 & space | ends, block.equal(b'/') & (newlines & !feeds) << 1)
}

#[inline(always)]
pub fn uw_2025_window<B: Bytes>(table: &Classes, bytes: &[u8; BLOCK], feeds: u64) -> Found {
    let (class, wide) = all_classes::<B, false>(bytes, table);
    let ClassMasks { letter, number, white, space, other, outside } = class;
    // Two others in a row, with or without a space before them, or spaces that no word follows.
    let two = other & next(other);
    let candidates = number | outside | two | space & (next(white) | next(two) | next(outside)) | other & next(outside);
    let (punctuation, slashes) = punctuation_matches::<2>(B::load(bytes), feeds, &class, &wide);
    // Of a run of spaces, the last one is left to a word after it. If it is the only one, there is no match.
    let last = space & !(space >> 1);
    let (left, taken) = (last & !(white >> 1), last & (white >> 1));
    let spaces = runs(space) & (space >> 1 | taken) | left & (space << 1) | taken << 1;
    let numbers = number_starts::<3>(number) | number << 1 & !number;
    let (boundaries, apart) = (punctuation | spaces | numbers, wide.first_bytes(letter | runs(number)));
    Found { boundaries, apart, trouble: wide.trouble | slashes, candidates }
}

#[inline(always)]
pub fn uw_paper_window<B: Bytes>(table: &Classes, bytes: &[u8; BLOCK], _feeds: u64) -> Found {
    let (ClassMasks { number, outside, .. }, wide) = all_classes::<B, false>(bytes, table);
    let boundaries = triples(number) | number << 1 & !number;
    Found { boundaries, apart: wide.first_bytes(!number), trouble: wide.trouble, candidates: number | outside }
}

#[inline(always)]
pub fn digits_window<B: Bytes>(table: &Classes, bytes: &[u8; BLOCK], _feeds: u64) -> Found {
    let (ClassMasks { number, outside, .. }, wide) = all_classes::<B, false>(bytes, table);
    let boundaries = runs(number) | number << 1 & !number;
    Found { boundaries, apart: wide.first_bytes(!number), trouble: wide.trouble, candidates: number | outside }
}

#[inline(always)]
pub fn punctuation_window<B: Bytes>(table: &Classes, bytes: &[u8; BLOCK], feeds: u64) -> Found {
    let (class, wide) = all_classes::<B, false>(bytes, table);
    let (boundaries, _) = punctuation_matches::<1>(B::load(bytes), feeds, &class, &wide);
    let ClassMasks { letter, number, space, other, outside, .. } = class;
    let candidates = other | outside | space & next(other | outside);
    Found { boundaries, apart: wide.first_bytes(letter | number), trouble: wide.trouble, candidates }
}

/// `\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)`
#[inline(always)]
pub fn uw_2025(classes: &Classes, text: &[u8], at: usize) -> Result<usize, usize> {
    let (class, length) = classes.at(text, at);
    if class & NUMBER != 0 {
        return Ok(numbers::<3>(classes, text, at));
    }
    if class & LETTER != 0 {
        return Err(letters(classes, text, at));
    }
    if let Some(start) = punctuation_start(classes, text, at) {
        let first = classes.at(text, start).1;
        let end = others(classes, text, start + first);
        if end > start + first {
            return Ok(newlines_and_slashes(text, end));
        }
    }
    if text[at] == b' ' {
        let mut end = at + 1;
        while end < text.len() && text[end] == b' ' {
            end += 1;
        }
        if end == text.len() || classes.at(text, end).0 & SPACE != 0 {
            return Ok(end);
        }
        if end - at >= 2 {
            return Ok(end - 1);
        }
    }
    Err(at + length)
}

/// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
#[inline(always)]
pub fn punctuation(classes: &Classes, text: &[u8], at: usize) -> Result<usize, usize> {
    match punctuation_start(classes, text, at) {
        Some(start) => Ok(newlines(text, others(classes, text, start))),
        None => Err(at + classes.at(text, at).1),
    }
}

/// `DIGITS+`
#[inline(always)]
pub fn digits(classes: &Classes, text: &[u8], at: usize) -> Result<usize, usize> {
    let end = run::<ANY_NUMBER, true>(classes, text, at);
    if end > at {
        Ok(end)
    } else {
        Err(at + classes.at(text, at).1)
    }
}

/// `\p{N}+`, then `(?=(\d{3})+(?!\d))`
#[inline(always)]
pub fn uw_paper(classes: &Classes, text: &[u8], at: usize) -> Result<usize, usize> {
    let (class, length) = classes.at(text, at);
    if class & NUMBER != 0 {
        return Ok(triple(classes, text, at));
    }
    if class & LETTER != 0 {
        return Err(letters(classes, text, at));
    }
    Err(at + length)
}
