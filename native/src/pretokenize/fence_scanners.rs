//! Scanners of the fences: patterns with few matches, so most pieces are the gaps between matches.

use super::{
    classes::{self, LETTER, NUMBER, SPACE},
    masks::{Bytes, BLOCK},
    scalar::{letters, newlines, newlines_and_slashes, numbers, others, punctuation_start, triple},
    windows::{classes, Classes},
};

/// Reports the matches of a fence and the gaps between them. `find(at)` is Ok(end) of a match that starts at `at`, or
/// Err(next position). It is only called at `candidates` of a block: all positions where a match may start, and every
/// byte outside ASCII.
#[inline(always)]
pub fn pieces<B: Bytes>(
    text: &[u8],
    mut piece: impl FnMut(usize, usize),
    candidates: impl Fn(B) -> u64,
    find: impl Fn(usize) -> Result<usize, usize>,
) {
    let (mut gap, mut at) = (0, 0);
    let (mut base, mut block) = (0, None);
    while at < text.len() {
        let places = match block.filter(|_| at - base < BLOCK) {
            Some(places) => places,
            None => {
                base = at;
                let places = candidates(load::<B>(&text[base..]));
                block = Some(places);
                places
            }
        };
        let ahead = places >> (at - base);
        if ahead & 1 == 0 {
            at = (at + ahead.trailing_zeros() as usize).min(base + BLOCK);
            continue;
        }
        match find(at) {
            Ok(end) => {
                if gap < at {
                    piece(gap, at);
                }
                piece(at, end);
                gap = end;
                at = end;
            }
            Err(next) => at = next,
        }
    }
    if gap < text.len() {
        piece(gap, text.len());
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

#[inline(always)]
pub fn uw_2025_candidates(block: impl Bytes) -> u64 {
    let Classes { number, white, space, other, wide, .. } = classes(block);
    // Two others in a row, with or without a space before them, or spaces that no word follows.
    let two = other & next(other);
    number | wide | two | space & (next(white) | next(two) | next(wide)) | other & next(wide)
}

#[inline(always)]
pub fn uw_paper_candidates(block: impl Bytes) -> u64 {
    let class = classes(block);
    class.number | class.wide
}

#[inline(always)]
pub fn punctuation_candidates(block: impl Bytes) -> u64 {
    let Classes { space, other, wide, .. } = classes(block);
    other | wide | space & next(other | wide)
}

/// `\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)`
#[inline(always)]
pub fn uw_2025(classes: &classes::Classes, text: &[u8], at: usize) -> Result<usize, usize> {
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
pub fn punctuation(classes: &classes::Classes, text: &[u8], at: usize) -> Result<usize, usize> {
    match punctuation_start(classes, text, at) {
        Some(start) => Ok(newlines(text, others(classes, text, start))),
        None => Err(at + classes.at(text, at).1),
    }
}

/// `\p{N}+`, then `(?=(\d{3})+(?!\d))`
#[inline(always)]
pub fn uw_paper(classes: &classes::Classes, text: &[u8], at: usize) -> Result<usize, usize> {
    let (class, length) = classes.at(text, at);
    if class & NUMBER != 0 {
        return Ok(triple(classes, text, at));
    }
    if class & LETTER != 0 {
        return Err(letters(classes, text, at));
    }
    Err(at + length)
}
