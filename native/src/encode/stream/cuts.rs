//! Where a text can be cut without knowing what follows, such that its parts encode to the ids of the whole.
//!
//! A cut between two characters is safe if
//!
//! 1. the scanners (the pattern; for two-pass tokenizers also the fence) split the parts like the whole, and
//! 2. no merge can join across it: either a piece of the scanner always ends there, or no merge has a left part that
//!    ends in the byte before and a right part that begins with the byte after.
//!
//! Merging by rank inside a stretch does not depend on its surroundings if no merge crosses its ends: if the lowest
//! rank of the text is inside, it is the lowest inside. So 1 and 2 together give the same ids.
//!
//! Both are decided by the two characters alone, whatever follows. For 1, every rule of `place` rests on two facts
//! about its scanner. From the left: no piece or match extends over the position, and what is decided before it is
//! decided the same way at the end of a text. From the right: the scanner is between pieces at the position and does
//! not look back. The tests check the rules against the scanners on generated text.

use std::ops::Range;

use crate::encode::definition::Definition;
use crate::pretokenize::classes::{ANY_NUMBER, CLASSES, LETTER, LOWER, NOT_OTHER, NUMBER, SPACE, UPPER};
use crate::pretokenize::patterns::{Kind, DIGITS};
use crate::pretokenize::scanner::Scanner;
use crate::text::utf8::{decode, is_start};

/// Behaviour of a scanner between two characters, whatever their surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// The text can be scanned in two parts.
    Apart,
    /// `Apart`, and a piece ends here.
    End,
    /// Nothing is known.
    Open,
}

/// The two characters at a position.
struct Seam {
    left: u8, // class bits
    right: u8,
    next: u32, // code point
}

impl Seam {
    fn at(text: &[u8], at: usize) -> Self {
        Self { left: CLASSES.before(text, at), right: CLASSES.at(text, at).0, next: decode(text, at).0 }
    }
}

fn place(scanner: &Scanner, seam: &Seam) -> Place {
    match scanner {
        // The numbers of Unicode 17 only add boundaries.
        Scanner::Named(kind) | Scanner::Digits(kind, _) => named(*kind, seam),
        Scanner::Regex(regex) => numbers(regex.as_str(), seam),
        // Each scanner sees the pieces of the one before, or parts of them.
        Scanner::Sequence(scanners) => scanners.iter().map(|scanner| place(scanner, seam)).max().unwrap_or(Place::Open),
    }
}

fn named(kind: Kind, seam: &Seam) -> Place {
    let &Seam { left, right, .. } = seam;
    match kind {
        // Words. All of them end before white space that is not part of a line's end, and continue a run of letters
        // only with letters, marks and contractions.
        Kind::Gpt2 | Kind::Cl100k | Kind::Llama3 | Kind::Digits1 | Kind::SpansPlus => words(kind, seam),
        Kind::O200k | Kind::Superbpe | Kind::UwPaper | Kind::Whitespace | Kind::Phrases => words(kind, seam),
        // A space may continue a phrase. Alone, the text after it begins with the same piece.
        Kind::PhrasesFence if seam.next == 0x20 && left & (UPPER | LOWER) != 0 => Place::Apart,
        Kind::PhrasesFence => words(kind, seam),
        Kind::DigitsFence => runs(ANY_NUMBER, seam),
        // Fences. No match contains a letter, and a match just before a letter would also match at the end of the
        // text. The text after it matters only for spaces.
        Kind::Uw2025Fence | Kind::UwPaperFence | Kind::PunctuationFence => {
            let taken = if matches!(kind, Kind::PunctuationFence) {
                |class: u8| class & NOT_OTHER == 0
            } else {
                |class: u8| class & NUMBER != 0
            };
            if left & LETTER != 0 && taken(right) || taken(left) && right & LETTER != 0 {
                Place::End
            } else if left & LETTER != 0 || right & LETTER != 0 && left & SPACE == 0 {
                Place::Apart
            } else {
                Place::Open
            }
        }
        // The end of a sentence depends on at most two characters before it and one after it. Only the one after it
        // can be a letter, and all letters are equivalent there.
        Kind::SentenceFence if (left | right) & LETTER != 0 => Place::Apart,
        Kind::SentenceFence => Place::Open,
        Kind::Whole => Place::Apart,
    }
}

