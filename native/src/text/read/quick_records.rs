//! The usual line of JSON, an object whose text is a string at its top level, read without a parser's detours. Of every
//! other line, wrong ones included, this says only that it is another: `records` reads those.

use memchr::memchr2;
use serde::de::IgnoredAny;

/// Appends the text of a line to `out`, as `records::parse` does; or appends nothing, and returns false.
pub fn parse(line: &[u8], field: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let read = Line { line, at: 0 }.read(field.as_bytes(), out).is_some();
    if !read {
        out.truncate(start);
    }
    read
}

struct Line<'a> {
    line: &'a [u8],
    at: usize,
}

/// Each method moves behind what it reads, and gives None where something else stands.
impl Line<'_> {
    fn read(mut self, field: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut found = false;
        self.spaces();
        self.byte(b'{')?;
        loop {
            self.spaces();
            self.byte(b'"')?;
            let key = self.key()?;
            self.spaces();
            self.byte(b':')?;
            self.spaces();
            if &self.line[key] == field {
                if found {
                    return None; // of a key listed twice
                }
                self.byte(b'"')?;
                self.text(out)?;
                found = true;
            } else {
                self.value()?;
            }
            self.spaces();
            if self.byte(b',').is_none() {
                break;
            }
        }
        self.byte(b'}')?;
        self.spaces();
        (found && self.at == self.line.len()).then_some(())
    }

    fn spaces(&mut self) {
        let rest = &self.line[self.at..];
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
    }

    fn byte(&mut self, wanted: u8) -> Option<()> {
        (self.line.get(self.at) == Some(&wanted)).then(|| self.at += 1)
    }

    /// Where a key of plain ASCII stands, whose first quotation mark is read.
    fn key(&mut self) -> Option<std::ops::Range<usize>> {
        let start = self.at;
        let length = self.line[start..].iter().position(|byte| !matches!(byte, 32..=33 | 35..=91 | 93..=127))?;
        self.at += length;
        self.byte(b'"')?;
        Some(start..start + length)
    }

    /// Any value, checked as strictly as `records` does it.
    fn value(&mut self) -> Option<()> {
        let mut values = serde_json::Deserializer::from_slice(&self.line[self.at..]).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        self.at += values.byte_offset();
        Some(())
    }

    /// A string whose first quotation mark is read. Control characters are let through, as `records` does.
    fn text(&mut self, out: &mut Vec<u8>) -> Option<()> {
        out.reserve(self.line.len() - self.at); // escapes are longer than what they stand for
        loop {
            let rest = &self.line[self.at..];
            let plain = memchr2(b'"', b'\\', rest)?;
            out.extend_from_slice(&rest[..plain]);
            self.at += plain + 1;
            if rest[plain] == b'"' {
                return Some(());
            }
            self.escape(out)?;
            while self.byte(b'\\').is_some() {
                self.escape(out)?;
            }
        }
    }

    /// What stands behind a backslash.
    #[inline]
    fn escape(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let byte = *self.line.get(self.at)?;
        self.at += 1;
        out.push(match byte {
            b'n' => b'\n',
            b'"' | b'\\' | b'/' => byte,
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            b'u' => return self.character(out),
            _ => return None,
        });
        Some(())
    }

    /// A character behind `\u`. Halves of surrogate pairs without their other half are left to `records`.
    fn character(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let mut code = self.hexadecimal()?;
        if (0xD800..0xDC00).contains(&code) {
            self.byte(b'\\')?;
            self.byte(b'u')?;
            let low = self.hexadecimal()?.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
            code = 0x10000 + ((code - 0xD800) << 10) + low;
        }
        let mut bytes = [0; 4];
        out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut bytes).as_bytes());
        Some(())
    }

    fn hexadecimal(&mut self) -> Option<u32> {
        let digits = self.line.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |code, &digit| Some(code << 4 | char::from(digit).to_digit(16)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::read::records;

    /// Whether it is read here; where it is, `records` reads the same.
    fn agrees(line: &[u8]) -> bool {
        let (mut quick, mut slow) = (b"before".to_vec(), b"before".to_vec());
        let read = parse(line, "text", &mut quick);
        if read {
            records::parse(line, &["text".to_string()], None, &mut slow).expect("what is read here is right");
        }
        assert_eq!(quick, slow, "{}", String::from_utf8_lossy(line));
        read
    }

    #[test]
    fn usual_lines_are_read() {
        for line in [
            r#"{"text":"plain"}"#,
            r#" { "text" : "a\nb\\n\"\/\b\f\r\t" , "n": -1.5e3 , "o":{"text":[1,{"a":"}"}]}, "t":true} "#,
            r#"{"id":"x\u00e9\"y","n":null,"a":[],"text":"\u00e9\u20AC\ud83d\uDE00\u0000"}"#,
            r#"{"text":"","b":12}"#,
            "{\"text\":\"raw \u{1} \u{7f} é 東 😀\",\"a b~\":0}\r",
        ] {
            assert!(agrees(line.as_bytes()), "{line}");
        }
        assert!(agrees(b"{\"text\":\"\xff\xc3\"}"));
    }

    #[test]
    fn others_are_left_alone() {
        for line in [
            "",
            "{",
            "{}",
            "[]",
            "null",
            "{\"text\":\"a",
            "{\"text\":\"a\"",
            "{\"text\":\"a\\",
            "{\"text\":\"a\"} x",
            r#"{"text":"a",}"#,
            r#"{"text":"a" "b":1}"#,
            r#"{"text":"a","text":"b"}"#,
            r#"{"text":null}"#,
            r#"{"text":["a"]}"#,
            r#"{"text":"\x"}"#,
            r#"{"text":"\u12"}"#,
            r#"{"text":"\u12g4"}"#,
            r#"{"text":"\ud800"}"#,
            r#"{"text":"\udc00"}"#,
            r#"{"text":"\ud800\n"}"#,
            r#"{"text":"\ud800\u0041"}"#,
            r#"{"text":"\ud800\ud800"}"#,
            r#"{"te\u0078t":"a"}"#,
            r#"{"é":1,"text":"a"}"#,
            r#"{"text":"a","b":}"#,
            r#"{"text":"a","b":01}"#,
            r#"{"text":"a","b":tru}"#,
            r#"{"text":"a","b":[1,}"#,
            r#"{"text":"a","b":"\q"}"#,
            r#"{"body":"a"}"#,
            r#"{text:"a"}"#,
            "{\"text\":\"a\",\"b\":\"\u{1}\"}",
            "\u{feff}{\"text\":\"a\"}",
            "{\"text\":\"a\",\"\u{1}\":1}",
            r#"{"text":"a","b":1 2}"#,
        ] {
            assert!(!agrees(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn damaged_lines_are_read_alike() {
        let line = br#"{"id": "a\"b", "text": "one \u00e9\ud83d\ude00\n\\two", "n": [1, {"x": 2.5}]}"#;
        for at in 0..line.len() {
            for byte in (0..=255).filter(|&byte| byte != b'\n') {
                let mut damaged = line.to_vec();
                damaged[at] = byte;
                agrees(&damaged);
            }
            agrees(&line[..at]);
            agrees(&[&line[..at], &line[at + 1..]].concat());
        }
    }
}
