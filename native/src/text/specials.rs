//! Special strings: finding them in a text, at once or incrementally.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Match, MatchKind};

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
        let is_character = |at: &usize| text.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
        let end = searched.max((0..=sure).rev().find(is_character).unwrap_or(0));
        if emitted < end {
            emit(Part::Text(&text[emitted..end]))?;
        }
        self.0.drain(..end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::random::Random;

    fn specials(strings: &[(&str, Option<u32>)]) -> Specials {
        let names: Vec<String> = strings.iter().map(|string| string.0.to_string()).collect();
        Specials::new(&names, strings.iter().map(|string| string.1).collect()).unwrap()
    }

    /// Emitted parts, with adjacent texts joined.
    #[derive(Default, Debug, PartialEq)]
    struct Found(Vec<Result<u32, Vec<u8>>>);

    impl Found {
        fn add(&mut self, part: Part) -> Result<(), String> {
            match (part, self.0.last_mut()) {
                (Part::Text(text), Some(Err(before))) => before.extend_from_slice(text),
                (Part::Text(text), _) => self.0.push(Err(text.to_vec())),
                (Part::Token(id), _) => self.0.push(Ok(id)),
            }
            Ok(())
        }
    }

    #[test]
    fn parts_are_those_of_the_whole() {
        let specials = specials(&[("<a>", Some(1)), ("<a", Some(2)), ("<a>b<", None), ("é<", Some(3)), ("b", Some(4))]);
        let mut random = Random(5);
        for _ in 0..20_000 {
            let text: String = (0..random.below(14)).map(|_| ['<', 'a', '>', 'b', 'é', 'x'][random.below(6)]).collect();
            let mut whole = Found::default();
            let mut start = 0;
            for (range, id) in specials.tokens(text.as_bytes()) {
                if start < range.start {
                    whole.add(Part::Text(&text.as_bytes()[start..range.start])).unwrap();
                }
                whole.add(Part::Token(id)).unwrap();
                start = range.end;
            }
            if start < text.len() {
                whole.add(Part::Text(&text.as_bytes()[start..])).unwrap();
            }
            let (mut held, mut found) = (PendingText::default(), Found::default());
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let (at, c) = rest.char_indices().nth(random.below(rest.chars().count())).unwrap();
                let (part, after) = rest.split_at(at + c.len_utf8());
                held.push(part.as_bytes(), &specials, false, |part| found.add(part)).unwrap();
                assert!(held.0.len() < specials.longest + 3, "{text:?}");
                rest = after;
            }
            held.push(b"", &specials, true, |part| found.add(part)).unwrap();
            assert_eq!(found, whole, "{text:?}");
            assert_eq!(held.0.len(), 0);
        }
    }
}
