//! The scanner of `spans-plus`; see its regex in `patterns.rs`.

use std::ops::RangeInclusive;

use super::classes::{Classes, EMOJI, LETTER, NOT_OTHER, NUMBER};
use super::scalar::{all_but_last, letters, newlines, numbers, white_space};
use crate::text::utf8::decode;

const ZERO_WIDTH_JOINER: &[u8] = "\u{200D}".as_bytes();
const VARIATION: &[u8] = "\u{FE0F}".as_bytes();
const KEYCAP: &[u8] = "\u{20E3}".as_bytes();
const LAST_TAG: &[u8] = "\u{E007F}".as_bytes();
const APOSTROPHE: &[u8] = "\u{2019}".as_bytes();

/// Length of a contraction at `at`, or 0: either apostrophe, then ASCII letters of either case.
#[inline(always)]
pub fn contraction(text: &[u8], at: usize) -> usize {
    let apostrophe = match text[at] {
        b'\'' => 1,
        0xE2 if text[at..].starts_with(APOSTROPHE) => APOSTROPHE.len(),
        _ => return 0,
    };
    let lower = |i: usize| text.get(at + apostrophe + i).map(u8::to_ascii_lowercase);
    match (lower(0), lower(1)) {
        (Some(b's' | b'd' | b'm' | b't'), _) => apostrophe + 1,
        (Some(b'l'), Some(b'l')) | (Some(b'v' | b'r'), Some(b'e')) => apostrophe + 2,
        _ => 0,
    }
}

/// Bytes that may continue a number: windows leave these to this scanner.
#[inline(always)]
pub fn may_continue_number(byte: u8) -> bool {
    matches!(byte, b',' | b'_' | b'.' | b'e' | b'E')
}

fn is_in(text: &[u8], at: usize, characters: RangeInclusive<u32>) -> bool {
    at < text.len() && characters.contains(&decode(text, at).0)
}

/// End of the emoji cluster at `at`, without a leading space.
fn emoji(classes: &Classes, text: &[u8], at: usize) -> Option<usize> {
    let starts = |at: usize, what: &[u8]| text[at..].starts_with(what);
    let flag = |at: usize| is_in(text, at, 0x1F1E6..=0x1F1FF);
    if matches!(text.get(at), Some(b'0'..=b'9' | b'#' | b'*')) {
        let end = if starts(at + 1, VARIATION) { at + 1 + VARIATION.len() } else { at + 1 };
        return starts(end, KEYCAP).then_some(end + KEYCAP.len());
    }
    if flag(at) {
        return Some(if flag(at + 4) { at + 8 } else { at + 4 });
    }
    let mut end = symbol(classes, text, at)?;
    while starts(end, ZERO_WIDTH_JOINER) {
        match symbol(classes, text, end + ZERO_WIDTH_JOINER.len()) {
            Some(next) => end = next,
            None => break,
        }
    }
    Some(end)
}

fn symbol(classes: &Classes, text: &[u8], at: usize) -> Option<usize> {
    let (class, length) = classes.at(text, at);
    if class & EMOJI == 0 || is_in(text, at, 0x1F1E6..=0x1F1FF) {
        return None;
    }
    let mut end = at + length;
    if text[end..].starts_with(VARIATION) {
        end += VARIATION.len();
    } else if is_in(text, end, 0x1F3FB..=0x1F3FF) {
        end += 4;
    }
    let mut tags = end;
    while is_in(text, tags, 0xE0020..=0xE007E) {
        tags += 4;
    }
    if tags > end && text[tags..].starts_with(LAST_TAG) {
        end = tags + LAST_TAG.len();
    }
    Some(end)
}

/// End of what continues a number at `at`: an exponent, a group of thousands or the first decimals.
fn after_number(classes: &Classes, text: &[u8], at: usize) -> Option<usize> {
    let percent = |end: usize| if text.get(end) == Some(&b'%') { end + 1 } else { end };
    match text[at] {
        b'e' | b'E' => {
            let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
            let end = numbers::<3>(classes, text, at + 1 + sign);
            let more = classes.at(text, end).0 & (LETTER | NUMBER) != 0;
            (end > at + 1 + sign && !more).then_some(end)
        }
        b',' | b'_' => {
            let two = numbers::<2>(classes, text, at + 1);
            let end = numbers::<1>(classes, text, two);
            (end > two && classes.at(text, end).0 & NUMBER == 0).then(|| percent(end))
        }
        b'.' => {
            let end = numbers::<3>(classes, text, at + 1);
            (end > at + 1).then(|| percent(end))
        }
        _ => None,
    }
}

#[inline(always)]
pub fn spans_plus(classes: &Classes, text: &[u8], at: usize) -> usize {
    let contraction = contraction(text, at);
    if contraction > 0 {
        return at + contraction;
    }
    let (class, length) = classes.at(text, at);
    let word = if text[at] == b' ' { at + 1 } else { at };
    let first = text.get(word).copied().unwrap_or(0);
    // Only these bytes start a cluster; most text has none.
    if first >= 128 || matches!(first, b'0'..=b'9' | b'#' | b'*') {
        if let Some(end) = emoji(classes, text, word) {
            return end;
        }
    }
    if may_continue_number(text[at]) && classes.before(text, at) & NUMBER != 0 {
        if let Some(end) = after_number(classes, text, at) {
            return end;
        }
    }
    if class & LETTER != 0 {
        return letters(classes, text, at + length);
    }
    if class & NUMBER != 0 {
        let end = numbers::<3>(classes, text, at);
        return if text.get(end) == Some(&b'%') { end + 1 } else { end };
    }
    if text[at] != b'\n' && text[at] != b'\r' && classes.at(text, at + length).0 & LETTER != 0 {
        return letters(classes, text, at + length);
    }
    let other = |at: usize| {
        let (class, length) = classes.at(text, at);
        (length > 0 && class & (NOT_OTHER | EMOJI) == 0).then_some(at + length)
    };
    if let Some(mut end) = other(word) {
        while let Some(next) = other(end) {
            end = next;
        }
        return newlines(text, end);
    }
    let (end, last, line_end) = white_space(classes, text, at);
    if line_end > at {
        return line_end;
    }
    all_but_last(text, at, end, last)
}
