//! Pretokenization patterns: hand-written scanners for the named ones, a regex engine for any other.
//!
//! A pattern cuts text as HF's `Split(pattern, "isolated")` does: its matches are pieces, and so are the gaps
//! between them. Pieces cover the text, so a scanner only reports where each one ends.

use crate::unicode::{Classes, CLASSES, LETTER, LOWER, NOT_OTHER, NUMBER, SPACE, UPPER};

macro_rules! o200k_words {
    ($suffix:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $suffix,
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

/// Names, regexes and what each is, in the order in which they are listed to users.
/// The regexes are written so that Python's `regex`, Oniguruma and Rust engines read them alike.
pub const NAMED: &[(&str, &str, Kind)] = &[
    ("gpt2", r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", Kind::Gpt2),
    (
        // tiktoken writes `\s++$`; a look-ahead says "end of text" in every engine.
        "cl100k",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?![\s\S])|\s*[\r\n]+|\s+(?!\S)|\s+",
        Kind::Cl100k,
    ),
    (
        "llama3",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Kind::Llama3,
    ),
    ("o200k", o200k_words!(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"), Kind::O200k),
    ("superbpe", o200k_words!(""), Kind::Superbpe),
    // The released SuperBPE's second-stage regex (2025).
    ("uw-2025-fence", r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)", Kind::Uw2025Fence),
    // Phase 2 stops at any punctuation.
    ("punctuation-fence", r" ?[^\s\p{L}\p{N}]+[\r\n]*", Kind::PunctuationFence),
    ("none", "", Kind::Whole),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gpt2,
    Cl100k,
    Llama3,
    O200k,
    Superbpe,
    Uw2025Fence,
    PunctuationFence,
    Whole,
}

/// Cuts text into pieces.
pub enum Scanner {
    Named(Kind),
    Regex(Box<fancy_regex::Regex>),
}

impl Scanner {
    /// The scanner of a regex: the hand-written one where the regex is a named pattern's.
    pub fn new(regex: &str) -> Result<Self, String> {
        if let Some((_, _, kind)) = NAMED.iter().find(|(_, known, _)| *known == regex) {
            return Ok(Self::Named(*kind));
        }
        match fancy_regex::Regex::new(regex) {
            Ok(regex) => Ok(Self::Regex(Box::new(regex))),
            Err(error) => Err(format!("the pattern {regex:?} does not compile: {error}")),
        }
    }

    pub fn cuts_after_words(&self) -> bool {
        matches!(self, Self::Named(Kind::Gpt2 | Kind::Cl100k | Kind::Llama3 | Kind::O200k | Kind::Superbpe))
    }

    /// Calls `piece(start, end)` for every piece of `text`, in order; no piece is empty.
    ///
    /// Fails only where a regex gives up (its backtracking limit) or the text is not UTF-8 for it.
    #[inline]
    pub fn pieces(&self, text: &[u8], mut piece: impl FnMut(usize, usize)) -> Result<(), String> {
        let classes = &*CLASSES;
        match self {
            Self::Named(Kind::Gpt2) => each(text, piece, |at| gpt2(classes, text, at)),
            Self::Named(Kind::Cl100k) => each(text, piece, |at| cl100k::<true>(classes, text, at)),
            Self::Named(Kind::Llama3) => each(text, piece, |at| cl100k::<false>(classes, text, at)),
            Self::Named(Kind::O200k) => each(text, piece, |at| o200k::<true>(classes, text, at)),
            Self::Named(Kind::Superbpe) => each(text, piece, |at| o200k::<false>(classes, text, at)),
            Self::Named(Kind::Uw2025Fence) => fence(text, piece, |at| uw_2025_fence(classes, text, at)),
            Self::Named(Kind::PunctuationFence) => fence(text, piece, |at| punctuation_fence(classes, text, at)),
            Self::Named(Kind::Whole) => {
                if !text.is_empty() {
                    piece(0, text.len());
                }
            }
            Self::Regex(regex) => return regex_pieces(regex, text, piece),
        }
        Ok(())
    }
}

#[inline(always)]
fn each(text: &[u8], mut piece: impl FnMut(usize, usize), next: impl Fn(usize) -> usize) {
    let mut at = 0;
    while at < text.len() {
        let end = next(at);
        piece(at, end);
        at = end;
    }
}

/// Reports matches of a fence and the gaps between them. `find(at)` is Ok(end) of a match that starts at `at`,
/// or Err(at + length of the character there).
#[inline(always)]
fn fence(text: &[u8], mut piece: impl FnMut(usize, usize), find: impl Fn(usize) -> Result<usize, usize>) {
    let (mut gap, mut at) = (0, 0);
    while at < text.len() {
        match find(at) {
            Ok(end) => {
                if gap < at {
                    piece(gap, at);
                }
                piece(at, end);
                gap = end;
                at = end;
            }
            Err(next) => at = next,
        }
    }
    if gap < text.len() {
        piece(gap, text.len());
    }
}

fn regex_pieces(regex: &fancy_regex::Regex, text: &[u8], mut piece: impl FnMut(usize, usize)) -> Result<(), String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let mut gap = 0;
    for found in regex.find_iter(text) {
        let found = found.map_err(|error| format!("the pattern {:?} gave up: {error}", regex.as_str()))?;
        if gap < found.start() {
            piece(gap, found.start());
        }
        if found.start() < found.end() {
            piece(found.start(), found.end());
        }
        gap = found.end();
    }
    if gap < text.len() {
        piece(gap, text.len());
    }
    Ok(())
}

/// End of the run of characters from `at` whose class has (`WANTED`) or lacks (not `WANTED`) any bit of `MASK`.
#[inline(always)]
fn run<const MASK: u8, const WANTED: bool>(classes: &Classes, text: &[u8], mut at: usize) -> usize {
    loop {
        let (class, length) = classes.at(text, at);
        if length == 0 || (class & MASK != 0) != WANTED {
            return at;
        }
        at += length;
    }
}

#[inline(always)]
fn letters(classes: &Classes, text: &[u8], at: usize) -> usize {
    run::<LETTER, true>(classes, text, at)
}

#[inline(always)]
fn others(classes: &Classes, text: &[u8], at: usize) -> usize {
    run::<NOT_OTHER, false>(classes, text, at)
}

/// End of up to three numbers from `at`.
#[inline(always)]
fn numbers_up_to_3(classes: &Classes, text: &[u8], mut at: usize) -> usize {
    for _ in 0..3 {
        let (class, length) = classes.at(text, at);
        if class & NUMBER == 0 {
            break;
        }
        at += length;
    }
    at
}

#[inline(always)]
fn is_newline(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

#[inline(always)]
fn newlines(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && is_newline(text[at]) {
        at += 1;
    }
    at
}

#[inline(always)]
fn newlines_and_slashes(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && (is_newline(text[at]) || text[at] == b'/') {
        at += 1;
    }
    at
}

/// A run of white space from `at`: its end, where its last character starts, the end of its last line break.
#[inline(always)]
fn white_space(classes: &Classes, text: &[u8], start: usize) -> (usize, usize, usize) {
    let (mut at, mut last, mut line_end) = (start, start, start);
    loop {
        let (class, length) = classes.at(text, at);
        if class & SPACE == 0 {
            return (at, last, line_end);
        }
        last = at;
        if is_newline(text[at]) {
            line_end = at + 1;
        }
        at += length;
    }
}

/// `\s+(?!\S)|\s+`: what leaves the last space to the word behind it.
#[inline(always)]
fn all_but_last(text: &[u8], start: usize, end: usize, last: usize) -> usize {
    if end == text.len() || last == start {
        end
    } else {
        last
    }
}

#[inline(always)]
fn gpt2(classes: &Classes, text: &[u8], at: usize) -> usize {
    let byte = text[at];
    if byte == b'\'' {
        match (text.get(at + 1), text.get(at + 2)) {
            (Some(b's' | b'd' | b'm' | b't'), _) => return at + 2,
            (Some(b'l'), Some(b'l')) | (Some(b'v' | b'r'), Some(b'e')) => return at + 3,
            _ => {}
        }
    }
    let mut word = at;
    let (mut class, mut length) = classes.at(text, at);
    if byte == b' ' && at + 1 < text.len() {
        word = at + 1;
        (class, length) = classes.at(text, word);
    }
    if class & LETTER != 0 {
        letters(classes, text, word + length)
    } else if class & NUMBER != 0 {
        run::<NUMBER, true>(classes, text, word + length)
    } else if class & SPACE == 0 {
        others(classes, text, word + length)
    } else {
        let (end, last, _) = white_space(classes, text, at);
        all_but_last(text, at, end, last)
    }
}

/// Length of `(?i:'s|'t|'re|'ve|'m|'ll|'d)` at `at`, or 0. U+017F (long s) folds to s.
#[inline(always)]
fn contraction(text: &[u8], at: usize) -> usize {
    if text.get(at) != Some(&b'\'') {
        return 0;
    }
    let lower = |i: usize| text.get(at + i).map(u8::to_ascii_lowercase);
    match (lower(1), lower(2)) {
        (Some(b's' | b'd' | b'm' | b't'), _) => 2,
        (Some(b'l'), Some(b'l')) | (Some(b'v' | b'r'), Some(b'e')) => 3,
        (Some(0xC5), Some(0xBF)) => 3,
        _ => 0,
    }
}

/// ` ?[^\s\p{L}\p{N}]+` from `at`: where the run of others starts, if there is one.
#[inline(always)]
fn punctuation_start(classes: &Classes, text: &[u8], at: usize) -> Option<usize> {
    let start = if text[at] == b' ' { at + 1 } else { at };
    let (class, length) = classes.at(text, start);
    (length > 0 && class & NOT_OTHER == 0).then_some(start)
}

/// The cl100k family; `END` is tiktoken's `\s++$`: white space at the end of the text stays in one piece.
#[inline(always)]
fn cl100k<const END: bool>(classes: &Classes, text: &[u8], at: usize) -> usize {
    let contraction = contraction(text, at);
    if contraction > 0 {
        return at + contraction;
    }
    let (class, length) = classes.at(text, at);
    if class & LETTER != 0 {
        return letters(classes, text, at + length);
    }
    if class & NUMBER != 0 {
        return numbers_up_to_3(classes, text, at);
    }
    if !is_newline(text[at]) && classes.at(text, at + length).0 & LETTER != 0 {
        return letters(classes, text, at + length);
    }
    if let Some(start) = punctuation_start(classes, text, at) {
        return newlines(text, others(classes, text, start));
    }
    let (end, last, line_end) = white_space(classes, text, at);
    if END && end == text.len() {
        return end;
    }
    if line_end > at {
        return line_end;
    }
    all_but_last(text, at, end, last)
}

/// The o200k family; `CONTRACTIONS` attaches them to the word before.
#[inline(always)]
fn o200k<const CONTRACTIONS: bool>(classes: &Classes, text: &[u8], at: usize) -> usize {
    let (class, length) = classes.at(text, at);
    if class & NUMBER != 0 {
        return numbers_up_to_3(classes, text, at);
    }
    // Letters cannot be the optional first character; marks can be it or part of the word.
    let behind = (class & LETTER == 0 && !is_newline(text[at])).then_some(at + length);
    let here = (class & (UPPER | LOWER) != 0).then_some(at);
    let word = |shape: fn(&Classes, &[u8], usize) -> Option<usize>| {
        behind
            .and_then(|start| shape(classes, text, start))
            .or_else(|| here.and_then(|start| shape(classes, text, start)))
    };
    if let Some(end) = word(lower_word).or_else(|| word(upper_word)) {
        return if CONTRACTIONS { end + contraction(text, end) } else { end };
    }
    if let Some(start) = punctuation_start(classes, text, at) {
        return newlines_and_slashes(text, others(classes, text, start));
    }
    let (end, last, line_end) = white_space(classes, text, at);
    if line_end > at {
        return line_end;
    }
    all_but_last(text, at, end, last)
}

/// `UPPER*LOWER+`: where no purely lower character follows the upper run, the regex gives back characters until
/// one that is in both classes can serve as the lower part.
#[inline(always)]
fn lower_word(classes: &Classes, text: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut both_end) = (start, start);
    loop {
        let (class, length) = classes.at(text, at);
        if class & UPPER == 0 {
            if class & LOWER != 0 {
                return Some(run::<LOWER, true>(classes, text, at + length));
            }
            return (both_end > start).then_some(both_end);
        }
        at += length;
        if class & LOWER != 0 {
            both_end = at;
        }
    }
}

/// `UPPER+LOWER*`, tried only where `UPPER*LOWER+` failed: then nothing lower follows.
#[inline(always)]
fn upper_word(classes: &Classes, text: &[u8], start: usize) -> Option<usize> {
    let end = run::<UPPER, true>(classes, text, start);
    (end > start).then_some(end)
}

/// `\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)`
#[inline(always)]
fn uw_2025_fence(classes: &Classes, text: &[u8], at: usize) -> Result<usize, usize> {
    let (class, length) = classes.at(text, at);
    if class & NUMBER != 0 {
        return Ok(numbers_up_to_3(classes, text, at));
    }
    if class & LETTER != 0 {
        return Err(letters(classes, text, at));
    }
    if let Some(start) = punctuation_start(classes, text, at) {
        let first = classes.at(text, start).1;
        let end = others(classes, text, start + first);
        if end > start + first {
            return Ok(newlines_and_slashes(text, end));
        }
    }
    if text[at] == b' ' {
        let mut end = at + 1;
        while end < text.len() && text[end] == b' ' {
            end += 1;
        }
        if end == text.len() || classes.at(text, end).0 & SPACE != 0 {
            return Ok(end);
        }
        if end - at >= 2 {
            return Ok(end - 1);
        }
    }
    Err(at + length)
}

/// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
#[inline(always)]
fn punctuation_fence(classes: &Classes, text: &[u8], at: usize) -> Result<usize, usize> {
    match punctuation_start(classes, text, at) {
        Some(start) => Ok(newlines(text, others(classes, text, start))),
        None => Err(at + classes.at(text, at).1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator, so that tests need no crate and repeat exactly.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) as usize) % n
        }
    }

    fn cut(scanner: &Scanner, text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        scanner.pieces(text.as_bytes(), |start, end| pieces.push(text[start..end].to_string())).unwrap();
        assert_eq!(pieces.concat(), text);
        pieces
    }

    #[test]
    fn scanners_cut_like_their_regexes() {
        let alphabet: Vec<&str> = vec![
            "a",
            "b",
            "s",
            "S",
            "T",
            "ll",
            "LL",
            "'",
            "'s",
            "'RE",
            "’",
            "ſ",
            " ",
            "  ",
            "\n",
            "\r",
            "\t",
            "\u{a0}",
            "\u{85}",
            "\u{2028}",
            "\u{3000}",
            "1",
            "23",
            "٣",
            "Ⅷ",
            "½",
            ".",
            "!",
            "/",
            ":",
            "-",
            "é",
            "É",
            "ǅ",
            "ʰ",
            "中",
            "の",
            "ก",
            "\u{301}",
            "\u{903}",
            "🦊",
            "👩\u{200d}💻",
            "\u{200b}",
            "\u{feff}",
            "א",
            "\u{5b0}",
            "\0",
            "_",
        ];
        let mut random = Random(7);
        for (name, regex, _) in NAMED.iter().filter(|(name, _, _)| *name != "none") {
            let fast = Scanner::new(regex).unwrap();
            assert!(matches!(fast, Scanner::Named(_)));
            let slow = Scanner::Regex(Box::new(fancy_regex::Regex::new(regex).unwrap()));
            for _ in 0..20_000 {
                let length = 1 + random.below(12);
                let text: String = (0..length).map(|_| alphabet[random.below(alphabet.len())]).collect();
                assert_eq!(cut(&fast, &text), cut(&slow, &text), "{name} on {text:?}");
            }
        }
    }

    #[test]
    fn gaps_of_a_regex_are_pieces() {
        let digits = Scanner::new(r"\d").unwrap();
        assert_eq!(cut(&digits, "ab1c22"), ["ab", "1", "c", "2", "2"]);
        let triples = Scanner::new(r"(?=(\d{3})+(?!\d))").unwrap();
        assert_eq!(cut(&triples, "n=1234567."), ["n=1", "234", "567."]);
    }
}
