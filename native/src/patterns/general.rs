//! Patterns without a scanner of their own: any regex, and sequences of patterns.

use super::metered::{Meter, Regex};
use super::Scanner;

/// The matches of a regex and the gaps between them.
pub fn regex_pieces(
    regex: &Regex,
    text: &[u8],
    meter: &Meter,
    mut piece: impl FnMut(usize, usize),
) -> Result<(), String> {
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

/// Every scanner cuts the pieces of the one before it, and sees nothing but the piece.
pub fn sequence_pieces(
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
