//! A text that comes in parts.

use super::cuts::Cuts;
use crate::encode::{encoder::Encoder, state::State};
use crate::runtime::memory;

/// A text that comes in parts.
#[derive(Default)]
pub struct TextStream {
    /// What has no ids yet: from the last cut on.
    pending: Vec<u8>,
    /// No place before this one is a cut.
    searched: usize,
}

impl TextStream {
    /// Takes up a part, whole characters, and appends the ids that no later part can change. Fails where more than
    /// `limit` bytes would have to wait.
    pub fn push(
        &mut self,
        part: &[u8],
        encoder: &Encoder,
        cuts: &Cuts,
        limit: usize,
        state: &mut State,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        memory::reserve(&mut self.pending, part.len());
        self.pending.extend_from_slice(part);
        match cuts.last(encoder.definition(), &self.pending, self.searched) {
            Some(cut) => {
                encoder.encode(&self.pending[..cut], state, out)?;
                self.pending.drain(..cut);
                self.searched = self.pending.len();
            }
            None => self.searched = self.pending.len(),
        }
        if self.pending.len() > limit {
            return Err(format!(
                "{} bytes of the stream hold no place at which this tokenizer surely cuts text, which is more than \
                 max_pending_bytes={limit}; raise it, or encode the text in pieces of your own",
                self.pending.len()
            ));
        }
        Ok(())
    }

    /// Appends the ids of what is left; the stream is as new.
    pub fn finish(&mut self, encoder: &Encoder, state: &mut State, out: &mut Vec<u32>) -> Result<(), String> {
        let pending = std::mem::take(self).pending;
        encoder.encode(&pending, state, out)
    }
}
