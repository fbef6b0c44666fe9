//! Collects the documents of one thread into batches.

use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

use super::damage::{Failure, Skipped};
use super::settings::{too_long, Settings};
use crate::text::batch::Batch;

/// Batches that a channel holds. In order, they decide how long all threads can read.
pub(super) const AHEAD: usize = 16;

/// Batches of some files, or an error instead of the rest. A large batch follows `None`s, which count like batches.
pub(super) type Lane = SyncSender<Result<Option<Read>, String>>;

/// A batch, and what was skipped between its documents.
pub(super) struct Read {
    pub(super) batch: Batch,
    pub(super) skipped: Vec<(PathBuf, Skipped)>,
}

/// Collects the documents of one thread into batches.
pub(super) struct Collector {
    pub(super) batch: Batch,
    limit: usize,
    lane: Lane,
    path: PathBuf,
    /// Skipped records of the current file and batch.
    pub(super) damage: Skipped,
    /// Skipped records of earlier files in the batch.
    skipped: Vec<(PathBuf, Skipped)>,
}

impl Collector {
    pub(super) fn new(lane: Lane, limit: usize) -> Self {
        let (batch, path, damage, skipped) = Default::default();
        Self { batch, limit, lane, path, damage, skipped }
    }

    pub(super) fn start_file(&mut self, path: &Path) {
        self.end_file();
        self.path = path.into();
    }

    fn end_file(&mut self) {
        if self.damage.count > 0 {
            self.skipped.push((self.path.clone(), std::mem::take(&mut self.damage)));
        }
    }

    /// Ends the document that starts at the last offset of `batch.data`, after validating its UTF-8. `base`: its
    /// position in the file. Ok(false) if no more documents are wanted.
    pub(super) fn close(&mut self, base: u64, settings: &Settings) -> Result<bool, Failure> {
        let start = *self.batch.offsets.last().expect("offsets start with 0") as usize;
        let length = self.batch.data.len() - start;
        if settings.skip_above.is_some_and(|most| length > most) {
            self.batch.data.truncate(start);
            return Ok(true);
        }
        if length > settings.limit {
            return Err(too_long("a document", base, settings).into());
        }
        if let Err(error) = simdutf8::compat::from_utf8(&self.batch.data[start..]) {
            if !settings.replace_invalid {
                return Err(Failure::Damage(format!(
                    "not UTF-8 at byte {} of the text; convert the file to UTF-8, or set on_invalid_utf8=replace to read \
                     malformed bytes as U+FFFD",
                    base + error.valid_up_to() as u64
                )));
            }
            let mut replaced = Vec::with_capacity(length);
            for chunk in self.batch.data[start..].utf8_chunks() {
                replaced.extend_from_slice(chunk.valid().as_bytes());
                if !chunk.invalid().is_empty() {
                    replaced.extend_from_slice("\u{fffd}".as_bytes());
                }
                if replaced.len() > settings.limit {
                    return Err(too_long("a document with its malformed bytes read as U+FFFD", base, settings).into());
                }
            }
            self.batch.data.truncate(start);
            self.batch.data.extend_from_slice(&replaced);
        }
        Ok(self.end_document())
    }

    /// Ends the document at the end of the text, and sends the batch if it is full. False if no more are wanted. An
    /// offset counts like text, because a file may have nothing but empty documents.
    fn end_document(&mut self) -> bool {
        self.batch.offsets.push(self.batch.data.len() as i64);
        self.batch.data.len() + size_of_val(&self.batch.offsets[1..]) < self.limit || self.flush()
    }

    pub(super) fn add(&mut self, document: &[u8], base: u64, settings: &Settings) -> Result<bool, Failure> {
        self.batch.data.extend_from_slice(document);
        self.close(base, settings).or_else(|failure| self.skip(failure, settings))
    }

    /// Skips a damaged document, if the settings say so.
    pub(super) fn skip(&mut self, failure: Failure, settings: &Settings) -> Result<bool, Failure> {
        match failure {
            Failure::Damage(place) if settings.skip_damaged => {
                self.damage.add(place);
                Ok(self.leave_out(settings))
            }
            failure => Err(failure),
        }
    }

    /// Leaves out the document that starts at the last offset. If damaged documents are skipped it becomes an empty one,
    /// which filters drop: which records are damaged depends on the field, and several fields must stay aligned. False
    /// if no more documents are wanted.
    pub(super) fn leave_out(&mut self, settings: &Settings) -> bool {
        self.drop_unfinished();
        !settings.skip_damaged || self.end_document()
    }

    /// Removes the text after the last document.
    pub(super) fn drop_unfinished(&mut self) {
        self.batch.data.truncate(*self.batch.offsets.last().expect("offsets start with 0") as usize);
    }

    /// Sends the batch; false if nobody receives it any more.
    pub(super) fn flush(&mut self) -> bool {
        self.end_file();
        if self.batch.is_empty() && self.skipped.is_empty() {
            return true;
        }
        let size = self.batch.data.len().div_ceil(self.limit.max(1)).max(1);
        let empty = Batch { data: Vec::with_capacity(self.batch.data.len()), ..Batch::default() };
        let batch = std::mem::replace(&mut self.batch, empty);
        let read = Read { batch, skipped: std::mem::take(&mut self.skipped) };
        (1..size.min(AHEAD)).all(|_| self.lane.send(Ok(None)).is_ok()) && self.lane.send(Ok(Some(read))).is_ok()
    }

    /// Sends an error instead of the rest.
    pub(super) fn fail(&self, error: String) {
        let _ = self.lane.send(Err(error)); // fails only if nobody receives it
    }
}
