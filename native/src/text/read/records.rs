//! Records of JSON lines: only the text and the score are parsed.
//!
//! As in every JSON parser, the last value of a repeated key counts. So a value of the wrong type is an error only when
//! the whole object has been read. Texts are decoded here, in blocks: with `serde_json`, which parses the rest, reading
//! takes 1.2 times (prose) to 1.9 times (code) as long.

use crate::runtime::quoting::{listed, shortened};
use crate::text::masks::{Block, Bytes, BLOCK};

/// What is wrong, and where in the line.
struct Wrong(String, usize);

impl Wrong {
    /// An error of the parser on what begins at `start`.
    fn of(error: &serde_json::Error, start: usize) -> Self {
        let what = error.to_string();
        let what = what.split(&format!(" at line {} column ", error.line())).next().unwrap_or_default();
        Self(what.to_string(), start + error.column().saturating_sub(1))
    }
}

/// Appends the text of a line to `out`, without validating its UTF-8, and returns the score.
pub fn parse(
    line: &[u8],
    field: &[String],
    score_field: Option<&[String]>,
    out: &mut Vec<u8>,
) -> Result<Option<f64>, String> {
    let result = match Record::read(line, field, score_field, out) {
        Err(wrong) => without_nan(line).map_or(Err(wrong), |line| Record::read(&line, field, score_field, out)),
        result => result,
    };
    match result {
        Ok((true, score)) => Ok(score),
        Ok((false, _)) => Err(format!(
            "no field {:?} (the fields are: {}); name the one that holds the text with field=NAME",
            field.join("."),
            names(line)
        )),
        Err(Wrong(what, at)) => Err(format!(
            "not a JSON object with a text field: {}, at column {}; fix the line, or leave damaged lines out with \
             on_error=skip",
            shortened(&what),
            at + 1
        )),
    }
}

/// The rest of a path of names to a value; None if it leads elsewhere.
type Path<'p> = Option<&'p [String]>;

/// The path from the member of this name on.
fn below<'p>(path: Path<'p>, name: &[u8]) -> Path<'p> {
    match path {
        Some([first, rest @ ..]) if first.as_bytes() == name => Some(rest),
        _ => None,
    }
}

struct Record<'l, 'o> {
    line: &'l [u8],
    /// The text is what follows `start`.
    out: &'o mut Vec<u8>,
    start: usize,
    /// Whether there is a text.
    text: Result<bool, Wrong>,
    score: Result<Option<f64>, Wrong>,
}

impl<'l, 'o> Record<'l, 'o> {
    /// Reads a line without NaN: whether it has a text, and the score.
    fn read(line: &'l [u8], field: &[String], score: Path, out: &'o mut Vec<u8>) -> Result<(bool, Option<f64>), Wrong> {
        let mut record = Self { line, start: out.len(), out, text: Ok(false), score: Ok(None) };
        let end = record.object(0, Some(field), score)?;
        match after_space(line, end) {
            rest if rest < line.len() => Err(Wrong("trailing characters".to_string(), rest)),
            _ => Ok((record.text?, record.score?)),
        }
    }

    /// Reads an object that a path leads into. Returns its end.
    fn object(&mut self, at: usize, text: Path, score: Path) -> Result<usize, Wrong> {
        let line = self.line;
        members(line, at, |name, value| match (below(text, name), below(score, name)) {
            (None, None) => end_of_value(line, value),
            (text, score) => self.value(value, text, score),
        })
    }

