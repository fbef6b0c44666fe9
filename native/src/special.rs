//! Special strings in text: finding them, and encoding what lies between them.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::encoding::{Encoder, State};

/// Special strings and their ids. Of several that start at one place the longest is found.
pub struct Specials {
    automaton: AhoCorasick,
    ids: Vec<u32>,
}

impl Specials {
    pub fn new(strings: &[String], ids: Vec<u32>) -> Result<Self, String> {
        if strings.len() != ids.len() || strings.iter().any(String::is_empty) {
            return Err("every special token has a string, which is not empty, and an id".to_string());
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(strings)
            .map_err(|error| error.to_string())?;
        Ok(Self { automaton, ids })
    }

    /// Which string is the first in the text, by its place in the list.
    pub fn find(&self, text: &[u8]) -> Option<usize> {
        self.automaton.find(text).map(|found| found.pattern().as_usize())
    }

    /// Ids of a text in which the strings are special tokens.
    pub fn encode(&self, encoder: &Encoder, text: &[u8], state: &mut State, out: &mut Vec<u32>) -> Result<(), String> {
        let mut start = 0;
        for found in self.automaton.find_iter(text) {
            if start < found.start() {
                encoder.encode(&text[start..found.start()], state, out)?;
            }
            out.push(self.ids[found.pattern().as_usize()]);
            start = found.end();
        }
        if start < text.len() {
            encoder.encode(&text[start..], state, out)?;
        }
        Ok(())
    }
}
