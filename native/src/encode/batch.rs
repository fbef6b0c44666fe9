//! Batches of documents, encoded on several threads.

use super::{encoder::Encoder, preparation::Preparation};
use crate::text::documents::{self, BYTES_PER_TOKEN, CHUNK_BYTES};

/// Longer documents are split for several threads.
const LONG_BYTES: usize = 4 * CHUNK_BYTES;

/// If the rest of a document has no safe cut between `CHUNK_BYTES` and this many bytes, it stays whole.
const SEARCHED_BYTES: usize = 8 * CHUNK_BYTES;

impl Encoder {
    /// Ids of all documents, and the offsets of each document's ids. Documents that are prepared are not split.
    pub fn encode_batch(
        &self,
        documents: &[&[u8]],
        threads: usize,
        preparation: &Preparation,
    ) -> Result<(Vec<u32>, Vec<i64>), String> {
        let (parts, part_offsets) = if threads > 1 && preparation.is_empty() {
            self.parts(documents)
        } else {
            (documents.to_vec(), Vec::new())
        };
        let n_bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let threads = threads.min(n_bytes / CHUNK_BYTES + 1).min(parts.len()).max(1); // states are large
        let (ids, mut offsets) = self.with_states(threads, |states| {
            documents::map(&parts, states, n_bytes / BYTES_PER_TOKEN, |state, _, part, ids| {
                preparation.encode(self, part, state, ids)
            })
        })?;
        if parts.len() > documents.len() {
            offsets = part_offsets.iter().map(|&part| offsets[part]).collect();
        }
        Ok((ids, offsets))
    }

    /// The documents with long ones split into parts that encode to the same ids, and the cumulative number of parts
    /// per document, from 0.
    pub(super) fn parts<'a>(&self, documents: &[&'a [u8]]) -> (Vec<&'a [u8]>, Vec<usize>) {
        let (mut parts, mut part_offsets) = (Vec::with_capacity(documents.len()), vec![0]);
        for mut rest in documents.iter().copied() {
            while rest.len() > LONG_BYTES {
                let places = CHUNK_BYTES..SEARCHED_BYTES.min(rest.len() - CHUNK_BYTES);
                let Some(cut) = self.cuts.first(&self.definition, rest, places) else { break };
                let (part, after) = rest.split_at(cut);
                parts.push(part);
                rest = after;
            }
            parts.push(rest);
            part_offsets.push(parts.len());
        }
        (parts, part_offsets)
    }
}