fn words(kind: Kind, seam: &Seam) -> Place {
    let &Seam { left, right, next } = seam;
    let ends = match next {
        0x20 => left & SPACE == 0,
        0x0A => left & (LETTER | NUMBER) != 0,
        // Contractions continue a word with either apostrophe.
        0x27 | 0x2019 => false,
        0x2B | 0x2D if matches!(kind, Kind::SpansPlus) => false, // 1e-5
        _ if left & LETTER == 0 || matches!(kind, Kind::Whitespace) => false,
        _ if right & NUMBER != 0 => !matches!(kind, Kind::SpansPlus), // 1e5
        _ => right & (NOT_OTHER | UPPER | LOWER) == 0,
    };
    if ends {
        Place::End
    } else {
        Place::Open
    }
}

/// HF's `Digits`, and the usual regexes for numbers: all matches are within runs of numbers.
fn numbers(regex: &str, seam: &Seam) -> Place {
    let number = match regex {
        r"\p{N}" | r"\p{N}+" | r"\p{N}{1,3}" => NUMBER,
        DIGITS => ANY_NUMBER,
        _ => return Place::Open,
    };
    runs(number, seam)
}

fn runs(number: u8, seam: &Seam) -> Place {
    match (seam.left & number != 0, seam.right & number != 0) {
        (false, false) => Place::Apart,
        (true, true) => Place::Open,
        _ => Place::End,
    }
}

/// A set of pairs of bytes.
struct Pairs(Vec<u64>);

impl Pairs {
    /// The pairs of bytes at the seams that the merges join.
    fn joined(definition: &Definition, ranks: std::ops::Range<usize>) -> Self {
        let mut pairs = Self(vec![0; 1 << 10]);
        for merge in &definition.merges[ranks] {
            let (left, right) = (definition.tokens.get(merge.left), definition.tokens.get(merge.right));
            if let (Some(&last), Some(&first)) = (left.last(), right.first()) {
                pairs.0[(last as usize) << 2 | first as usize >> 6] |= 1 << (first & 63);
            }
        }
        pairs
    }

    fn has(&self, left: u8, right: u8) -> bool {
        self.0[(left as usize) << 2 | right as usize >> 6] >> (right & 63) & 1 != 0
    }
}

/// Where texts of a tokenizer can be cut.
pub struct Cuts {
    phase1: Pairs,
    phase2: Pairs,
    /// The tokens of a piece depend on the whole piece, not only on its merges.
    whole_pieces: bool,
}

impl Cuts {
    pub fn new(definition: &Definition) -> Self {
        let n = definition.merges.len();
        Self {
            phase1: Pairs::joined(definition, 0..definition.phase1),
            phase2: Pairs::joined(definition, definition.phase1..n),
            whole_pieces: definition.eligible.is_some(),
        }
    }

    /// Whole pieces may become tokens that merges do not produce.
    pub fn depend_on_whole_pieces(&mut self) {
        self.whole_pieces = true;
    }

    /// Whether the text can be cut at `at`, a position between two characters, whatever follows the second.
    fn is_safe(&self, definition: &Definition, text: &[u8], at: usize) -> bool {
        let seam = Seam::at(text, at);
        let phase1 = place(&definition.scanner, &seam);
        if phase1 == Place::Open {
            return false;
        }
        let joins = |pairs: &Pairs| pairs.has(text[at - 1], text[at]);
        let phase1_ends = phase1 == Place::End || !self.whole_pieces && !joins(&self.phase1);
        match &definition.second_pass_fence {
            None => phase1_ends && (phase1 == Place::End || !joins(&self.phase2)),
            Some(fence) => {
                let phase2 = place(fence, &seam);
                phase1_ends && phase2 != Place::Open && (phase2 == Place::End || !joins(&self.phase2))
            }
        }
    }

