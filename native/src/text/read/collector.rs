//! Collects the documents of one thread into batches.

use super::queue::Lane;
use super::settings::{too_long, Settings};
use crate::runtime::memory;
use crate::text::batch::{self, Batch};

/// Collects the documents of one thread into batches.
pub(super) struct Collector {
    pub(super) batch: Batch,
    limit: usize,
    pub(super) lane: Lane<Batch>,
}

impl Collector {
    pub(super) fn new(lane: Lane<Batch>, limit: usize) -> Self {
        Self { batch: Batch::default(), limit, lane }
    }

    /// Ends the document that starts at the last offset of `batch.data`, after validating its UTF-8. `base`: its
    /// position in the file. Ok(false) if no more documents are wanted.
    pub(super) fn close(&mut self, base: u64, settings: &Settings) -> Result<bool, String> {
        let start = *self.batch.offsets.last().expect("offsets start with 0") as usize;
        let length = self.batch.data.len() - start;
        if settings.skip_above.is_some_and(|most| length > most) {
            self.batch.data.truncate(start);
            return Ok(true);
        }
        if length > settings.limit {
            return Err(too_long("a document", base, settings));
        }
        if let Err(error) = std::str::from_utf8(&self.batch.data[start..]) {
            if !settings.replace_invalid {
                return Err(format!(
                    "not UTF-8 at byte {} of the text; fix the file, or set on_invalid_utf8=replace to read malformed \
                     bytes as U+FFFD",
                    base + error.valid_up_to() as u64
                ));
            }
            let mut replaced = memory::with_capacity(length);
            for chunk in self.batch.data[start..].utf8_chunks() {
                replaced.extend_from_slice(chunk.valid().as_bytes());
                if !chunk.invalid().is_empty() {
                    replaced.extend_from_slice("\u{fffd}".as_bytes());
                }
                if replaced.len() > settings.limit {
                    return Err(too_long("a document with its malformed bytes read as U+FFFD", base, settings));
                }
            }
            self.batch.data.truncate(start);
            self.batch.data.extend_from_slice(&replaced);
        }
        self.batch.offsets.push(self.batch.data.len() as i64);
        Ok(self.batch.data.len() < self.limit || self.flush())
    }

    pub(super) fn add(&mut self, document: &[u8], base: u64, settings: &Settings) -> Result<bool, String> {
        memory::reserve(&mut self.batch.data, document.len());
        self.batch.data.extend_from_slice(document);
        self.close(base, settings)
    }

    /// Sends the batch; false if nobody receives it any more.
    pub(super) fn flush(&mut self) -> bool {
        if self.batch.is_empty() {
            return true;
        }
        let empty = Batch { data: batch::buffer(self.batch.data.len()), ..Batch::default() };
        let size = self.batch.data.len().div_ceil(self.limit.max(1)).max(1);
        self.lane.send(std::mem::replace(&mut self.batch, empty), size)
    }
}
