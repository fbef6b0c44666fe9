//! Ends of sentences: a fence that matches only positions, so every piece is the text between two of them.

use super::{
    classes::{Classes, SPACE},
    fence_scanners::load,
};
use crate::text::masks::{Bytes, BLOCK};

/// The pieces of `sentence-fence`.
#[inline(always)]
pub fn pieces<B: Bytes>(classes: &Classes, text: &[u8], mut piece: impl FnMut(usize, usize)) {
    let mut start = 0;
    for (number, bytes) in text.chunks(BLOCK).enumerate() {
        let mut candidates = last_bytes(load::<B>(bytes));
        while candidates != 0 {
            let after = number * BLOCK + candidates.trailing_zeros() as usize + 1;
            candidates &= candidates - 1;
            // Ends come in order and only once, also in malformed text: no closing quote contains a mark.
            if let Some(end) = sentence_end(classes, text, after).filter(|&end| end < text.len()) {
                piece(start, end);
                start = end;
            }
        }
    }
    if start < text.len() {
        piece(start, text.len());
    }
}

/// A superset of the positions of the last bytes of marks.
#[inline(always)]
fn last_bytes(block: impl Bytes) -> u64 {
    let newlines = block.equal(b'\n');
    let mut found = block.equal(b'.') | block.equal(b'!') | block.equal(b'?') | newlines & (newlines << 1 | 1);
    let wide = block.wide();
    if wide != 0 {
        let most = block.within(0x81, 0x82) | block.within(0xA1, 0xA6);
        found |= most | block.equal(0x8B) | block.equal(0x94) | block.equal(0x9F);
    }
    found
}

/// The end of the sentence whose mark may end before `at`.
#[inline(always)]
fn sentence_end(classes: &Classes, text: &[u8], at: usize) -> Option<usize> {
    let white = |at: usize| classes.at(text, at).0 & SPACE != 0;
    match text[..at] {
        // . ! ? … ؟ ۔
        [.., b'.' | b'!' | b'?'] | [.., 0xE2, 0x80, 0xA6] | [.., 0xD8, 0x9F] | [.., 0xDB, 0x94] => {
            let end = at + if white(at) { 0 } else { closing(&text[at..]) };
            white(end).then_some(end)
        }
        // 。 ！ ？ ｡
        [.., 0xE3, 0x80, 0x82] | [.., 0xEF, 0xBC, 0x81 | 0x9F] | [.., 0xEF, 0xBD, 0xA1] => {
            Some(at + wide_closing(&text[at..]))
        }
        // । ॥ ။ ። ។
        [.., 0xE0, 0xA5, 0xA4 | 0xA5] | [.., 0xE1, 0x81, 0x8B] | [.., 0xE1, 0x8D, 0xA2] | [.., 0xE1, 0x9F, 0x94] => {
            (wide_closing(&text[at..]) == 0).then_some(at)
        }
        [.., b'\n', b'\n'] => (text.get(at) != Some(&b'\n')).then_some(at),
        _ => None,
    }
}

/// Length of a leading one of `"'”’»)]`, or 0.
#[inline(always)]
fn closing(text: &[u8]) -> usize {
    match text {
        [b'"' | b'\'' | b')' | b']', ..] => 1,
        [0xC2, 0xBB, ..] => 2,
        [0xE2, 0x80, 0x99 | 0x9D, ..] => 3,
        _ => 0,
    }
}

/// Length of a leading one of `」』”’）`, or 0.
#[inline(always)]
fn wide_closing(text: &[u8]) -> usize {
    match text {
        [0xE3, 0x80, 0x8D | 0x8F, ..] | [0xE2, 0x80, 0x99 | 0x9D, ..] | [0xEF, 0xBC, 0x89, ..] => 3,
        _ => 0,
    }
}
