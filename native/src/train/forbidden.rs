//! Regexes that must not match in a new token.

use regex_automata::meta::{BuildError, Config, Regex};

use crate::runtime::quoting::{quoted, shortened};
use crate::text::utf8::is_start;

/// Maximum size of a compiled regex in bytes, as in the crate `regex`.
const MOST_BYTES: usize = 10 << 20;

/// Regexes that are searched in the whole characters of tokens, in linear time.
#[derive(Clone, Debug)]
pub struct Forbidden(Regex);

impl Forbidden {
    pub fn new(regexes: &[String]) -> Result<Self, String> {
        match compile(regexes) {
            Ok(compiled) if !compiled.is_match("") => Ok(Self(compiled)),
            Ok(_) => Err(first_mistake(regexes).expect("one of the regexes matches")),
            Err(error) => Err(first_mistake(regexes).unwrap_or_else(|| reason(&error))),
        }
    }

    pub fn matches(&self, token: &[u8]) -> bool {
        self.0.is_match(whole_characters(token))
    }
}

fn compile(regexes: &[String]) -> Result<Regex, Box<BuildError>> {
    let config = Config::new().nfa_size_limit(Some(MOST_BYTES));
    Regex::builder().configure(config).build_many(regexes).map_err(Box::new)
}

/// The fault of the first regex that cannot be used by itself.
fn first_mistake(regexes: &[String]) -> Option<String> {
    regexes.iter().find_map(|regex| {
        let named = format!("the regex {} of forbid", quoted(regex));
        match compile(std::slice::from_ref(regex)) {
            Ok(compiled) if !compiled.is_match("") => None,
            Ok(_) => Some(format!("{named} matches the empty string, which occurs in every token; leave it out")),
            Err(error) => {
                let why = shortened(&reason(&error));
                Some(format!(
                    "{named} does not compile: {why}; forbid takes regexes without look-around and back references"
                ))
            }
        }
    })
}

/// The cause in a few words: the error itself shows the regex over several lines.
fn reason(error: &BuildError) -> String {
    match error.syntax_error() {
        Some(regex_syntax::Error::Parse(error)) => error.kind().to_string(),
        Some(regex_syntax::Error::Translate(error)) => error.kind().to_string(),
        _ if error.size_limit().is_some() => format!("forbid needs more than {MOST_BYTES} bytes of memory"),
        _ => error.to_string(),
    }
}

/// A token without the parts of characters at its ends.
fn whole_characters(token: &[u8]) -> &[u8] {
    let start = token.iter().position(|&byte| is_start(byte)).unwrap_or(token.len());
    let rest = &token[start..];
    match std::str::from_utf8(rest) {
        Err(error) if error.error_len().is_none() => &rest[..error.valid_up_to()],
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_characters_at_the_ends_are_left_out() {
        for (token, whole) in [
            ("aé".as_bytes(), "aé".as_bytes()),
            (b"\xa9: \xf0\x9f\xa6", b": "),
            (b"\xb0\xa9x\xc3", b"x"),
            (b"\x80\x80", b""),
            (b"", b""),
        ] {
            assert_eq!(whole_characters(token), whole);
        }
        let forbidden = Forbidden::new(&[r"^\w$".to_string(), "日".to_string()]).unwrap();
        for (token, matches) in [("é", true), ("éa", false), ("a日", true), ("本", true)] {
            assert_eq!(forbidden.matches(token.as_bytes()), matches, "{token}");
        }
        assert!(forbidden.matches(b"\xa9x\xc3"));
        assert!(!forbidden.matches("日".as_bytes().split_at(2).0));
    }
}
