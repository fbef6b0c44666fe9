//! The text of a well-formed record whose text is a string at the top level: the fast path of `records`, which parses
//! all other lines and reports errors.

use serde::de::IgnoredAny;

use crate::runtime::memory;
use crate::text::masks::{Block, Bytes, BLOCK};

/// Appends the text of a line to `out`, without validating its UTF-8. False, with `out` as it was, if the line is left to
/// the general parser.
pub(super) fn parse(line: &[u8], field: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let parsed = is_plain(field.as_bytes()) && object(line, field.as_bytes(), out).is_some();
    if !parsed {
        out.truncate(start);
    }
    parsed
}

/// Parses an object that has the field once, with a string.
fn object(line: &[u8], field: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut found = false;
    let mut at = after(line, 0, b'{')?;
    loop {
        let start = after(line, at, b'"')?;
        let end = start + memchr::memchr2(b'"', b'\\', &line[start..])?;
        let key = &line[start..end];
        if !is_plain(key) {
            return None;
        }
        at = after(line, after(line, end, b'"')?, b':')?;
        if key == field && !found {
            at = string(line, after(line, at, b'"')?, out)?;
            found = true;
        } else if key == field {
            return None; // the last one counts
        } else {
            at += value(&line[at..])?;
        }
        match after(line, at, b',') {
            Some(next) => at = next,
            None => break,
        }
    }
    let end = after(line, at, b'}')?;
    (found && line[end..].iter().all(is_space)).then_some(())
}

/// Whether a key is written without escapes.
fn is_plain(key: &[u8]) -> bool {
    key.iter().all(|byte| !matches!(byte, 0..b' ' | b'"' | b'\\')) && std::str::from_utf8(key).is_ok()
}

