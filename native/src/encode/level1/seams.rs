//! Seams between two characters that no merge crosses, to split long pieces of text outside ASCII.
//!
//! Nearly every pair of bytes at the seam of two such characters occurs in some merge, because characters of a script
//! share their bytes. Pairs of characters do not. A merge that crosses a seam has a left part that ends in the character
//! before it, or in its last bytes, and a right part that begins with the character after it, or with its first bytes.

use std::ops::Range;

use crate::encode::{definition::Definition, rules::Rule};
use crate::text::utf8::is_start;

/// A hash set of pairs of characters or parts of them. False positives cost speed only.
pub(in crate::encode) struct Seams {
    crossed: Vec<u64>,
}

/// At most 256 KiB, which fit the second-level cache of the processor.
const BITS: Range<usize> = 1 << 10..1 << 21;

const MOST_BYTES: usize = 4;

impl Seams {
    pub(in crate::encode) fn new(definition: &Definition, rules: &[Rule]) -> Self {
        let bits = (rules.len() * 16).next_power_of_two().clamp(BITS.start, BITS.end);
        let mut this = Self { crossed: vec![0; bits / 64] };
        for Rule { merge, .. } in rules {
            let (left, right) = (definition.tokens.get(merge.left), definition.tokens.get(merge.right));
            if right.first().is_some_and(|&byte| is_start(byte)) && !left.is_empty() {
                let before = last_character(left).map_or(tail(left[left.len() - 1]), |start| key(&left[start..]));
                let after = &right[..character_length(right[0]).min(right.len())];
                let (at, bit) = this.place(before, key(after));
                this.crossed[at] |= bit;
            }
        }
        this
    }

    /// Calls `cut` with the positions inside a range of the text that no merge crosses, as far as pairs of characters
    /// tell. Only next to characters of three or more bytes: words of the other scripts are short enough.
    #[inline(always)]
    pub(in crate::encode) fn each_uncrossed(&self, text: &[u8], range: Range<usize>, mut cut: impl FnMut(usize)) {
        let mut start = range.start;
        if text[range.clone()].is_ascii() {
            return;
        }
        for at in range.start + 1..range.end {
            if !is_start(text[at]) {
                continue;
            }
            let wide = text[start] >= 0xE0 || text[at] >= 0xE0;
            if wide && at - start <= MOST_BYTES && is_start(text[start]) && self.uncrossed(text, start, at) {
                cut(at);
            }
            start = at;
        }
    }

    /// Whether no merge crosses the seam between the character `start..at` and the one at `at`.
    #[inline(always)]
    fn uncrossed(&self, text: &[u8], start: usize, at: usize) -> bool {
        let (before, last) = (key(&text[start..at]), tail(text[at - 1]));
        let after = &text[at..text.len().min(at + character_length(text[at]))];
        let wide = !is_start(text[at - 1]);
        let mut start = 0;
        for &byte in after {
            start = start << 8 | byte as u64;
            if self.is_crossed(before, start) || wide && self.is_crossed(last, start) {
                return false;
            }
        }
        true
    }

    #[inline(always)]
    fn is_crossed(&self, before: u64, after: u64) -> bool {
        let (at, bit) = self.place(before, after);
        self.crossed[at] & bit != 0
    }

    #[inline(always)]
    fn place(&self, before: u64, after: u64) -> (usize, u64) {
        let hash = (before << 32 | after).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let bit = (hash ^ hash >> 16) as usize & (self.crossed.len() * 64 - 1);
        (bit / 64, 1 << (bit % 64))
    }
}

/// Bytes of the character that begins with this byte.
#[inline(always)]
pub(super) fn character_length(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

/// Start of the last character of a string; None if its last four bytes do not contain it.
fn last_character(bytes: &[u8]) -> Option<usize> {
    (bytes.len().saturating_sub(MOST_BYTES)..bytes.len()).rev().find(|&at| is_start(bytes[at]))
}

/// Up to four bytes as an integer.
#[inline(always)]
fn key(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |key, &byte| key << 8 | byte as u64)
}

/// Key of the last byte of a character whose first bytes are unknown. Differs from that of every character.
#[inline(always)]
fn tail(byte: u8) -> u64 {
    byte as u64
}
