//! Special strings: finding them in a text, at once or incrementally.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Match, MatchKind};

use super::utf8::is_start;

/// Strings to find in text, and their ids. If several start at one position, the longest is found.
pub struct Specials {
    /// None if there are no strings.
    automaton: Option<AhoCorasick>,
    /// None: the string stays text, and nothing else is found inside it.
    ids: Vec<Option<u32>>,
    longest: usize,
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'t> {
    Text(&'t [u8]),
    Token(u32),
}

impl Specials {
    pub fn new(strings: &[String], ids: Vec<Option<u32>>) -> Result<Self, String> {
        if strings.len() != ids.len() || strings.iter().any(String::is_empty) {
            return Err("every special token needs a non-empty string and an id".to_string());
        }
        let automaton = || AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(strings);
        let automaton = (!strings.is_empty()).then(automaton).transpose().map_err(|error| error.to_string())?;
        Ok(Self { automaton, ids, longest: strings.iter().map(String::len).max().unwrap_or(0) })
    }

    /// Strings that are found but stay text.
    pub fn without_ids(strings: &[String]) -> Result<Self, String> {
        Self::new(strings, vec![None; strings.len()])
    }

    fn matches<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = Match> + 't {
        self.automaton.iter().flat_map(move |automaton| automaton.find_iter(text))
    }

    /// Calls `ordinary` with each stretch of text between the strings.
    pub fn between<E>(&self, text: &[u8], mut ordinary: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut start = 0;
        for found in self.matches(text) {
            ordinary(&text[start..found.start()])?;
            start = found.end();
        }
        ordinary(&text[start..])
    }

    /// Index of the string that occurs first in the text.
    pub fn find(&self, text: &[u8]) -> Option<usize> {
        self.automaton.as_ref()?.find(text).map(|found| found.pattern().as_usize())
    }

    /// The ranges of the tokens in a text, and their ids.
    pub fn tokens<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = (Range<usize>, u32)> + 't {
        self.matches(text).filter_map(|found| Some((found.range(), self.ids[found.pattern().as_usize()]?)))
    }
}

/// The end of an incremental text, in which a string may have begun.
#[derive(Default)]
pub struct PendingText(Vec<u8>);

impl PendingText {
    /// Takes the next part (whole characters) and emits everything that no later part can change; with `last`, all.
    /// Text between two tokens may be emitted in several parts.
    pub fn push(
        &mut self,
        part: &[u8],
        specials: &Specials,
        last: bool,
        mut emit: impl FnMut(Part) -> Result<(), String>,
    ) -> Result<(), String> {
        self.0.extend_from_slice(part);
        let text = &self.0;
        // All strings that could start before this position are complete.
        let sure = if last { text.len() } else { (text.len() + 1).saturating_sub(specials.longest) };
        let (mut emitted, mut searched) = (0, 0);
        for found in specials.matches(text).take_while(|found| found.start() < sure) {
            searched = found.end();
            let Some(id) = specials.ids[found.pattern().as_usize()] else { continue };
            if emitted < found.start() {
                emit(Part::Text(&text[emitted..found.start()]))?;
            }
            emit(Part::Token(id))?;
            emitted = found.end();
        }
        let is_character = |at: &usize| text.get(*at).is_none_or(|&byte| is_start(byte));
        let end = searched.max((0..=sure).rev().find(is_character).unwrap_or(0));
        if emitted < end {
            emit(Part::Text(&text[emitted..end]))?;
        }
        self.0.drain(..end);
        Ok(())
    }
}
