//! Scanners that read one character at a time: exact for all text, and the reference for the bit masks.
//!
//! Each function returns the end of the piece that starts at `at`.

use super::classes::{Classes, DIGIT, LETTER, LOWER, NOT_OTHER, NUMBER, SPACE, UPPER};

/// End of the run of characters from `at` whose class has (`WANTED`) or lacks (not `WANTED`) any bit of `MASK`.
#[inline(always)]
pub fn run<const MASK: u8, const WANTED: bool>(classes: &Classes, text: &[u8], mut at: usize) -> usize {
    loop {
        let (class, length) = classes.at(text, at);
        if length == 0 || (class & MASK != 0) != WANTED {
            return at;
        }
        at += length;
    }
}

#[inline(always)]
pub fn letters(classes: &Classes, text: &[u8], at: usize) -> usize {
    run::<LETTER, true>(classes, text, at)
}

#[inline(always)]
pub fn others(classes: &Classes, text: &[u8], at: usize) -> usize {
    run::<NOT_OTHER, false>(classes, text, at)
}

/// End of up to `MOST` numbers from `at`.
#[inline(always)]
pub fn numbers<const MOST: usize>(classes: &Classes, text: &[u8], mut at: usize) -> usize {
    for _ in 0..MOST {
        let (class, length) = classes.at(text, at);
        if class & NUMBER == 0 {
            break;
        }
        at += length;
    }
    at
}

