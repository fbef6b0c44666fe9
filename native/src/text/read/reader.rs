//! Reads documents from .txt and .jsonl files, plain, gzip or zstd, ahead on threads.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::damage::{Failure, Skipped};
use super::input::Input;
use super::plain_text::{read_parts, read_separated, read_whole};
use super::settings::{Format, Settings};
use super::{
    collector::{Collector, Read},
    json_lines::read_lines,
    queue::Queue,
};
use crate::runtime::{interrupt::catch, lock_free::Process, parallel};
use crate::text::batch::Batch;

/// Bytes of files, as stored on disk, that a thread takes at a time (at least one file). Small files share batches.
const FILES_BYTES: u64 = 1 << 22;

/// Reads files ahead on threads; `next` returns batches, in the order of the files if requested.
pub struct Reader {
    queue: Arc<Queue<Read>>,
    /// What the batches that were returned lack, by file.
    skipped: BTreeMap<PathBuf, Skipped>,
    process: Process,
}

impl Reader {
    /// Fails if the system starts no thread.
    pub fn start(files: Vec<Input>, settings: Settings, threads: usize, in_order: bool) -> Result<Self, String> {
        let threads = threads.clamp(1, files.len().max(1));
        let queue = Queue::new(threads, in_order);
        let work = Arc::new((files, settings));
        parallel::start(threads, || {
            let (queue, work) = (Arc::clone(&queue), Arc::clone(&work));
            move || {
                let (files, settings) = &*work;
                while let Some((lane, taken)) = queue.open(|from| some_files(files, from)) {
                    let mut collector = Collector::new(lane, settings.batch_bytes);
                    for file in &files[taken] {
                        let path = &file.path;
                        collector.start_file(path);
                        let read = catch(|| read_file(file, settings, &mut collector));
                        match read.unwrap_or_else(|stopped| Err(stopped.to_string())) {
                            Ok(true) => {}
                            Ok(false) => return,
                            Err(error) => return collector.lane.fail(format!("{}: {error}", path.display())),
                        }
                    }
                    if collector.flush() {
                        collector.lane.end();
                    }
                }
            }
        })?;
        Ok(Self { queue, skipped: BTreeMap::new(), process: Process::current() })
    }

    /// What the batches returned so far lack, by file: it does not depend on how far the threads have read ahead.
    pub fn skipped(&self) -> &BTreeMap<PathBuf, Skipped> {
        &self.skipped
    }
}

/// The files to read at a time, starting with `from`.
fn some_files(files: &[Input], from: usize) -> std::ops::Range<usize> {
    let mut bytes = 0;
    let sizes = files[from..].iter().map(|file| file.bytes().unwrap_or(FILES_BYTES));
    let small = sizes.take_while(|size| {
        bytes += size;
        bytes <= FILES_BYTES
    });
    let count = small.count().max(1);
    from..files.len().min(from + count)
}

impl Iterator for Reader {
    type Item = Result<Batch, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.process.is_current() {
            return Some(Err("files opened before a fork can only be read in the parent process".into()));
        }
        let read = self.queue.take()?;
        Some(read.map(|Read { batch, skipped }| {
            for (path, more) in skipped {
                self.skipped.entry(path).or_default().extend(more);
            }
            batch
        }))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.queue.close();
        }
    }
}

/// Ok(false) if no more documents are wanted.
fn read_file(file: &Input, settings: &Settings, collector: &mut Collector) -> Result<bool, String> {
    let read = file.open().map_err(|error| Failure::Error(error.to_string())).and_then(|input| {
        match (file.format, &settings.separator) {
            (Format::JsonLines, _) => read_lines(input, settings, collector),
            (Format::Text, Some(separator)) => read_separated(input, separator.as_bytes(), settings, collector),
            (Format::Text, None) if settings.parts => read_parts(input, settings, collector),
            (Format::Text, None) => read_whole(input, settings, collector),
        }
    });
    match read {
        Err(Failure::Damage(place)) if settings.skip_damaged => {
            collector.drop_unfinished();
            collector.damage.add(place);
            Ok(true)
        }
        read => read.map_err(Failure::message),
    }
}
