//! Incremental encoding.

use crate::encode::{encoder::Encoder, preparation::Preparation, state::State};
use crate::text::normalize::{certain_end, normalized};
use crate::text::specials::{Part, PendingText};

/// Incremental encoding of a text that is prepared first.
#[derive(Default)]
pub struct PreparedStream {
    early: PendingText,
    /// Text whose normal form the next character may still change.
    unnormalized: Vec<u8>,
    late: PendingText,
    stream: TextStream,
}

/// Encoder and destination of a stream.
pub struct Target<'a> {
    pub preparation: &'a Preparation,
    pub encoder: &'a Encoder,
    /// Maximum number of pending bytes.
    pub limit: usize,
    pub state: &'a mut State,
    pub out: &'a mut Vec<u32>,
}

impl PreparedStream {
    /// Takes the next part (whole characters) and appends the ids that no later part can change; with `last`, all ids,
    /// and resets the stream. Fails if more than `limit` bytes are pending, also of a last part.
    pub fn push(&mut self, part: &[u8], last: bool, target: &mut Target) -> Result<(), String> {
        let Self { early, unnormalized, late, stream } = self;
        let mut rest = Late { unnormalized, late, stream };
        match &target.preparation.early {
            None => rest.push(part, target)?,
            Some(specials) => early.push(part, specials, last, |part| match part {
                Part::Text(text) => rest.push(text, target),
                Part::Token(id) => {
                    rest.finish(target)?;
                    target.out.push(id);
                    Ok(())
                }
            })?,
        }
        if last {
            rest.finish(target)?;
        }
        Ok(())
    }
}

/// The steps after the search for early tokens.
struct Late<'s> {
    unnormalized: &'s mut Vec<u8>,
    late: &'s mut PendingText,
    stream: &'s mut TextStream,
}

impl Late<'_> {
    fn push(&mut self, text: &[u8], target: &mut Target) -> Result<(), String> {
        if target.preparation.forms.is_empty() {
            return self.push_normalized(text, false, target);
        }
        self.unnormalized.extend_from_slice(text);
        let end = certain_end(&target.preparation.forms, self.unnormalized);
        let normal = normalized(&target.preparation.forms, &self.unnormalized[..end]).into_owned();
        self.unnormalized.drain(..end);
        if self.unnormalized.len() > target.limit {
            return Err(format!(
                "{} bytes of the stream are one character and its marks, more than max_pending_bytes={}; raise \
                 it, or fix the text",
                self.unnormalized.len(),
                target.limit
            ));
        }
        self.push_normalized(&normal, false, target)
    }

    fn finish(&mut self, target: &mut Target) -> Result<(), String> {
        let rest = std::mem::take(self.unnormalized);
        self.push_normalized(&normalized(&target.preparation.forms, &rest), true, target)
    }

    fn push_normalized(&mut self, text: &[u8], last: bool, target: &mut Target) -> Result<(), String> {
        let stream = &mut *self.stream;
        let Target { preparation, encoder, limit, state, out } = target;
        match &preparation.late {
            None => stream.push(text, encoder, *limit, state, out)?,
            Some(specials) => self.late.push(text, specials, last, |part| match part {
                Part::Text(text) => stream.push(text, encoder, *limit, state, out),
                Part::Token(id) => {
                    stream.finish(encoder, state, out)?;
                    out.push(id);
                    Ok(())
                }
            })?,
        }
        if last {
            stream.finish(encoder, state, out)?;
        }
        Ok(())
    }
}

/// Incremental encoding of a text.
#[derive(Default)]
pub struct TextStream {
    /// Text without ids yet: from the last cut on.
    pending: Vec<u8>,
    /// No position before this one is a cut.
    searched: usize,
}

impl TextStream {
    /// Takes the next part (whole characters) and appends the ids that no later part can change. Fails if more than
    /// `limit` bytes would be pending.
    pub fn push(
        &mut self,
        part: &[u8],
        encoder: &Encoder,
        limit: usize,
        state: &mut State,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        self.pending.extend_from_slice(part);
        match encoder.cuts.last(encoder.definition(), &self.pending, self.searched) {
            Some(cut) => {
                encoder.encode(&self.pending[..cut], state, out)?;
                self.pending.drain(..cut);
                self.searched = self.pending.len();
            }
            None => self.searched = self.pending.len(),
        }
        if self.pending.len() > limit {
            return Err(format!(
                "{} bytes of the stream contain no position at which this tokenizer always cuts, more than \
                 max_pending_bytes={limit}; raise it, or encode the text in separate parts",
                self.pending.len()
            ));
        }
        Ok(())
    }

    /// Appends the ids of the rest and resets the stream.
    pub fn finish(&mut self, encoder: &Encoder, state: &mut State, out: &mut Vec<u32>) -> Result<(), String> {
        let pending = std::mem::take(self).pending;
        encoder.encode(&pending, state, out)
    }
}