#[inline(always)]
pub fn is_newline(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

#[inline(always)]
pub fn newlines(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && is_newline(text[at]) {
        at += 1;
    }
    at
}

#[inline(always)]
pub fn newlines_and_slashes(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && (is_newline(text[at]) || text[at] == b'/') {
        at += 1;
    }
    at
}

/// A run of white space from `at`: its end, the start of its last character, and the end of its last line break.
#[inline(always)]
pub fn white_space(classes: &Classes, text: &[u8], start: usize) -> (usize, usize, usize) {
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

/// `\s+(?!\S)|\s+`: leaves the last space to the word after it.
#[inline(always)]
pub fn all_but_last(text: &[u8], start: usize, end: usize, last: usize) -> usize {
    if end == text.len() || last == start {
        end
    } else {
        last
    }
}

/// Length of `'(?:[sdmt]|ll|ve|re)` at `at`, or 0.
#[inline(always)]
pub fn small_contraction(text: &[u8], at: usize) -> usize {
    if text.get(at) != Some(&b'\'') {
        return 0;
    }
    match (text.get(at + 1), text.get(at + 2)) {
        (Some(b's' | b'd' | b'm' | b't'), _) => 2,
        (Some(b'l'), Some(b'l')) | (Some(b'v' | b'r'), Some(b'e')) => 3,
        _ => 0,
    }
}

#[inline(always)]
pub fn gpt2(classes: &Classes, text: &[u8], at: usize) -> usize {
    let contraction = small_contraction(text, at);
    if contraction > 0 {
        return at + contraction;
    }
    let mut word = at;
    let (mut class, mut length) = classes.at(text, at);
    if text[at] == b' ' && at + 1 < text.len() {
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

/// ` ?\S+|\s+(?!\S)|\s+`
#[inline(always)]
pub fn whitespace(classes: &Classes, text: &[u8], at: usize) -> usize {
    let word = if text[at] == b' ' { at + 1 } else { at };
    let (class, length) = classes.at(text, word);
    if length > 0 && class & SPACE == 0 {
        return run::<SPACE, false>(classes, text, word + length);
    }
    let (end, last, _) = white_space(classes, text, at);
    all_but_last(text, at, end, last)
}

/// Runs of numbers on their own, cut into triples of digits; between them GPT-2's words without contractions.
#[inline(always)]
pub fn uw_paper(classes: &Classes, text: &[u8], at: usize) -> usize {
    let (mut class, mut length) = classes.at(text, at);
    if class & NUMBER != 0 {
        return triple(classes, text, at);
    }
    let mut word = at;
    if text[at] == b' ' {
        word = at + 1;
        (class, length) = classes.at(text, word);
    }
    if class & LETTER != 0 {
        return letters(classes, text, word + length);
    }
    if length > 0 && class & NOT_OTHER == 0 {
        return others(classes, text, word + length);
    }
    // White space before a number ends the text that the second regex sees.
    let (end, last, _) = white_space(classes, text, at);
    if classes.at(text, end).0 & NUMBER != 0 {
        return end;
    }
    all_but_last(text, at, end, last)
}

/// One piece of a run of numbers: `(?=(\d{3})+(?!\d))` cuts a run of digits into triples from the right. Numbers that
/// are not digits (½, Ⅷ) belong to the run but to no triple.
#[inline(always)]
pub fn triple(classes: &Classes, text: &[u8], at: usize) -> usize {
    let after_digits = |mut at: usize, mut most: usize| {
        let mut n = 0;
        while most > 0 {
            let (class, length) = classes.at(text, at);
            if class & DIGIT == 0 {
                break;
            }
            at += length;
            n += 1;
            most -= 1;
        }
        (at, n)
    };
    let mut end = at;
    // A piece after a number starts at a cut: three digits, followed by a multiple of three digits.
    if classes.before(text, at) & NUMBER != 0 {
        end = after_digits(at, 3).0;
        if classes.at(text, end).0 & DIGIT != 0 {
            return end;
        }
    }
    loop {
        let (class, length) = classes.at(text, end);
        if class & NUMBER == 0 {
            return end;
        }
        if class & DIGIT == 0 {
            end += length;
            continue;
        }
        let (run_end, n) = after_digits(end, usize::MAX);
        if n % 3 == 0 && end > at {
            return end;
        }
        let (first, taken) = after_digits(end, if n % 3 == 0 { 3 } else { n % 3 });
        if taken < n {
            return first;
        }
        end = run_end;
    }
}

/// Length of `(?i:'s|'t|'re|'ve|'m|'ll|'d)` at `at`, or 0. U+017F (long s) folds to s.
#[inline(always)]
pub fn contraction(text: &[u8], at: usize) -> usize {
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

/// ` ?[^\s\p{L}\p{N}]+` from `at`: start of the run of others, if there is one.
#[inline(always)]
pub fn punctuation_start(classes: &Classes, text: &[u8], at: usize) -> Option<usize> {
    let start = if text[at] == b' ' { at + 1 } else { at };
    let (class, length) = classes.at(text, start);
    (length > 0 && class & NOT_OTHER == 0).then_some(start)
}

/// The cl100k family. `END`: tiktoken's `\s++$`, which keeps white space at the end of the text in one piece. `DIGITS`:
/// maximum length of a run of numbers.
#[inline(always)]
pub fn cl100k<const END: bool, const DIGITS: usize>(classes: &Classes, text: &[u8], at: usize) -> usize {
    let contraction = contraction(text, at);
    if contraction > 0 {
        return at + contraction;
    }
    let (class, length) = classes.at(text, at);
    if class & LETTER != 0 {
        return letters(classes, text, at + length);
    }
    if class & NUMBER != 0 {
        return numbers::<DIGITS>(classes, text, at);
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

/// Words of letters and marks, each number apart, and punctuation with at most one line break. `JOINED`: single spaces
/// join words.
#[inline(always)]
pub fn phrases<const JOINED: bool>(classes: &Classes, text: &[u8], at: usize) -> usize {
    let contraction = contraction(text, at);
    if contraction > 0 {
        return at + contraction;
    }
    let (class, length) = classes.at(text, at);
    if class & NUMBER != 0 {
        return at + length;
    }
    let first = if class & LETTER != 0 || is_newline(text[at]) { at } else { at + length };
    if classes.at(text, first).0 & LETTER != 0 {
        let mut end = first;
        loop {
            end = run::<{ UPPER | LOWER }, true>(classes, text, end); // letters and marks
            if !JOINED || text.get(end) != Some(&b' ') || classes.at(text, end + 1).0 & LETTER == 0 {
                return end;
            }
            end += 1;
        }
    }
    if let Some(start) = punctuation_start(classes, text, at) {
        let end = others(classes, text, start);
        return end + usize::from(end < text.len() && is_newline(text[end]));
    }
    let (end, last, line_end) = white_space(classes, text, at);
    if line_end > at {
        return line_end;
    }
    all_but_last(text, at, end, last)
}

/// The o200k family. `CONTRACTIONS`: they are attached to the word before.
#[inline(always)]
pub fn o200k<const CONTRACTIONS: bool>(classes: &Classes, text: &[u8], at: usize) -> usize {
    let (class, length) = classes.at(text, at);
    if class & NUMBER != 0 {
        return numbers::<3>(classes, text, at);
    }
    // Letters cannot be the optional first character. Marks can be that or part of the word.
    let after = (class & LETTER == 0 && !is_newline(text[at])).then_some(at + length);
    let here = (class & (UPPER | LOWER) != 0).then_some(at);
    let word = |shape: fn(&Classes, &[u8], usize) -> Option<usize>| {
        after
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

/// `UPPER*LOWER+`: if no purely lower character follows the upper run, the regex backtracks to a character in both
/// classes, which can be the lower part.
#[inline(always)]
pub fn lower_word(classes: &Classes, text: &[u8], start: usize) -> Option<usize> {
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

/// `UPPER+LOWER*`, tried only if `UPPER*LOWER+` failed: then no lower character follows.
#[inline(always)]
pub fn upper_word(classes: &Classes, text: &[u8], start: usize) -> Option<usize> {
    let end = run::<UPPER, true>(classes, text, start);
    (end > start).then_some(end)
}