/// The position after white space and this byte.
#[inline(always)]
fn after(line: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    while line.get(at).is_some_and(is_space) {
        at += 1;
    }
    (*line.get(at)? == byte).then_some(at + 1)
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The length of a value of any type.
fn value(rest: &[u8]) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

/// Index: the byte after a backslash. Value: the character of the escape; 0 for `u`, which four digits follow, and for
/// invalid escapes.
const ESCAPED: [u8; 256] = {
    let mut escaped = [0; 256];
    let pairs = *b"\"\"\\\\//b\x08f\x0Cn\nr\rt\t";
    let mut i = 0;
    while i < pairs.len() {
        escaped[pairs[i] as usize] = pairs[i + 1];
        i += 2;
    }
    escaped
};

/// Maximum growth of the space for the characters of a string, whose length is not known.
const MOST_GROWTH: usize = 1 << 18;

/// What a step may append: a block or the end of a line, and a character.
const STEP: usize = BLOCK + 8;

/// Appends the characters of a string from `at` on. Returns the position after its closing quote.
fn string(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Option<usize> {
    loop {
        let start = out.len();
        let growth = (line.len() - at + STEP).min(MOST_GROWTH);
        memory::reserve(out, growth);
        out.resize(start + growth, 0);
        let (mut end, mut closed) = (0, false);
        let space = &mut out[start..];
        while !closed && end + STEP <= space.len() {
            let plain = match line[at..].first_chunk::<{ BLOCK + 2 }>() {
                Some(bytes) => {
                    let block: &[u8; BLOCK] = bytes.first_chunk().expect("a block");
                    let stops = Block::load(block).equal(b'"') | Block::load(block).equal(b'\\');
                    let (plain, stopped) = (stops.trailing_zeros() as usize, stops != 0);
                    let to: &mut [u8; BLOCK + 1] = space[end..].first_chunk_mut().expect("a step");
                    to[..BLOCK].copy_from_slice(block);
                    let escaped = ESCAPED[bytes[plain + 1] as usize];
                    if !(stopped & ((bytes[plain] == b'"') | (escaped == 0))) {
                        // A branch on whether the block has an escape would often be mispredicted.
                        to[plain] = escaped;
                        end += plain + stopped as usize;
                        at += plain + 2 * stopped as usize;
                        continue;
                    }
                    plain
                }
                None => {
                    let plain = memchr::memchr2(b'"', b'\\', &line[at..])?;
                    space[end..end + plain].copy_from_slice(&line[at..at + plain]);
                    plain
                }
            };
            end += plain;
            at += plain + 1;
            closed = line[at - 1] == b'"';
            if !closed {
                let (character, length) = escape(&line[at..])?;
                end += character.encode_utf8(&mut space[end..]).len();
                at += length;
            }
        }
        out.truncate(start + end);
        if closed {
            return Some(at);
        }
    }
}

/// The character of what follows a backslash, and the length of that.
fn escape(after: &[u8]) -> Option<(char, usize)> {
    match ESCAPED[*after.first()? as usize] {
        0 if after[0] == b'u' => code_point(after),
        0 => None,
        character => Some((character as char, 1)),
    }
}

/// The character of `uXXXX`, or of a surrogate pair, and the length.
fn code_point(escape: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = escape.get(at..at + 4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let first = unit(1)?;
    match first {
        0xD800..0xDC00 if escape.get(5..7)? == b"\\u" => {
            let second = unit(7).filter(|second| (0xDC00..0xE000).contains(second))?;
            Some((char::from_u32(0x1_0000 + ((first - 0xD800) << 10 | (second - 0xDC00)))?, 11))
        }
        _ => Some((char::from_u32(first)?, 5)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::records;
    use super::*;
    use crate::runtime::random::Random;

    /// What is accepted gives the text of the general parser.
    #[test]
    fn texts_equal_those_of_the_general_parser() {
        const PARTS: &[&str] = &[
            "{",
            "}",
            "{\"text\":\"",
            "\"text\"",
            "\"url\"",
            ":",
            ",",
            "\"",
            "\":\"",
            "\",\"",
            "\"}",
            " ",
            "\t",
            "\r",
            "text",
            "\\n",
            "\\\"",
            "\\\\",
            "\\/",
            "\\b\\f\\r\\t",
            "\\u00e9",
            "\\u20AC",
            "\\ud83d\\ude00",
            "\\ud83d",
            "\\ude00",
            "\\u12",
            "\\u+123",
            "\\x",
            "é",
            "中",
            "\u{1}",
            "\u{7f}",
            "null",
            "true",
            "-1.5e3",
            "01",
            "[1,{\"a\":\"}\"}]",
            "{\"text\":1}",
            "\"metadata\":{\"a\":[]}",
            "the words of a longer text, which fill more than one block of bytes, and more",
        ];
        let field = ["text".to_string()];
        let mut random = Random(17);
        let mut accepted = 0;
        for i in 0..200_000 {
            let mut line: String = (0..random.below(9)).map(|_| random.of(PARTS)).collect();
            if i % 2 == 0 {
                line = ["{\"text\":\"", &line, "\",\"id\":[1,2]}"].concat();
            }
            let (mut fast, mut general) = (b"before".to_vec(), b"before".to_vec());
            if parse(line.as_bytes(), "text", &mut fast) {
                records::general(line.as_bytes(), &field, None, &mut general).unwrap_or_else(|e| panic!("{line}: {e}"));
                accepted += 1;
            }
            assert_eq!(fast, general, "{line}");
        }
        assert!(accepted > 20_000, "{accepted}");
    }

    #[test]
    fn ordinary_lines_are_accepted() {
        let long = "x".repeat(1000);
        let longer = "é and \\n".repeat(100_000);
        for (line, expected) in [
            (r#"{"text": "a\nb", "url": "http://a", "metadata": {"source": "b", "n": [1, 2.5]}}"#.to_string(), "a\nb"),
            (r#" {"id" : null , "text":"\u00e9\ud83d\uDE00\u0000\u007f"} "#.to_string(), "é😀\0\u{7f}"),
            (format!("{{\"text\":\"{long}\"}}\r"), &long),
            (format!("{{\"text\":\"{longer}\",\"id\":1}}"), &longer.replace("\\n", "\n")),
            (r#"{"text":""}"#.to_string(), ""),
        ] {
            let mut out = Vec::new();
            assert!(parse(line.as_bytes(), "text", &mut out), "{line}");
            assert_eq!(out, expected.as_bytes());
        }
    }
}
