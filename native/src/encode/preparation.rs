//! Preparation of text before encoding: added tokens are extracted and the rest is normalised, as tokenizer.json
//! specifies and HF `tokenizers` does.
//!
//! 1. Added tokens that are not `normalized` are found in the original text, special or not.
//! 2. Each stretch between them is normalised on its own.
//! 3. In the normalised text, the tokens that are `normalized` are found.

use std::borrow::Cow;
use std::sync::Arc;

use super::{encoder::Encoder, state::State};
use crate::runtime::interrupt::poll;
use crate::text::batch::Batch;
use crate::text::normalize::{aligned, normalized, Form};
use crate::text::specials::{Part, Specials};
use crate::text::utf8::is_start;

pub struct Preparation {
    /// Found in the original text.
    pub early: Option<Specials>,
    pub forms: Vec<Form>,
    /// Found in the normalised text.
    pub late: Option<Specials>,
}

/// Ids of a text and the positions of its tokens.
#[derive(Default)]
pub struct LocatedTokens {
    pub ids: Vec<u32>,
    pub bytes: Vec<i64>,
    pub characters: Vec<i64>,
    /// For each token, the number of its piece of the pattern (of the fence, with superwords). Added
    /// tokens count as pieces.
    pub words: Vec<i64>,
}

/// Calls `give` with the tokens and the text between them, each with its range.
fn split<'t>(
    specials: Option<&Specials>,
    text: &'t [u8],
    mut give: impl FnMut(Part<'t>, usize, usize) -> Result<(), String>,
) -> Result<(), String> {
    let mut start = 0;
    for (range, id) in specials.into_iter().flat_map(|specials| specials.tokens(text)) {
        if start < range.start {
            give(Part::Text(&text[start..range.start]), start, range.start)?;
        }
        give(Part::Token(id), range.start, range.end)?;
        start = range.end;
    }
    if start < text.len() {
        give(Part::Text(&text[start..]), start, text.len())?;
    }
    Ok(())
}

/// No preparation.
pub static NONE: Preparation = Preparation { early: None, forms: Vec::new(), late: None };

impl Preparation {
    /// Calls `give` with the tokens and the text to encode between them.
    fn parts(&self, text: &[u8], give: &mut impl FnMut(Part) -> Result<(), String>) -> Result<(), String> {
        split(self.early.as_ref(), text, |part, _, _| match part {
            Part::Text(text) => split(self.late.as_ref(), &normalized(&self.forms, text), |part, _, _| give(part)),
            token => give(token),
        })
    }

    /// Whether text is encoded as it is.
    pub fn is_empty(&self) -> bool {
        self.early.is_none() && self.forms.is_empty() && self.late.is_none()
    }

    /// Appends the ids of a text.
    pub fn encode(&self, encoder: &Encoder, text: &[u8], state: &mut State, out: &mut Vec<u32>) -> Result<(), String> {
        self.parts(text, &mut |part| match part {
            Part::Text(text) => encoder.encode(text, state, out),
            Part::Token(id) => {
                out.push(id);
                Ok(())
            }
        })
    }

    /// Length of the text as it is encoded, in bytes, counting tokens by their strings, and whether it differs from the
    /// original.
    pub fn length(&self, text: &[u8]) -> (usize, bool) {
        let (mut length, mut changed) = (0, false);
        let counted = split(self.early.as_ref(), text, |part, start, end| {
            length += match part {
                Part::Text(text) => {
                    let normal = normalized(&self.forms, text);
                    changed |= matches!(normal, Cow::Owned(_));
                    normal.len()
                }
                Part::Token(_) => end - start,
            };
            Ok(())
        });
        debug_assert!(counted.is_ok());
        (length, changed)
    }

    /// The documents as they are encoded, with the strings of tokens; the same batch if nothing changes.
    pub fn normalize(&self, batch: &Arc<Batch>) -> Arc<Batch> {
        let is_same = |i: usize| {
            poll(batch.document(i).len());
            !self.length(batch.document(i)).1
        };
        let Some(first) = (0..batch.len()).find(|&i| !is_same(i)) else { return Arc::clone(batch) };
        let mut made = Batch::default();
        (0..first).for_each(|i| made.push(batch.document(i)));
        for document in &batch.documents()[first..] {
            let mut text = Vec::with_capacity(document.len());
            let split = split(self.early.as_ref(), document, |part, start, end| {
                let part = match part {
                    Part::Text(part) => normalized(&self.forms, part),
                    Part::Token(_) => Cow::Borrowed(&document[start..end]),
                };
                text.extend_from_slice(&part);
                Ok(())
            });
            debug_assert!(split.is_ok());
            made.push(&text);
        }
        Arc::new(made)
    }

    /// Ids of a text and the positions of its tokens. In characters: as in HF `tokenizers`. In bytes: the bytes of the
    /// token if nothing was normalised, otherwise those of the characters.
    pub fn locate(&self, encoder: &Encoder, text: &[u8], state: &mut State) -> Result<LocatedTokens, String> {
        let definition = encoder.definition();
        let cut = definition.second_pass_fence.as_ref().unwrap_or(&definition.scanner);
        let mut n_words = 0;
        let mut begun = vec![0i64; text.len() + 1]; // characters that begin before a byte
        for (at, byte) in text.iter().enumerate() {
            begun[at + 1] = begun[at] + i64::from(is_start(*byte));
        }
        let mut located = LocatedTokens::default();
        split(self.early.as_ref(), text, |part, start, end| {
            let stretch = match part {
                Part::Token(id) => {
                    located.put(id, (start, end), &begun);
                    located.words.push(n_words);
                    n_words += 1;
                    return Ok(());
                }
                Part::Text(stretch) => stretch,
            };
            let (normal, from) = aligned(&self.forms, stretch);
            let place = |first: usize, end: usize| match &from {
                None => (start + first, start + end),
                Some(from) => (start + from[first].0, start + from[end - 1].1),
            };
            split(self.late.as_ref(), &normal, |part, first, end| {
                let text = match part {
                    Part::Token(id) => {
                        located.put(id, place(first, end), &begun);
                        located.words.push(n_words);
                        n_words += 1;
                        return Ok(());
                    }
                    Part::Text(text) => text,
                };
                let mut found = Vec::new();
                encoder.encode(text, state, &mut found)?;
                let mut ends = Vec::with_capacity(found.len());
                let mut at = 0;
                for id in found {
                    let end = at + encoder.tokens().get(id).len();
                    if end > text.len() {
                        return Err("the tokens spell more than the text".to_string());
                    }
                    located.put(id, place(first + at, first + end), &begun);
                    ends.push(end);
                    at = end;
                }
                if at != text.len() {
                    return Err("the tokens spell less than the text".to_string());
                }
                let mut starts = std::iter::once(0).chain(ends).peekable();
                cut.pieces(text, |_, end| {
                    poll(1);
                    while starts.next_if(|&start| start < end).is_some() {
                        located.words.push(n_words);
                    }
                    n_words += 1;
                })?;
                Ok(())
            })
        })?;
        Ok(located)
    }
}

impl LocatedTokens {
    /// Adds a token. In characters, it covers the whole character of which it has a part, as in HF `tokenizers`, so
    /// neighbours can overlap. `begun`: number of characters that begin before each byte.
    fn put(&mut self, id: u32, (start, end): (usize, usize), begun: &[i64]) {
        let continues = i64::from(start < end && begun[start + 1] == begun[start]);
        self.ids.push(id);
        self.bytes.extend([start as i64, end as i64]);
        self.characters.extend([begun[start] - continues, begun[end]]);
    }
}
