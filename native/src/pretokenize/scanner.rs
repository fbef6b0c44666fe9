//! `Scanner`: splits text by any pattern.

use super::bounded_regex::{Meter, Regex, BOUNDS};
use super::patterns::{Kind, DIGITS, EQUIVALENT, NAMED};
use super::sink::Sink;
use super::{classes::CLASSES, fence_scanners, scalar, sentences, spans_plus, windows};
use crate::runtime::quoting::quoted;
use crate::text::masks::{Block, Bytes, BLOCK};
use crate::text::unit::Unit;

/// Splits text into pieces.
pub enum Scanner {
    Named(Kind),
    Regex(Box<Regex>),
    Sequence(Vec<Scanner>),
    /// A named pattern whose first line has `DIGITS` for `\p{N}`: for text without the numbers that they differ in, and
    /// for any text.
    Digits(Kind, Vec<Scanner>),
}

impl Scanner {
    /// The scanner of a pattern: a hand-written one if the regex is a spelling of a named pattern.
    pub fn new(pattern: &str) -> Result<Self, String> {
        if let Some(kind) = kind(pattern) {
            return Ok(Self::Named(kind));
        }
        if pattern.strip_suffix('+') == Some(DIGITS) {
            return Ok(Self::Named(Kind::DigitsFence));
        }
        if pattern.contains('\n') {
            if pattern.lines().any(str::is_empty) || pattern.ends_with('\n') {
                return Err(format!(
                    "the pattern {} has an empty line; a sequence has one regex per line, and a line feed inside a \
                     regex is written \\n",
                    quoted(pattern)
                ));
            }
            let lines = pattern.split('\n').map(Self::new).collect::<Result<_, _>>()?;
            let usual = pattern.strip_prefix(DIGITS).and_then(|rest| kind(&format!("\\p{{N}}{rest}")));
            return Ok(match usual {
                Some(kind) => Self::Digits(kind, lines),
                None => Self::Sequence(lines),
            });
        }
        Ok(Self::Regex(Box::new(Regex::new(pattern)?)))
    }

    /// Passes every non-empty piece of `text` to `sink`, in order.
    ///
    /// Fails only if a regex takes too long (see `bounded_regex`) or the text of a regex is not UTF-8.
    #[inline]
    pub fn pieces(&self, text: &[u8], mut sink: impl Sink) -> Result<(), String> {
        match self {
            Self::Named(kind) => named_pieces::<Block>(*kind, text, sink),
            Self::Digits(kind, _) if !has_new_numbers(text) => named_pieces::<Block>(*kind, text, sink),
            _ => {
                let piece = move |start, end| sink.piece(start, end);
                return Meter::run(text.len(), BOUNDS, |meter| self.metered_pieces(text, meter, piece));
            }
        }
        Ok(())
    }

    /// Passes every non-empty piece of each unit of the text to `sink`.
    pub fn pieces_of(&self, unit: Unit, text: &[u8], mut sink: impl Sink) -> Result<(), String> {
        match self {
            _ if unit == Unit::Document => self.pieces(text, sink),
            Self::Named(
                kind @ (Kind::Uw2025Fence | Kind::UwPaperFence | Kind::PunctuationFence | Kind::DigitsFence),
            ) => {
                fence_pieces::<Block>(*kind, text, true, sink);
                Ok(())
            }
            _ => {
                let mut next = 0;
                unit.split(text, |line| {
                    let first = next;
                    next += line.len();
                    self.pieces(line, |start, end| sink.piece(first + start, first + end))
                })
            }
        }
    }

    fn metered_pieces(&self, text: &[u8], meter: &Meter, mut piece: impl FnMut(usize, usize)) -> Result<(), String> {
        match self {
            Self::Named(kind) => named_pieces::<Block>(*kind, text, piece),
            Self::Regex(regex) => return regex_pieces(regex, text, meter, piece),
            Self::Digits(kind, _) if !has_new_numbers(text) => named_pieces::<Block>(*kind, text, piece),
            Self::Sequence(scanners) | Self::Digits(_, scanners) => {
                return sequence_pieces(scanners, text, 0, meter, &mut piece);
            }
        }
        Ok(())
    }

    /// Whether text may be cut between an ASCII letter or digit and a following space or line feed, such that both
    /// parts scanned separately give the pieces of the whole. Then one long document can be scanned by several threads.
    ///
    /// True if the pattern always cuts there, without looking ahead across the cut or back from it. False for fences,
    /// whose gaps span several words, and for any regex, since nothing is known about it.
    pub fn cuts_after_words(&self) -> bool {
        match self {
            Self::Named(kind) => match kind {
                Kind::Gpt2 | Kind::Cl100k | Kind::Llama3 | Kind::Digits1 | Kind::SpansPlus => true,
                Kind::O200k | Kind::Superbpe | Kind::UwPaper | Kind::Whitespace | Kind::Phrases => true,
                Kind::Uw2025Fence | Kind::UwPaperFence | Kind::PunctuationFence | Kind::DigitsFence => false,
                Kind::SentenceFence | Kind::PhrasesFence | Kind::Whole => false,
            },
            Self::Regex(_) | Self::Sequence(_) | Self::Digits(..) => false,
        }
    }
}

/// For each text, whether the regex matches in it; false for text that is not UTF-8.
pub fn found_in<'t>(pattern: &str, texts: impl Iterator<Item = &'t [u8]> + Clone) -> Result<Vec<bool>, String> {
    let regex = Regex::new(pattern)?;
    let bytes = texts.clone().map(<[u8]>::len).sum();
    Meter::run(bytes, BOUNDS, |meter| {
        texts.map(|text| Ok(std::str::from_utf8(text).is_ok() && regex.is_match(text, meter)?)).collect()
    })
}

