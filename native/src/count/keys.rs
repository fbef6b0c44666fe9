//! Short byte strings as integer keys, for tables that are probed millions of times a second.

/// Longest string that fits a key.
pub const SHORT: usize = 15;

const MASKS: [u128; 16] = {
    let mut masks = [0; 16];
    let mut length = 0;
    while length < 16 {
        masks[length] = (1u128 << (8 * length)) - 1;
        length += 1;
    }
    masks
};

/// Up to 15 bytes and their length (in the top byte) as one integer.
#[inline(always)]
pub fn short_key(text: &[u8], start: usize, end: usize) -> u128 {
    let length = end - start;
    debug_assert!(length <= SHORT);
    let raw = match text.get(start..).and_then(<[u8]>::first_chunk) {
        Some(bytes) => u128::from_le_bytes(*bytes),
        // Near the end: load the last 16 bytes and shift out those before `start`.
        None if text.len() >= 16 && start < text.len() => {
            let last = u128::from_le_bytes(*text.last_chunk().expect("16 bytes"));
            last >> (8 * (start + 16 - text.len()))
        }
        None => {
            let mut bytes = [0; 16];
            bytes[..length].copy_from_slice(&text[start..end]);
            u128::from_le_bytes(bytes)
        }
    };
    (raw & MASKS[length & 15]) | (length as u128) << 120
}

#[inline(always)]
pub fn hash_key(key: u128) -> u64 {
    let (low, high) = (key as u64 ^ 0x9E37_79B9_7F4A_7C15, (key >> 64) as u64 ^ 0xBF58_476D_1CE4_E5B9);
    let product = low as u128 * high as u128;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_depend_on_what_is_around() {
        for length in 0..40 {
            let text: Vec<u8> = (1..=length).collect();
            for start in 0..text.len() {
                for end in start + 1..=text.len().min(start + SHORT) {
                    let piece = &text[start..end];
                    let mut bytes = [0; 16];
                    bytes[..piece.len()].copy_from_slice(piece);
                    bytes[15] = piece.len() as u8;
                    assert_eq!(short_key(&text, start, end), u128::from_le_bytes(bytes), "{start}..{end} of {length}");
                }
            }
        }
    }
}
