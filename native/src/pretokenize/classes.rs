//! Character classes of the named patterns, from the tables of `regex-syntax` (Unicode 16.0).
//!
//! HF `tokenizers` and `tiktoken` use the same tables, so the scanners cut where they do.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

use super::emoji::EMOJI_CLASS;
use super::patterns::DIGITS;
use crate::text::utf8::decode;

pub const LETTER: u8 = 1; // \p{L}
pub const NUMBER: u8 = 2; // \p{N}
pub const SPACE: u8 = 4; // \s
pub const UPPER: u8 = 8; // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
pub const LOWER: u8 = 16; // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
pub const DIGIT: u8 = 32; // \d, which is \p{Nd}
pub const EMOJI: u8 = 64; // first character of an emoji cluster in spans-plus
pub const ANY_NUMBER: u8 = 128; // DIGITS

/// Characters that `[^\s\p{L}\p{N}]` excludes.
pub const NOT_OTHER: u8 = LETTER | NUMBER | SPACE;

const BLOCK: usize = 256;

/// A two-stage table: code point / 256 selects a block, the remainder an entry. Equal blocks are shared.
pub struct Classes {
    block_of: Vec<u16>,
    blocks: Vec<[u8; BLOCK]>,
    ascii: [u8; 128],
}

/// The tables. The binding makes them when it is imported: a fork while another thread does would leave the lock held.
pub static CLASSES: LazyLock<Classes> = LazyLock::new(Classes::new);

impl Classes {
    fn new() -> Self {
        let mut flat = vec![0u8; 0x11_0000];
        for (class, bit) in [
            (r"\p{L}", LETTER),
            (r"\p{N}", NUMBER),
            (r"\s", SPACE),
            (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", UPPER),
            (r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", LOWER),
            (r"\p{Nd}", DIGIT),
            (EMOJI_CLASS, EMOJI),
            (DIGITS, ANY_NUMBER),
        ] {
            for (start, end) in ranges(class) {
                for entry in &mut flat[start as usize..=end as usize] {
                    *entry |= bit;
                }
            }
        }
        let mut blocks: Vec<[u8; BLOCK]> = Vec::new();
        let mut seen = std::collections::HashMap::new();
        let block_of = flat
            .chunks_exact(BLOCK)
            .map(|chunk| {
                let block: [u8; BLOCK] = chunk.try_into().expect("chunks_exact");
                *seen.entry(block).or_insert_with(|| {
                    blocks.push(block);
                    (blocks.len() - 1) as u16
                })
            })
            .collect();
        let ascii = flat[..128].try_into().expect("128 entries");
        Self { block_of, blocks, ascii }
    }

    /// Class bits of a code point.
    #[inline(always)]
    pub fn of(&self, code_point: u32) -> u8 {
        let block = self.block_of[code_point as usize / BLOCK] as usize;
        self.blocks[block][code_point as usize % BLOCK]
    }

    /// Class bits and byte length of the character at `text[at]`; (0, 0) at the end.
    #[inline(always)]
    pub fn at(&self, text: &[u8], at: usize) -> (u8, usize) {
        match text.get(at) {
            None => (0, 0),
            Some(&byte) if byte < 128 => (self.ascii[byte as usize], 1),
            Some(_) => self.wide_at(text, at),
        }
    }

    /// `at` outside ASCII, in one function for all scanners.
    #[inline(never)]
    fn wide_at(&self, text: &[u8], at: usize) -> (u8, usize) {
        let (code_point, length) = decode(text, at);
        (self.of(code_point), length)
    }

    /// Class bits of the character that ends at `text[at]`; 0 at the start.
    #[inline]
    pub fn before(&self, text: &[u8], at: usize) -> u8 {
        match at.checked_sub(1).map(|last| text[last]) {
            None => 0,
            Some(byte) if byte < 128 => self.ascii[byte as usize],
            Some(_) => {
                let starts = (2..=4).filter_map(|length| at.checked_sub(length)).filter(|&start| text[start] >= 0xC2);
                let mut characters = starts.map(|start| (start, decode(text, start)));
                let character = characters.find(|&(start, (_, length))| start + length == at);
                character.map_or(self.of(0xFFFD), |(_, (code_point, _))| self.of(code_point))
            }
        }
    }
}

fn ranges(class: &str) -> Vec<(u32, u32)> {
    let hir = regex_syntax::parse(class).expect("a valid class");
    match hir.kind() {
        HirKind::Class(Class::Unicode(set)) => {
            set.iter().map(|range| (range.start() as u32, range.end() as u32)).collect()
        }
        _ => unreachable!("a class of characters"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(bit: u8) -> usize {
        (0..0x11_0000).filter(|&c| CLASSES.of(c) & bit != 0).count()
    }

    #[test]
    fn tables_are_unicode_16() {
        assert_eq!(count(LETTER), 141_028);
        assert_eq!(count(NUMBER), 1_911);
        assert_eq!(count(SPACE), 25);
        assert_eq!(count(DIGIT), 760);
    }

    #[test]
    fn emoji_are_others_and_digits_are_numbers() {
        for code_point in 0..0x11_0000 {
            let class = CLASSES.of(code_point);
            assert!(class & EMOJI == 0 || class & NOT_OTHER == 0, "U+{code_point:04X}");
            assert!(class & DIGIT == 0 || class & NUMBER != 0, "U+{code_point:04X}");
        }
    }
}
