//! Incremental encoding.

use crate::encode::{encoder::Encoder, preparation::Preparation, state::State};

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
        preparation: &Preparation,
        limit: usize,
        state: &mut State,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        self.pending.extend_from_slice(part);
        if let Some(ahead) = preparation.looks_ahead() {
            let (text, end) = (&self.pending[..], (self.pending.len() + 1).saturating_sub(ahead));
            let may_cut = |at| preparation.may_cut(text, at);
            let cut = encoder.cuts.last(encoder.definition(), text, self.searched..end, may_cut).unwrap_or(0);
            preparation.encode(encoder, &text[..cut], state, out)?;
            self.pending.drain(..cut);
            self.searched = end.saturating_sub(cut);
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
    pub fn finish(
        &mut self,
        encoder: &Encoder,
        preparation: &Preparation,
        state: &mut State,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        preparation.encode(encoder, &std::mem::take(self).pending, state, out)
    }
}
