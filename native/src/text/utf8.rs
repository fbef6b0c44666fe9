//! Decoding of UTF-8.

/// Whether a character begins with this byte.
#[inline(always)]
pub fn is_start(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

/// Code point and byte length of the character at `text[at]`. A malformed byte is U+FFFD, one byte long.
#[inline(always)]
pub fn decode(text: &[u8], at: usize) -> (u32, usize) {
    const MALFORMED: (u32, usize) = (0xFFFD, 1);
    let rest = &text[at..];
    let tail = |i: usize| rest.get(i).filter(|&&b| b & 0xC0 == 0x80).map(|&b| (b & 0x3F) as u32);
    match rest[0] {
        byte @ 0..=0x7F => (byte as u32, 1),
        lead @ 0xC2..=0xDF => match tail(1) {
            Some(b) => (((lead & 0x1F) as u32) << 6 | b, 2),
            None => MALFORMED,
        },
        lead @ 0xE0..=0xEF => match (tail(1), tail(2)) {
            (Some(b), Some(c)) => (((lead & 0x0F) as u32) << 12 | b << 6 | c, 3),
            _ => MALFORMED,
        },
        lead @ 0xF0..=0xF4 => match (tail(1), tail(2), tail(3)) {
            (Some(b), Some(c), Some(d)) => {
                let code_point = ((lead & 0x07) as u32) << 18 | b << 12 | c << 6 | d;
                if code_point < 0x11_0000 {
                    (code_point, 4)
                } else {
                    MALFORMED
                }
            }
            _ => MALFORMED,
        },
        _ => MALFORMED,
    }
}
