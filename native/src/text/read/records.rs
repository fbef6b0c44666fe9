//! Records of JSON lines: only the text and the score are parsed.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::flat_record;
use crate::runtime::quoting::{listed, shortened};

/// Appends the text of a line to `out`, without validating its UTF-8, and returns the score.
pub fn parse(
    line: &[u8],
    field: &[String],
    score_field: Option<&[String]>,
    out: &mut Vec<u8>,
) -> Result<Option<f64>, String> {
    match (field, score_field) {
        ([name], None) if flat_record::parse(line, name, out) => Ok(None),
        _ => general(line, field, score_field, out),
    }
}

/// `parse` for any line.
pub(super) fn general(
    line: &[u8],
    field: &[String],
    score_field: Option<&[String]>,
    out: &mut Vec<u8>,
) -> Result<Option<f64>, String> {
    let mut record = Record { start: out.len(), text: out, found: false, score: None };
    let mut json = serde_json::Deserializer::from_slice(line);
    let wanted = Wanted { text: Some(field), score: score_field, record: &mut record, top: true };
    wanted.deserialize(&mut json).and_then(|()| json.end()).map_err(|error| {
        let (what, column) = (error.to_string(), error.column());
        let what = what.split(&format!(" at line {} column ", error.line())).next().unwrap_or_default();
        format!(
            "not a JSON object with a text field: {}, at column {column}; fix the line, or leave damaged lines out \
                 with on_error=skip",
            shortened(what)
        )
    })?;
    if record.found {
        return Ok(record.score);
    }
    Err(format!(
        "no field {:?} (the fields are: {}); name the one that holds the text with field=NAME",
        field.join("."),
        fields(line)
    ))
}

/// The field names of an object. Values are not stored, which could take many times the memory of the line.
fn fields(line: &[u8]) -> String {
    struct Names;
    impl<'de> Visitor<'de> for Names {
        type Value = String;

        fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
            let next = || map.next_entry::<Cow<str>, IgnoredAny>().ok().flatten().map(|(name, _)| name);
            Ok(listed(std::iter::from_fn(next)))
        }
    }
    serde_json::Deserializer::from_slice(line).deserialize_map(Names).unwrap_or_else(|_| "unreadable".into())
}

struct Record<'o> {
    /// Holds the text from `start` on.
    text: &'o mut Vec<u8>,
    start: usize,
    found: bool,
    score: Option<f64>,
}

impl Record<'_> {
    /// Sets the text; if a key is repeated, the last value counts.
    fn set_text(&mut self, text: &[u8]) {
        self.text.truncate(self.start);
        self.text.extend_from_slice(text);
        self.found = true;
    }
}

/// Follows the two paths through an object and skips everything else.
struct Wanted<'a, 'p, 'o> {
    text: Option<&'p [String]>,
    score: Option<&'p [String]>,
    record: &'a mut Record<'o>,
    /// Whether this is the line's own object, which is required. Below it, null means an absent value.
    top: bool,
}

impl<'de> DeserializeSeed<'de> for Wanted<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.text.is_some_and(<[String]>::is_empty) {
            deserializer.deserialize_option(TextVisitor(self.record))
        } else if self.text.is_none() && self.score.is_some_and(<[String]>::is_empty) {
            deserializer.deserialize_any(ScoreVisitor(self.record))
        } else if self.top {
            deserializer.deserialize_map(self)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Wanted<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        if self.text.is_some() {
            self.record.set_text(b"");
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<str>>()? {
            let below =
                |path: Option<&'_ [String]>| path.is_some_and(|path| path.first().is_some_and(|name| *name == *key));
            let text = self.text.filter(|path| below(Some(path))).map(|path| &path[1..]);
            let score = self.score.filter(|path| below(Some(path))).map(|path| &path[1..]);
            if text.is_none() && score.is_none() {
                map.next_value::<IgnoredAny>()?;
            } else {
                map.next_value_seed(Wanted { text, score, record: self.record, top: false })?;
            }
        }
        Ok(())
    }
}

struct TextVisitor<'a, 'o>(&'a mut Record<'o>);

impl<'de> Visitor<'de> for TextVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("a string (the text)")
    }

    fn visit_bytes<E>(self, text: &[u8]) -> Result<(), E> {
        self.0.set_text(text);
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        self.0.set_text(b""); // null: an empty document
        Ok(())
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        // As bytes: serde_json then leaves the validation of UTF-8 (and lone surrogates) to us.
        text.deserialize_bytes(self)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::custom("the text field holds a list, not a string"))
    }
}

struct ScoreVisitor<'a, 'o>(&'a mut Record<'o>);

impl<'de> Visitor<'de> for ScoreVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("a number (the score)")
    }

    fn visit_f64<E>(self, score: f64) -> Result<(), E> {
        self.0.score = Some(score);
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, score: i64) -> Result<(), E> {
        self.visit_f64(score as f64)
    }

    fn visit_u64<E: serde::de::Error>(self, score: u64) -> Result<(), E> {
        self.visit_f64(score as f64)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &[u8]) -> Result<Vec<u8>, String> {
        let mut out = b"before ".to_vec();
        parse(line, &["text".to_string()], None, &mut out).map(|_| out.split_off(7))
    }

    #[test]
    fn escapes_are_decoded_and_the_last_of_equal_keys_counts() {
        for (line, expected) in [
            (
                r#" { "text" : "a\nb\\n\"\/\b\f\r\t" , "n": -1.5e3 , "o":{"text":[1,{"a":"}"}]}} "#,
                "a\nb\\n\"/\u{8}\u{c}\r\t",
            ),
            (r#"{"id":"x\"y","text":"\u00e9\u20AC\ud83d\uDE00\u0000"}"#, "é€😀\0"),
            (r#"{"te\u0078t":"a","text":"b"}"#, "b"),
            (r#"{"text":null}"#, ""),
            ("{\"text\":\"raw \u{1} \u{7f} é\"}\r", "raw \u{1} \u{7f} é"),
        ] {
            assert_eq!(text(line.as_bytes()).unwrap(), expected.as_bytes(), "{line}");
        }
        assert_eq!(text(b"{\"text\":\"\xff\"}").unwrap(), b"\xff", "the caller checks UTF-8");
    }

    #[test]
    fn damaged_lines_are_errors() {
        for line in
            ["", "[]", r#"{"text":"a""#, r#"{"text":"a"} x"#, r#"{"text":"a",}"#, r#"{"text":["a"]}"#, r#"{"b":"a"}"#]
        {
            assert!(text(line.as_bytes()).is_err(), "{line}");
        }
    }
}
