//! Blocks of 64 bytes as bit masks: bit i describes byte i.

/// Bytes per block.
pub const BLOCK: usize = 64;

/// Pads a block after the end of the text, and ends certainty. It is never part of UTF-8, so it does not complete a
/// truncated character.
pub const PADDING: u8 = 0xFF;

/// Classification of the bytes of a block, one bit per byte.
pub trait Bytes: Copy {
    fn load(bytes: &[u8; BLOCK]) -> Self;
    /// Bytes equal to `byte`.
    fn equal(self, byte: u8) -> u64;
    /// Bytes from `first` to `last`.
    fn within(self, first: u8, last: u8) -> u64;
    /// ASCII letters.
    fn letters(self) -> u64;
    /// Bytes of 128 and above: parts of characters outside ASCII.
    fn wide(self) -> u64;
}

/// Portable version; compilers vectorise the loops.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[derive(Clone, Copy)]
pub struct Portable([u8; BLOCK]);

#[cfg(any(test, not(target_arch = "x86_64")))]
impl Portable {
    #[inline(always)]
    fn mask(self, test: impl Fn(u8) -> bool) -> u64 {
        self.0.iter().enumerate().fold(0, |mask, (i, &byte)| mask | u64::from(test(byte)) << i)
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
impl Bytes for Portable {
    #[inline(always)]
    fn load(bytes: &[u8; BLOCK]) -> Self {
        Self(*bytes)
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        self.mask(|b| b == byte)
    }

    #[inline(always)]
    fn within(self, first: u8, last: u8) -> u64 {
        self.mask(|b| b.wrapping_sub(first) <= last - first)
    }

    #[inline(always)]
    fn letters(self) -> u64 {
        self.mask(|b| (b | 0x20).wrapping_sub(b'a') <= b'z' - b'a')
    }

    #[inline(always)]
    fn wide(self) -> u64 {
        self.mask(|b| b >= 128)
    }
}

/// SSE2, which every x86-64 processor has.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Sse2([std::arch::x86_64::__m128i; 4]);

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::*;

    use super::{Bytes, Sse2, BLOCK};

    impl Sse2 {
        #[inline(always)]
        fn mask(self, test: impl Fn(__m128i) -> __m128i) -> u64 {
            // SAFETY: SSE2 is part of x86-64.
            let part = |i: usize| u64::from(unsafe { _mm_movemask_epi8(test(self.0[i])) } as u32 as u16);
            part(0) | part(1) << 16 | part(2) << 32 | part(3) << 48
        }
    }

    /// Unsigned `v <= most`, lane by lane.
    #[inline(always)]
    fn at_most(v: __m128i, most: u8) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(most as i8)), v) }
    }

    impl Bytes for Sse2 {
        #[inline(always)]
        fn load(bytes: &[u8; BLOCK]) -> Self {
            // SAFETY: SSE2 is part of x86-64, and the loads stay within the 64 bytes.
            Self([0, 16, 32, 48].map(|i| unsafe { _mm_loadu_si128(bytes.as_ptr().add(i).cast()) }))
        }

        #[inline(always)]
        fn equal(self, byte: u8) -> u64 {
            // SAFETY: SSE2 is part of x86-64.
            self.mask(|v| unsafe { _mm_cmpeq_epi8(v, _mm_set1_epi8(byte as i8)) })
        }

        #[inline(always)]
        fn within(self, first: u8, last: u8) -> u64 {
            // SAFETY: SSE2 is part of x86-64.
            self.mask(|v| at_most(unsafe { _mm_sub_epi8(v, _mm_set1_epi8(first as i8)) }, last - first))
        }

        #[inline(always)]
        fn letters(self) -> u64 {
            // SAFETY: SSE2 is part of x86-64.
            self.mask(|v| unsafe {
                let lower = _mm_or_si128(v, _mm_set1_epi8(0x20));
                at_most(_mm_sub_epi8(lower, _mm_set1_epi8(b'a' as i8)), b'z' - b'a')
            })
        }

        #[inline(always)]
        fn wide(self) -> u64 {
            self.mask(|v| v)
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub type Block = Sse2;
#[cfg(not(target_arch = "x86_64"))]
pub type Block = Portable;

/// Bit i: the high bit of byte i.
#[inline(always)]
pub(crate) fn high_bits(bytes: &[u8; BLOCK]) -> u64 {
    Block::load(bytes).wide()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_classified_alike_in_every_place() {
        for shift in 0..256 {
            let bytes: [u8; BLOCK] = std::array::from_fn(|i| ((i * 4 + i / 7 + shift) % 256) as u8);
            let (fast, plain) = (Block::load(&bytes), Portable::load(&bytes));
            let expect =
                |test: &dyn Fn(u8) -> bool| (0..BLOCK).filter(|&i| test(bytes[i])).fold(0u64, |mask, i| mask | 1 << i);
            for byte in 0..=255 {
                assert_eq!(fast.equal(byte), expect(&|b| b == byte));
                assert_eq!(plain.equal(byte), fast.equal(byte));
                let last = byte.saturating_add(5);
                assert_eq!(fast.within(byte, last), expect(&|b| (byte..=last).contains(&b)));
                assert_eq!(plain.within(byte, last), fast.within(byte, last));
            }
            assert_eq!(fast.letters(), expect(&|b| b.is_ascii_alphabetic()));
            assert_eq!(plain.letters(), fast.letters());
            assert_eq!(fast.wide(), expect(&|b| !b.is_ascii()));
            assert_eq!(plain.wide(), fast.wide());
        }
    }
}
