//! Characters outside ASCII in a window, as bit masks: every byte of a character has the bit of the character.
//!
//! Masks treat letters and other characters of two and three bytes. Numbers and white space outside ASCII, characters of
//! four bytes and malformed bytes are trouble, which is left to the scalar scanners.

use super::classes::{Classes, LETTER, LOWER, NUMBER, SPACE, UPPER};
use crate::text::masks::{Bytes, BLOCK, PADDING};

pub struct Wide {
    pub letter: u64,
    /// Uppercase letters, and characters that can stand for upper or lower case. 0 without `CASES`, like `lower`.
    pub upper: u64,
    pub lower: u64,
    /// Bytes that the scalar scanner has to handle.
    pub trouble: u64,
    /// Length of the window without the character that its end cuts, if there is one.
    pub end: usize,
    /// First bytes of characters of two bytes, and of three.
    two: u64,
    three: u64,
}

impl Wide {
    const NONE: Self = Self { letter: 0, upper: 0, lower: 0, trouble: 0, end: BLOCK, two: 0, three: 0 };

    /// `CASES`: whether upper and lower case are needed.
    #[inline(always)]
    pub fn new<B: Bytes, const CASES: bool>(bytes: &[u8; BLOCK], wide: u64, classes: &Classes) -> Self {
        if wide == 0 {
            return Self::NONE;
        }
        // Often, only the padding after the text is outside ASCII.
        if bytes[BLOCK - 1] == PADDING && wide.leading_ones() == wide.count_ones() {
            return Self { trouble: wide, ..Self::NONE };
        }
        Self::some::<B, CASES>(bytes, wide, classes)
    }

    #[inline(never)]
    fn some<B: Bytes, const CASES: bool>(bytes: &[u8; BLOCK], wide: u64, classes: &Classes) -> Self {
        let block = B::load(bytes);
        let (two, three, tails) = (block.within(0xC2, 0xDF), block.within(0xE0, 0xEF), block.within(0x80, 0xBF));
        let mut found = Self { two, three, ..Self::NONE };
        let mut white_or_number = 0;
        let mut left = two | three;
        while left != 0 {
            let i = left.trailing_zeros() as usize;
            left &= left - 1;
            let low = |offset| (bytes[(i + offset) % BLOCK] & 0x3F) as u32;
            let is_three = three >> i & 1;
            // Both lengths without a branch. The first byte of three has 4 bits of the character, that of two has 5.
            let pair = low(0) << 6 | low(1);
            let code_point = if is_three != 0 { (pair << 6 | low(2)) & 0xFFFF } else { pair & 0x7FF };
            let class = classes.of(code_point);
            let span = (3 | is_three << 2) << i;
            let if_in = |classes: u8| if class & classes != 0 { span } else { 0 };
            found.letter |= if_in(LETTER);
            white_or_number |= if_in(NUMBER | SPACE);
            if CASES {
                found.upper |= if_in(UPPER);
                found.lower |= if_in(LOWER);
            }
        }
        if three >> (BLOCK - 2) & 1 != 0 {
            found.end = BLOCK - 2;
        } else if (two | three) >> (BLOCK - 1) != 0 {
            found.end = BLOCK - 1;
        }
        let expected = (two | three) << 1 | three << 2;
        let malformed = (expected ^ tails) | (wide & !(two | three | tails));
        // The first byte of a character whose end is missing is at most two bytes before that.
        found.trouble = white_or_number | malformed | malformed >> 1 | malformed >> 2;
        let known = !found.trouble & (u64::MAX >> (BLOCK - found.end));
        found.letter &= known;
        found.upper &= known;
        found.lower &= known;
        found
    }

    /// Last bytes of the characters that begin at `starts`.
    #[inline(always)]
    pub fn last_bytes(&self, starts: u64) -> u64 {
        starts & !(self.two | self.three) | (starts & self.two) << 1 | (starts & self.three) << 2
    }

    /// Those of the characters at `starts` after which a byte of `class` comes.
    #[inline(always)]
    pub fn followed_by(&self, starts: u64, class: u64) -> u64 {
        starts & !(self.two | self.three) & class >> 1
            | starts & self.two & class >> 2
            | starts & self.three & class >> 3
    }

    /// The first bytes of the whole characters among `bytes`.
    #[inline(always)]
    pub fn first_bytes(&self, bytes: u64) -> u64 {
        bytes & !(self.two << 1 | self.three << 1 | self.three << 2) & (u64::MAX >> (BLOCK - self.end))
    }
}