    /// Reads a value on or at the end of a path. Returns its end.
    fn value(&mut self, at: usize, text: Path, score: Path) -> Result<usize, Wrong> {
        let (is_text, is_score) = (text.is_some_and(<[_]>::is_empty), score.is_some_and(<[_]>::is_empty));
        // Forget what an earlier member of the same name has.
        if text.is_some() {
            self.out.truncate(self.start);
            self.text = Ok(false);
        }
        if score.is_some() {
            self.score = Ok(None);
        }
        match self.line.get(at) {
            Some(b'{') if !is_text && !is_score => return self.object(at, text, score),
            Some(b'"') if is_text && score.is_none() => {
                self.text = Ok(true);
                return decode(self.line, at + 1, self.out);
            }
            _ => {}
        }
        let end = end_of_value(self.line, at)?;
        let value = &self.line[at..end];
        let expected = |what: &str| Wrong(format!("expected {what}"), at);
        if text.is_some() {
            self.text = match value {
                b"null" => Ok(true), // an empty document
                _ if is_text => Err(expected(&format!("a string (the text), not {}", kind(value)))),
                _ => Err(expected("an object")),
            };
        }
        if score.is_some() {
            self.score = match value {
                b"null" => Ok(None),
                _ if is_score => serde_json::from_slice(value).map(Some).map_err(|_| expected("a number (the score)")),
                _ => Err(expected("an object")),
            };
        }
        Ok(end)
    }
}

/// What a value is that is neither a string nor null.
fn kind(value: &[u8]) -> &'static str {
    match value {
        [b'[', ..] => "a list",
        [b'{', ..] => "an object",
        [b't' | b'f', ..] => "true or false",
        _ => "a number",
    }
}

/// Calls `member` with the name of each member of an object, and the position of its value, whose end it returns.
/// Returns the end of the object.
fn members(
    line: &[u8],
    at: usize,
    mut member: impl FnMut(&[u8], usize) -> Result<usize, Wrong>,
) -> Result<usize, Wrong> {
    let mut at = after(line, at, b'{')?;
    if let Ok(end) = after(line, at, b'}') {
        return Ok(end);
    }
    loop {
        let start = after(line, at, b'"')?;
        let end = end_of_value(line, start - 1)?;
        let value = after_space(line, after(line, end, b':')?);
        let mut decoded = Vec::new();
        let name = match &line[start..end - 1] {
            name if memchr::memchr(b'\\', name).is_none() => name,
            _ => {
                decode(line, start, &mut decoded)?;
                &decoded
            }
        };
        at = member(name, value)?;
        match after(line, at, b',') {
            Ok(next) => at = next,
            Err(_) => return after(line, at, b'}'),
        }
    }
}

fn after_space(line: &[u8], at: usize) -> usize {
    at + line[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// The position after white space and this byte.
fn after(line: &[u8], at: usize, byte: u8) -> Result<usize, Wrong> {
    let at = after_space(line, at);
    let wrong = || match (line.get(at), byte) {
        (None, _) => Wrong("EOF while parsing an object".to_string(), at),
        (_, b'{') => Wrong("expected an object".to_string(), at),
        (_, byte) => Wrong(format!("expected `{}`", byte as char), at),
    };
    line.get(at).filter(|found| **found == byte).map(|_| at + 1).ok_or_else(wrong)
}

/// The end of the value at a position. Strings may hold control characters, as some writers leave them.
fn end_of_value(line: &[u8], start: usize) -> Result<usize, Wrong> {
    if line.get(start) != Some(&b'"') {
        let mut values = serde_json::Deserializer::from_slice(&line[start..]).into_iter::<serde::de::IgnoredAny>();
        return match values.next() {
            Some(Ok(_)) => Ok(start + values.byte_offset()),
            Some(Err(error)) => Err(Wrong::of(&error, start)),
            None => Err(Wrong("expected value".to_string(), start)),
        };
    }
    let mut at = start + 1;
    while let Some(stop) = line.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += stop + 1;
        if line[at - 1] == b'"' {
            return Ok(at);
        }
        at += 1; // the escaped character
    }
    Err(unended(line))
}

fn unended(line: &[u8]) -> Wrong {
    Wrong("EOF while parsing a string".to_string(), line.len())
}

/// The line with numbers that JSON does not have, as Python and Pandas write them, replaced: NaN by null, infinities by
/// the largest numbers. None if it has none.
fn without_nan(line: &[u8]) -> Option<Vec<u8>> {
    const REPLACED: [(&[u8], &[u8]); 3] = [(b"NaN", b"null"), (b"-Infinity", b"-1e308"), (b"Infinity", b"1e308")];
    let (mut out, mut at) = (Vec::new(), 0);
    while at < line.len() {
        if line[at] == b'"' {
            let end = end_of_value(line, at).ok()?;
            out.extend_from_slice(&line[at..end]);
            at = end;
        } else if let Some((name, number)) = REPLACED.iter().find(|(name, _)| line[at..].starts_with(name)) {
            out.extend_from_slice(number);
            at += name.len();
        } else {
            out.push(line[at]);
            at += 1;
        }
    }
    (out != line).then_some(out)
}

/// The names of an object's members. Values are not stored, which could take many times the memory of the line.
fn names(line: &[u8]) -> String {
    let mut names = Vec::new();
    let _ = members(line, 0, |name, value| {
        names.push(String::from_utf8_lossy(name).into_owned());
        end_of_value(line, value)
    });
    listed(names)
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
fn decode(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, Wrong> {
    loop {
        let start = out.len();
        let growth = (line.len() - at + STEP).min(MOST_GROWTH);
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
                    let plain = memchr::memchr2(b'"', b'\\', &line[at..]);
                    let plain = plain.ok_or_else(|| unended(line))?;
                    space[end..end + plain].copy_from_slice(&line[at..at + plain]);
                    plain
                }
            };
            end += plain;
            at += plain + 1;
            closed = line[at - 1] == b'"';
            if !closed {
                let (code_point, length) =
                    escape(&line[at..]).ok_or_else(|| Wrong("invalid escape".to_string(), at))?;
                end += put(code_point, &mut space[end..]);
                at += length;
            }
        }
        out.truncate(start + end);
        if closed {
            return Ok(at);
        }
    }
}