/// Whether a text may contain numbers of `DIGITS` that are not `\p{N}`: the first three of their four bytes.
fn has_new_numbers(text: &[u8]) -> bool {
    ["\u{11DE0}", "\u{16FF4}"].iter().any(|number| memchr::memmem::find(text, &number.as_bytes()[..3]).is_some())
}

/// The named pattern of a regex.
fn kind(pattern: &str) -> Option<Kind> {
    let named = NAMED.iter().map(|&(_, regex, kind)| (regex, kind));
    named.chain(EQUIVALENT.iter().copied()).find(|(regex, _)| *regex == pattern).map(|(_, kind)| kind)
}

#[inline(always)]
pub(super) fn named_pieces<B: Bytes>(kind: Kind, text: &[u8], mut sink: impl Sink) {
    let classes = &*CLASSES;
    macro_rules! words {
        ($window:expr, $next:expr) => {
            windows::pieces(text, sink, $window, |at| $next(classes, text, at))
        };
    }
    // The sink moves into closures: its fields stay in registers if nothing points to it (3 to 7 % of plain encoding).
    match kind {
        Kind::Gpt2 => words!(|bytes, at| windows::gpt2::<B>(classes, bytes, text, at), scalar::gpt2),
        Kind::Cl100k => {
            words!(|bytes, at| windows::cl100k::<B, 3>(classes, bytes, text, at), scalar::cl100k::<true, 3>)
        }
        Kind::Llama3 => {
            words!(|bytes, at| windows::cl100k::<B, 3>(classes, bytes, text, at), scalar::cl100k::<false, 3>)
        }
        Kind::Digits1 => {
            words!(|bytes, at| windows::cl100k::<B, 1>(classes, bytes, text, at), scalar::cl100k::<false, 1>)
        }
        Kind::SpansPlus => words!(|bytes, at| windows::spans_plus::<B>(bytes, text, at), spans_plus::spans_plus),
        Kind::O200k => words!(|bytes, at| windows::o200k::<B, true>(classes, bytes, text, at), scalar::o200k::<true>),
        Kind::Superbpe => {
            words!(|bytes, at| windows::o200k::<B, false>(classes, bytes, text, at), scalar::o200k::<false>)
        }
        Kind::UwPaper => words!(|bytes, _| windows::uw_paper::<B>(classes, bytes), scalar::uw_paper),
        Kind::Whitespace => words!(|bytes, _| windows::whitespace::<B>(classes, bytes), scalar::whitespace),
        Kind::Phrases => each_piece(text, sink, |at| scalar::phrases::<false>(classes, text, at)),
        Kind::PhrasesFence => each_piece(text, sink, |at| scalar::phrases::<true>(classes, text, at)),
        Kind::Uw2025Fence | Kind::UwPaperFence | Kind::PunctuationFence | Kind::DigitsFence => {
            fence_pieces::<B>(kind, text, false, sink);
        }
        Kind::SentenceFence => sentences::pieces::<B>(classes, text, move |start, end| sink.piece(start, end)),
        Kind::Whole => {
            if !text.is_empty() {
                sink.piece(0, text.len());
            }
        }
    }
}

/// The pieces of a fence that has windows, of each line alone if `lines`.
#[inline(always)]
pub(super) fn fence_pieces<B: Bytes>(kind: Kind, text: &[u8], lines: bool, sink: impl Sink) {
    let classes = &*CLASSES;
    macro_rules! fence {
        ($window:expr, $find:expr) => {{
            let window = |bytes: &[u8; BLOCK], feeds| $window(classes, bytes, feeds);
            fence_scanners::pieces(text, lines, sink, window, |at| $find(classes, text, at))
        }};
    }
    match kind {
        Kind::Uw2025Fence => fence!(fence_scanners::uw_2025_window::<B>, fence_scanners::uw_2025),
        Kind::UwPaperFence => fence!(fence_scanners::uw_paper_window::<B>, fence_scanners::uw_paper),
        Kind::DigitsFence => fence!(fence_scanners::digits_window::<B>, fence_scanners::digits),
        _ => fence!(fence_scanners::punctuation_window::<B>, fence_scanners::punctuation),
    }
}

/// Passes the pieces that `next` finds one after the other.
#[inline(always)]
fn each_piece(text: &[u8], mut sink: impl Sink, next: impl Fn(usize) -> usize) {
    let mut at = 0;
    while at < text.len() {
        let end = next(at);
        sink.piece(at, end);
        at = end;
    }
}

/// Calls `piece` with the matches of a regex and the gaps between them.
fn regex_pieces(regex: &Regex, text: &[u8], meter: &Meter, mut piece: impl FnMut(usize, usize)) -> Result<(), String> {
    let mut gap = 0;
    regex.matches(text, meter, |start, end| {
        if gap < start {
            piece(gap, start);
        }
        if start < end {
            piece(start, end);
        }
        gap = end;
    })?;
    if gap < text.len() {
        piece(gap, text.len());
    }
    Ok(())
}

/// Each scanner splits the pieces of the one before it and sees only the piece.
fn sequence_pieces(
    scanners: &[Scanner],
    text: &[u8],
    offset: usize,
    meter: &Meter,
    piece: &mut dyn FnMut(usize, usize),
) -> Result<(), String> {
    let Some((first, rest)) = scanners.split_first() else {
        if !text.is_empty() {
            piece(offset, offset + text.len());
        }
        return Ok(());
    };
    let mut result = Ok(());
    first.metered_pieces(text, meter, |start, end| {
        if result.is_ok() {
            result = sequence_pieces(rest, &text[start..end], offset + start, meter, piece);
        }
    })?;
    result
}
