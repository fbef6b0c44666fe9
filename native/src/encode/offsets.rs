//! Positions of tokens in their text.

use crate::runtime::interrupt::poll;

/// Start and end of every token in bytes and in characters, flat. `length(id)` is a token's length in bytes.
///
/// In characters, a token with a part of a character covers the whole character, as in HF `tokenizers`, so spans of
/// neighbours can overlap. Fails if the tokens do not spell as many bytes as the text has.
pub fn spans(text: &[u8], ids: &[u32], length: impl Fn(u32) -> usize) -> Result<(Vec<i64>, Vec<i64>), String> {
    let (mut bytes, mut characters) = (Vec::with_capacity(2 * ids.len()), Vec::with_capacity(2 * ids.len()));
    let is_start = |byte: &&u8| **byte & 0xC0 != 0x80;
    let (mut at, mut begun) = (0, 0i64); // characters that begin before `at`
    for &id in ids {
        let token = text.get(at..at + length(id)).ok_or("the tokens spell more than the text")?;
        let continues = token.first().is_some_and(|byte| !is_start(&byte));
        poll(token.len());
        bytes.extend([at as i64, (at + token.len()) as i64]);
        let first = begun - i64::from(continues);
        begun += token.iter().filter(is_start).count() as i64;
        characters.extend([first, begun]);
        at += token.len();
    }
    if at != text.len() {
        return Err("the tokens spell less than the text".to_string());
    }
    Ok((bytes, characters))
}
