//! Fences: patterns that match little, so that most pieces are the gaps between matches.

use super::scalar::{letters, newlines, newlines_and_slashes, numbers, others, punctuation_start, triple};
use crate::unicode::{Classes, LETTER, NUMBER, SPACE};

/// Reports matches of a fence and the gaps between them. `find(at)` is Ok(end) of a match that starts at `at`,
/// or Err(at + length of the character there).
#[inline(always)]
pub fn pieces(text: &[u8], mut piece: impl FnMut(usize, usize), find: impl Fn(usize) -> Result<usize, usize>) {
    let (mut gap, mut at) = (0, 0);
    while at < text.len() {
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
