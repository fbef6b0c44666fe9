//! Patterns without a scanner of their own: any regex, and sequences of patterns.

use fancy_regex::Regex;

use super::Scanner;

/// The matches of a regex and the gaps between them.
pub fn regex_pieces(regex: &Regex, text: &[u8], mut piece: impl FnMut(usize, usize)) -> Result<(), String> {
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

/// Every scanner cuts the pieces of the one before it, and sees nothing but the piece.
pub fn sequence_pieces(
    scanners: &[Scanner],
    text: &[u8],
    offset: usize,
    piece: &mut dyn FnMut(usize, usize),
) -> Result<(), String> {
    let Some((first, rest)) = scanners.split_first() else {
        if !text.is_empty() {
            piece(offset, offset + text.len());
        }
        return Ok(());
    };
    let mut result = Ok(());
    first.pieces(text, |start, end| {
        if result.is_ok() {
            result = sequence_pieces(rest, &text[start..end], offset + start, piece);
        }
    })?;
    result
}
