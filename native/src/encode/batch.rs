//! Batches of documents, encoded on several threads.

use super::encoder::Encoder;
use crate::text::documents::{self, Documents, Strings, BYTES_PER_TOKEN, CHUNK_BYTES};

/// Longer documents are split for several threads.
const LONG_BYTES: usize = 4 * CHUNK_BYTES;

/// A document without a cut within this many bytes is not split further.
const SEARCHED_BYTES: usize = 8 * CHUNK_BYTES;

impl Encoder {
    /// Ids of all documents of a batch, and the offsets of each document's ids.
    pub fn encode_batch(
        &self,
        batch: &(impl Documents + ?Sized),
        threads: usize,
    ) -> Result<(Vec<u32>, Vec<i64>), String> {
        if threads > 1 && batch.offsets().windows(2).any(|ends| ends[1] - ends[0] > LONG_BYTES as i64) {
            let (parts, last_parts) = self.parts(batch);
            let (ids, offsets) = self.encode_apart(&parts, threads)?;
            return Ok((ids, last_parts.iter().map(|&part| offsets[part]).collect()));
        }
        self.encode_apart(batch, threads)
    }

    /// The documents with long ones split into parts that encode to the same ids, and the cumulative number of parts
    /// per document, from 0.
    pub(super) fn parts<'a>(&self, batch: &'a (impl Documents + ?Sized)) -> (Strings<'a>, Vec<usize>) {
        let (mut parts, mut last_parts) = (Vec::new(), vec![0]);
        for number in 0..batch.count() {
            let mut rest = batch.document(number);
            while rest.len() > LONG_BYTES {
                let places = CHUNK_BYTES..SEARCHED_BYTES.min(rest.len() - CHUNK_BYTES);
                let Some(cut) = self.cuts().first(&self.definition, rest, places) else { break };
                let (part, after) = rest.split_at(cut);
                parts.push(part);
                rest = after;
            }
            parts.push(rest);
            last_parts.push(parts.len());
        }
        (Strings::new(parts), last_parts)
    }

    /// `encode_batch` with each document on one thread.
    fn encode_apart(&self, batch: &(impl Documents + ?Sized), threads: usize) -> Result<(Vec<u32>, Vec<i64>), String> {
        let n_bytes = (batch.offsets()[batch.count()] - batch.offsets()[0]) as usize;
        let threads = threads.min(n_bytes / CHUNK_BYTES + 1); // states are large
        self.with_states(threads, |states| {
            documents::map(batch, states, n_bytes / BYTES_PER_TOKEN, |state, _, document, ids| {
                self.encode(document, state, ids)
            })
        })
    }
}
