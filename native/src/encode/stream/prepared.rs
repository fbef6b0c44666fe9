//! A text that comes in parts and is prepared first.

use super::{cuts::Cuts, text_stream::Stream};
use crate::encode::{encoder::Encoder, preparation::Preparation, state::State};
use crate::text::normalize::{certain_end, normalized};
use crate::text::specials::{Held, Part};

/// A text that comes in parts, on its way through a preparation into a `Stream`.
#[derive(Default)]
pub struct PreparedStream {
    early: Held,
    /// What the next character may still change.
    unnormalized: Vec<u8>,
    late: Held,
    stream: Stream,
}

/// What encodes a stream.
pub struct Into<'a> {
    pub preparation: &'a Preparation,
    pub encoder: &'a Encoder,
    pub cuts: &'a Cuts,
    /// Most bytes that may wait.
    pub limit: usize,
    pub state: &'a mut State,
    pub out: &'a mut Vec<u32>,
}

impl PreparedStream {
    /// Takes up a part, whole characters, and appends the ids that no later part can change; with `last`, all, and the
    /// stream is as new. Fails where more than the limit would have to wait.
    pub fn push(&mut self, part: &[u8], last: bool, into: &mut Into) -> Result<(), String> {
        let Self { early, unnormalized, late, stream } = self;
        let mut below = Below { unnormalized, late, stream };
        match &into.preparation.early {
            None => below.push(part, into)?,
            Some(specials) => early.push(part, specials, last, |part| match part {
                Part::Text(text) => below.push(text, into),
                Part::Token(id) => {
                    below.finish(into)?;
                    into.out.push(id);
                    Ok(())
                }
            })?,
        }
        if last {
            below.finish(into)?;
        }
        Ok(())
    }
}

/// All of it behind the search for early tokens.
struct Below<'s> {
    unnormalized: &'s mut Vec<u8>,
    late: &'s mut Held,
    stream: &'s mut Stream,
}

impl Below<'_> {
    fn push(&mut self, text: &[u8], into: &mut Into) -> Result<(), String> {
        if into.preparation.forms.is_empty() {
            return self.push_normalized(text, false, into);
        }
        self.unnormalized.extend_from_slice(text);
        let end = certain_end(&into.preparation.forms, self.unnormalized);
        let normal = normalized(&into.preparation.forms, &self.unnormalized[..end]).into_owned();
        self.unnormalized.drain(..end);
        if self.unnormalized.len() > into.limit {
            return Err(format!(
                "{} bytes of the stream are one character and its marks, which is more than max_pending_bytes={}; raise \
                 it, or mend the text",
                self.unnormalized.len(),
                into.limit
            ));
        }
        self.push_normalized(&normal, false, into)
    }

    fn finish(&mut self, into: &mut Into) -> Result<(), String> {
        let rest = std::mem::take(self.unnormalized);
        self.push_normalized(&normalized(&into.preparation.forms, &rest), true, into)
    }

    fn push_normalized(&mut self, text: &[u8], last: bool, into: &mut Into) -> Result<(), String> {
        let stream = &mut *self.stream;
        let Into { preparation, encoder, cuts, limit, state, out } = into;
        match &preparation.late {
            None => stream.push(text, encoder, cuts, *limit, state, out)?,
            Some(specials) => self.late.push(text, specials, last, |part| match part {
                Part::Text(text) => stream.push(text, encoder, cuts, *limit, state, out),
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
