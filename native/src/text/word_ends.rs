//! Positions at word ends, where long text may be cut.

/// Whether `at` is between an ASCII letter or digit and a space or line feed. Scanners with `Scanner::cuts_after_words`
/// cut there in any context.
#[inline]
pub fn is_word_end(text: &[u8], at: usize) -> bool {
    matches!(text[at], b' ' | b'\n') && text[at - 1].is_ascii_alphanumeric()
}