    /// The first safe cut in a range of positions.
    pub fn first(&self, definition: &Definition, text: &[u8], mut range: Range<usize>) -> Option<usize> {
        range.start = range.start.max(1);
        range.end = range.end.min(text.len());
        range.filter(|&at| is_start(text[at])).find(|&at| self.is_safe(definition, text, at))
    }

    /// The last safe cut at or after `from`.
    pub fn last(&self, definition: &Definition, text: &[u8], from: usize) -> Option<usize> {
        let mut starts = (from.max(1)..text.len()).rev().filter(|&at| is_start(text[at]));
        starts.find(|&at| self.is_safe(definition, text, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pretokenize::patterns::NAMED;
    use crate::runtime::random::Random;

    const CHARACTERS: &[char] = &[
        'a', 'b', 's', 'S', 't', 'e', 'E', 'l', 'Z', 'é', 'ſ', 'ǅ', 'ʰ', 'д', '中', '日', 'ก', '็', '\u{301}', '0', '1',
        '2', '9', '½', '٣', ' ', ' ', ' ', '\n', '\r', '\t', '\u{a0}', '\u{2028}', '\'', '’', '.', ',', '_', '%', '/',
        '#', '-', '🙂', '👍', '🇩', '+', '\u{fe0f}', '\u{20e3}', '\u{200d}', '。', '」', '"', ')', '।', '𑷣', '𖿴',
    ];

    fn ends(scanner: &Scanner, text: &[u8]) -> Vec<usize> {
        let mut ends = Vec::new();
        scanner.pieces(text, |_, end| ends.push(end)).unwrap();
        ends
    }

    /// The parts of a text at a known position give the pieces of the whole; at `Apart`, possibly with one more
    /// boundary.
    #[test]
    fn scanners_cut_the_parts_as_the_whole() {
        let mut random = Random(29);
        let runs = format!("{DIGITS}+");
        let others = [r"\p{N}", r"\p{N}+", r"\p{N}{1,3}", DIGITS, &runs];
        let gpt2 = NAMED[0].1;
        let mut sequences =
            vec![format!("\\p{{N}}\n{gpt2}"), format!("\\p{{N}}{{1,3}}\n{gpt2}"), "\\p{N}+\n".to_string() + NAMED[7].1];
        sequences.extend(NAMED[8..10].iter().map(|named| named.1.replacen(r"\p{N}", DIGITS, 1)));
        let patterns = NAMED.iter().map(|named| named.1).chain(others).chain(sequences.iter().map(String::as_str));
        for pattern in patterns {
            let scanner = Scanner::new(pattern).unwrap();
            let (mut apart, mut certain) = (0, 0);
            for case in 0..12_000 {
                // Few distinct characters per text, so that runs of one class are long.
                let few: Vec<char> = (0..2 + case % 9).map(|_| CHARACTERS[random.below(CHARACTERS.len())]).collect();
                let text: String = (0..12).map(|_| few[random.below(few.len())]).collect();
                let whole = ends(&scanner, text.as_bytes());
                for (at, _) in text.char_indices().skip(1) {
                    let place = place(&scanner, &Seam::at(text.as_bytes(), at));
                    if place == Place::Open {
                        continue;
                    }
                    let (left, right) = text.as_bytes().split_at(at);
                    let mut parts = ends(&scanner, left);
                    parts.extend(ends(&scanner, right).iter().map(|end| at + end));
                    if place == Place::Apart && !whole.contains(&at) {
                        parts.retain(|&end| end != at);
                        apart += 1;
                    }
                    certain += usize::from(place == Place::End);
                    assert_eq!(parts, whole, "{pattern:?} of {text:?} at {at}");
                }
            }
            assert!(apart + certain > 1000, "{pattern:?} is hardly ever cut");
        }
        let unknown = Scanner::new(r"\S+|\s+").unwrap();
        assert!((1..9).all(|at| place(&unknown, &Seam::at(b"ab 1, \nx ", at)) == Place::Open));
    }
}
