//! Incremental encoding.

use crate::encode::{encoder::Encoder, state::State};

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