/// The code point of what follows a backslash, and the length of that.
fn escape(after: &[u8]) -> Option<(u32, usize)> {
    match ESCAPED[*after.first()? as usize] {
        0 if after[0] != b'u' => None,
        0 => match (unit(after, 1)?, unit(after, 7)) {
            (first @ 0xD800..0xDC00, Some(second @ 0xDC00..0xE000)) if after[5..7] == *b"\\u" => {
                Some((0x1_0000 + ((first - 0xD800) << 10 | (second - 0xDC00)), 11))
            }
            (single, _) => Some((single, 5)),
        },
        character => Some((character.into(), 1)),
    }
}

/// The number of four hexadecimal digits.
fn unit(escape: &[u8], at: usize) -> Option<u32> {
    let digits = escape.get(at..at + 4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Writes a code point as UTF-8; a lone surrogate the same way, as malformed text that the caller recognises.
fn put(code_point: u32, to: &mut [u8]) -> usize {
    match char::from_u32(code_point) {
        Some(character) => character.encode_utf8(to).len(),
        None => {
            let tail = |shift: u32| 0x80 | (code_point >> shift & 0x3F) as u8;
            to[..3].copy_from_slice(&[0xED, tail(6), tail(0)]);
            3
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::random::Random;

    fn text(line: &[u8], field: &str) -> Result<Vec<u8>, String> {
        let field: Vec<String> = field.split('.').map(str::to_string).collect();
        let mut out = b"before ".to_vec();
        parse(line, &field, None, &mut out).map(|_| out.split_off(7))
    }

    #[test]
    fn escapes_are_decoded() {
        for (line, expected) in [
            (
                r#" { "text" : "a\nb\\n\"\/\b\f\r\t" , "n": -1.5e3 , "o":{"text":[1,{"a":"}"}]}} "#,
                "a\nb\\n\"/\u{8}\u{c}\r\t",
            ),
            (r#"{"id":"x\"y","text":"\u00e9\u20AC\ud83d\uDE00\u0000"}"#, "é€😀\0"),
            (r#"{"te\u0078t":"b"}"#, "b"),
            (r#"{"text":null}"#, ""),
            ("{\"text\":\"raw \u{1} \u{7f} é\"}\r", "raw \u{1} \u{7f} é"),
        ] {
            assert_eq!(text(line.as_bytes(), "text").unwrap(), expected.as_bytes(), "{line}");
        }
        assert_eq!(text(b"{\"text\":\"\xff\"}", "text").unwrap(), b"\xff", "the caller checks UTF-8");
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        assert_eq!(text(br#"{"te\u0078t":"a","text":"b"}"#, "text").unwrap(), b"b");
        assert_eq!(text(br#"{"text":3,"text":"b"}"#, "text").unwrap(), b"b");
        assert_eq!(text(br#"{"a":{"text":"a"},"a":{"text":"b"}}"#, "a.text").unwrap(), b"b");
        assert!(text(br#"{"a":{"text":"a"},"a":{"b":"b"}}"#, "a.text").unwrap_err().contains("no field \"a.text\""));
        assert!(text(br#"{"text":"b","text":3}"#, "text").is_err());
        let score = |line: &[u8]| parse(line, &["t".into()], Some(&["s".into()]), &mut Vec::new());
        assert_eq!(score(br#"{"s":1,"t":"a","s":2.5}"#), Ok(Some(2.5)));
        assert_eq!(score(br#"{"s":"x","t":"a","s":null}"#), Ok(None));
    }

    #[test]
    fn numbers_that_only_python_writes_are_read() {
        let score = |line: &str| parse(line.as_bytes(), &["t".into()], Some(&["s".into()]), &mut Vec::new());
        assert_eq!(score(r#"{"s": NaN, "t": "a"}"#), Ok(None));
        assert_eq!(score(r#"{"s": Infinity, "t": "a"}"#), Ok(Some(1e308)));
        assert_eq!(score(r#"{"s": -Infinity, "t": "a"}"#), Ok(Some(-1e308)));
        assert_eq!(text(br#"{"m": [NaN, {"n": -Infinity}], "text": "NaN \"NaN"}"#, "text").unwrap(), b"NaN \"NaN");
        assert!(text(br#"{"m": NaNa, "text": "a"}"#, "text").is_err());
    }

    #[test]
    fn damaged_lines_are_errors() {
        for line in [
            "",
            "[]",
            "{",
            r#"{"text":"a""#,
            r#"{"text":"a"} x"#,
            r#"{"text":"a",}"#,
            r#"{"text":["a"]}"#,
            r#"{"b":"a"}"#,
        ] {
            assert!(text(line.as_bytes(), "text").is_err(), "{line}");
        }
        assert!(text(br#"{"text": "a", "b": [1, 2}"#, "text").unwrap_err().contains("at column 25"));
    }
    /// Strings of any parts at any place in a block equal those of `serde_json`.
    #[test]
    fn strings_equal_those_of_the_general_parser() {
        const PARTS: &[&str] = &[
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
            "\u{7f}",
            "{",
            "\"",
            " ",
            "the words of a longer text, more than one block of bytes",
        ];
        let mut random = Random(17);
        let (mut valid, mut long) = (0, 0);
        for _ in 0..100_000 {
            let string: String = (0..random.below(9)).map(|_| random.of(PARTS)).collect();
            let line = format!("{{\"text\": \"{string}\", \"id\": [1, 2]}}");
            let found = text(line.as_bytes(), "text").ok().filter(|text| std::str::from_utf8(text).is_ok());
            let expected = serde_json::from_str::<serde_json::Value>(&line).ok();
            assert_eq!(found, expected.map(|record| record["text"].as_str().unwrap().into()), "{line}");
            (valid, long) = (valid + usize::from(found.is_some()), long + usize::from(string.len() > 64));
        }
        assert!(valid > 20_000 && long > 10_000, "{valid} {long}");
        let longer = "é and \\n".repeat(100_000);
        let line = format!("{{\"text\":\"{longer}\",\"id\":1}}");
        assert_eq!(text(line.as_bytes(), "text").unwrap(), longer.replace("\\n", "\n").as_bytes());
    }
}
