//! Records of JSON lines: only the text and the score are parsed.
//!
//! As in every JSON parser, the last value of a repeated key counts. So an object is read to its end before a value of
//! it is decoded.

use std::ops::Range;

use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};

use crate::runtime::quoting::{listed, shortened};

/// The error, and its place in the line.
struct Wrong(String, usize);

impl Wrong {
    /// An error of the parser on what begins at `start`.
    fn of(error: &serde_json::Error, start: usize) -> Self {
        let what = error.to_string();
        let what = what.split(&format!(" at line {} column ", error.line())).next().unwrap_or_default();
        Self(what.to_string(), start + error.column().saturating_sub(1))
    }
}

/// The score of a record, and whether it has a text that is not null.
pub type Parsed = (Option<f64>, bool);

/// Appends the text of a line to `out`, without validating its UTF-8.
pub fn parse(line: &[u8], field: &str, score_field: Option<&str>, out: &mut Vec<u8>) -> Result<Parsed, String> {
    let start = out.len();
    let result = read(line, field, score_field, out).or_else(|wrong| {
        out.truncate(start);
        without_nan(line).map_or(Err(wrong), |line| read(&line, field, score_field, out))
    });
    match result {
        Ok(Some(parsed)) => Ok(parsed),
        Ok(None) => Err(format!(
            "no field {:?} (the fields are: {}); name the one that holds the text with field=NAME",
            field,
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

/// `parse` of a line without NaN. None if it lacks the text field.
fn read(line: &[u8], field: &str, score_field: Option<&str>, out: &mut Vec<u8>) -> Result<Option<Parsed>, Wrong> {
    let [text, score] = last_values(line, 0..line.len(), [Some(field), score_field])?;
    let Some(text) = text else { return Ok(None) };
    let decode = |place: &Range<usize>| serde_json::Deserializer::from_slice(&line[place.clone()]);
    let is_text = decode(&text).deserialize_option(Text(out)).map_err(|error| Wrong::of(&error, text.start))?;
    let Some(score) = score else { return Ok(Some((None, is_text))) };
    let number = decode(&score).deserialize_any(Score).map_err(|error| Wrong::of(&error, score.start))?;
    Ok(Some((number, is_text)))
}

/// Places of the last values of two fields of an object. A field is a key, or else a path of keys joined by dots. A null
/// on the path counts as the value.
fn last_values(
    line: &[u8],
    object: Range<usize>,
    fields: [Option<&str>; 2],
) -> Result<[Option<Range<usize>>; 2], Wrong> {
    let (mut values, mut parents) = ([None, None], [None, None]);
    members(line, object, |name, value| {
        for (i, field) in fields.iter().enumerate() {
            let Some(rest) = field.and_then(|field| field.as_bytes().strip_prefix(name)) else { continue };
            match rest {
                [] => values[i] = Some(value.clone()),
                [b'.', ..] => parents[i] = Some((value.clone(), name.len() + 1)),
                _ => {}
            }
        }
    })?;
    for ((field, value), parent) in fields.iter().zip(&mut values).zip(parents) {
        if let (Some(field), None, Some((parent, start))) = (field, &value, parent) {
            if line[parent.clone()] == *b"null" {
                *value = Some(parent);
            } else {
                [*value, _] = last_values(line, parent, [Some(&field[start..]), None])?;
            }
        }
    }
    Ok(values)
}

/// Calls `member` with the name of each member of an object and the place of its value.
fn members(line: &[u8], object: Range<usize>, mut member: impl FnMut(&[u8], Range<usize>)) -> Result<(), Wrong> {
    let line = &line[..object.end];
    let mut at = after(line, object.start, b'{')?;
    let mut more = after(line, at, b'}').map(|end| at = end).is_err();
    while more {
        let start = after(line, at, b'"')?;
        let name = start - 1..end_of_value(line, start - 1)?;
        let value = after_space(line, after(line, name.end, b':')?);
        at = end_of_value(line, value)?;
        match &line[start..name.end - 1] {
            plain if memchr::memchr(b'\\', plain).is_none() => member(plain, value..at),
            _ => {
                let decoded = serde_json::from_slice::<String>(&line[name.clone()]);
                member(decoded.map_err(|error| Wrong::of(&error, name.start))?.as_bytes(), value..at);
            }
        }
        more = after(line, at, b',').map(|next| at = next).is_ok();
        if !more {
            at = after(line, at, b'}')?;
        }
    }
    match after_space(line, at) {
        end if end == line.len() => Ok(()),
        end => Err(Wrong("trailing characters".to_string(), end)),
    }
}

fn after_space(line: &[u8], at: usize) -> usize {
    at + line[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// The position after white space and this byte.
fn after(line: &[u8], at: usize, byte: u8) -> Result<usize, Wrong> {
    let at = after_space(line, at);
    let wrong = || Wrong(format!("expected `{}`", byte as char), at);
    line.get(at).filter(|found| **found == byte).map(|_| at + 1).ok_or_else(wrong)
}

/// The end of the value at a position. Strings may hold control characters, as some writers leave them.
fn end_of_value(line: &[u8], start: usize) -> Result<usize, Wrong> {
    if line.get(start) != Some(&b'"') {
        let mut values = serde_json::Deserializer::from_slice(&line[start..]).into_iter::<IgnoredAny>();
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
    Err(Wrong("EOF while parsing a string".to_string(), line.len()))
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
    let _ = members(line, 0..line.len(), |name, _| names.push(String::from_utf8_lossy(name).into_owned()));
    listed(names)
}

/// A string. False for null.
struct Text<'o>(&'o mut Vec<u8>);

impl<'de> Visitor<'de> for Text<'_> {
    type Value = bool;

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("a string (the text)")
    }

    fn visit_bytes<E>(self, text: &[u8]) -> Result<bool, E> {
        self.0.extend_from_slice(text);
        Ok(true)
    }

    fn visit_none<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_some<D: Deserializer<'de>>(self, text: D) -> Result<bool, D::Error> {
        // As bytes: serde_json then leaves the validation of UTF-8 (and lone surrogates) to us.
        text.deserialize_bytes(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<bool, A::Error> {
        Err(A::Error::custom("the text field holds a list, not a string"))
    }
}

/// A number, or null for none.
struct Score;

impl Visitor<'_> for Score {
    type Value = Option<f64>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("a number (the score)")
    }

    fn visit_f64<E>(self, score: f64) -> Result<Self::Value, E> {
        Ok(Some(score))
    }

    fn visit_i64<E>(self, score: i64) -> Result<Self::Value, E> {
        Ok(Some(score as f64))
    }

    fn visit_u64<E>(self, score: u64) -> Result<Self::Value, E> {
        Ok(Some(score as f64))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &[u8], field: &str) -> Result<Vec<u8>, String> {
        let mut out = b"before ".to_vec();
        parse(line, field, None, &mut out).map(|_| out.split_off(7))
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        assert_eq!(text(br#"{"te\u0078t":"a","text":"b"}"#, "text").unwrap(), b"b");
        assert_eq!(text(br#"{"text":3,"text":"b"}"#, "text").unwrap(), b"b");
        assert_eq!(text(br#"{"a":{"text":"a"},"a":{"text":"b"}}"#, "a.text").unwrap(), b"b");
        assert!(text(br#"{"a":{"text":"a"},"a":{"b":"b"}}"#, "a.text").unwrap_err().contains("no field \"a.text\""));
        assert!(text(br#"{"text":"b","text":3}"#, "text").is_err());
        assert_eq!(text(br#"{"a.b":"key","a":{"b":"path"}}"#, "a.b").unwrap(), b"key");
        assert_eq!(text(br#"{"a":{"b":"path","b.c":"key"},"ab":1}"#, "a.b.c").unwrap(), b"key");
        let score = |line: &[u8]| parse(line, "t", Some("s"), &mut Vec::new()).map(|(score, _)| score);
        assert_eq!(score(br#"{"s":1,"t":"a","s":2.5}"#), Ok(Some(2.5)));
        assert_eq!(score(br#"{"s":"x","t":"a","s":null}"#), Ok(None));
    }

    #[test]
    fn numbers_that_only_python_writes_are_read() {
        let score = |line: &str| parse(line.as_bytes(), "t", Some("s"), &mut Vec::new()).map(|(score, _)| score);
        assert_eq!(score(r#"{"s": NaN, "t": "a"}"#), Ok(None));
        assert_eq!(score(r#"{"s": Infinity, "t": "a"}"#), Ok(Some(1e308)));
        assert_eq!(score(r#"{"s": -Infinity, "t": "a"}"#), Ok(Some(-1e308)));
        assert_eq!(text(br#"{"m": [NaN, {"n": -Infinity}], "text": "NaN \"NaN"}"#, "text").unwrap(), b"NaN \"NaN");
        assert!(text(br#"{"m": NaNa, "text": "a"}"#, "text").is_err());
    }
}
