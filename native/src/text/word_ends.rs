//! Positions at word ends, where long text may be cut.

/// The last position in `text` between an ASCII letter or digit and a space or line feed, or 0.
///
/// Scanners with `Scanner::cuts_after_words` cut there in any context.
pub fn word_end(text: &[u8]) -> usize {
    (1..text.len()).rev().find(|&at| is_word_end(text, at)).unwrap_or(0)
}

#[inline]
pub fn is_word_end(text: &[u8], at: usize) -> bool {
    matches!(text[at], b' ' | b'\n') && text[at - 1].is_ascii_alphanumeric()
}
