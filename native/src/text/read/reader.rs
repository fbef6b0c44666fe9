//! Reads documents from .txt and .jsonl files, plain, gzip or zstd, ahead on threads.
//!
//! Each thread takes a few files at a time and sends their batches through a channel. In order, they have a channel of
//! their own, and the reader takes one channel after the other; otherwise all threads share one. All channels are
//! bounded, so several files are decompressed in parallel and memory is bounded.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::Builder;

use super::damage::{Failure, Skipped};
use super::input::Input;
use super::plain_text::{read_separated, read_whole};
use super::settings::{Format, Settings};
use super::{
    collector::{Collector, Lane, Read, AHEAD},
    json_lines::read_lines,
};
use crate::runtime::interrupt::{self, catch};
use crate::text::batch::Batch;

/// Bytes of files, as stored on disk, that a thread takes at a time (at least one file). Small files share batches.
const FILES_BYTES: u64 = 1 << 22;

type Batches = Receiver<Result<Option<Read>, String>>;

/// State that the threads share.
struct Work {
    files: Vec<Input>,
    settings: Settings,
    /// The first file that is not taken, and where to send the channels of files that are.
    next: Mutex<(usize, SyncSender<Batches>)>,
    /// The channel of all threads, if they keep no order.
    shared: Option<Lane>,
}

/// Reads files ahead on threads; `next` returns batches, in the order of the files if requested.
pub struct Reader {
    lanes: Option<Receiver<Batches>>,
    lane: Option<Batches>,
    /// Records missing from the returned batches, by file.
    skipped: BTreeMap<PathBuf, Skipped>,
    process: u32,
}

impl Reader {
    /// Fails if the system starts no thread.
    pub fn start(files: Vec<Input>, settings: Settings, threads: usize, in_order: bool) -> Result<Self, String> {
        let threads = threads.clamp(1, files.len().max(1));
        let (send_lane, lanes) = sync_channel(threads);
        let (shared, lane) = sync_channel(AHEAD.min(2 * threads));
        let (shared, lane) = if in_order && threads > 1 { (None, None) } else { (Some(shared), Some(lane)) };
        let work = Arc::new(Work { files, settings, next: Mutex::new((0, send_lane)), shared });
        for started in 0..threads {
            let work = Arc::clone(&work);
            match Builder::new().spawn(move || work.read()) {
                Err(error) if started == 0 => {
                    return Err(format!(
                        "no thread can be started ({error}): raise the limits of the process (ulimit -u, ulimit -v), \
                         or end other processes"
                    ))
                }
                Err(_) => break, // those that run read all files
                Ok(_) => {}
            }
        }
        Ok(Self { lanes: Some(lanes), lane, skipped: BTreeMap::new(), process: std::process::id() })
    }

    /// Records missing from the batches returned so far, by file: it does not depend on how far the threads have read ahead.
    pub fn skipped(&self) -> &BTreeMap<PathBuf, Skipped> {
        &self.skipped
    }

    /// The next batch, or an error instead of all that would follow.
    fn take(&mut self) -> Option<Result<Read, String>> {
        loop {
            let waited = match (&self.lane, &self.lanes) {
                (Some(lane), _) => match lane.recv_timeout(interrupt::WAIT) {
                    Ok(Ok(Some(read))) => return Some(Ok(read)),
                    Ok(Ok(None)) => continue,
                    Ok(Err(error)) => {
                        (self.lane, self.lanes) = (None, None);
                        return Some(Err(error));
                    }
                    Err(waited) => waited,
                },
                (None, Some(lanes)) => match lanes.recv_timeout(interrupt::WAIT) {
                    Ok(lane) => {
                        self.lane = Some(lane);
                        continue;
                    }
                    Err(waited) => waited,
                },
                (None, None) => return None,
            };
            match waited {
                RecvTimeoutError::Timeout => interrupt::check(),
                RecvTimeoutError::Disconnected if self.lane.take().is_none() => self.lanes = None,
                RecvTimeoutError::Disconnected => {}
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Batch, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.process != std::process::id() {
            return Some(Err("files opened before a fork can only be read in the parent process".into()));
        }
        let read = self.take()?;
        Some(read.map(|Read { batch, skipped }| {
            for (path, more) in skipped {
                self.skipped.entry(path).or_default().extend(more);
            }
            batch
        }))
    }
}

impl Drop for Reader {
    /// In a forked child, another thread may have held a lock of the channels: they are left alone.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget((self.lane.take(), self.lanes.take()));
        }
    }
}

impl Work {
    /// Reads files until none are left or no more batches are wanted.
    fn read(&self) {
        while let Some((files, lane)) = self.take() {
            let mut collector = Collector::new(lane, self.settings.batch_bytes);
            for file in &self.files[files] {
                collector.start_file(&file.path);
                let read = catch(|| read_file(file, &self.settings, &mut collector));
                match read.unwrap_or_else(|stopped| Err(stopped.to_string())) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => return collector.fail(format!("{}: {error}", file.path.display())),
                }
            }
            if !collector.flush() {
                return;
            }
        }
    }

    /// The next files, and the channel for their batches.
    fn take(&self) -> Option<(Range<usize>, Lane)> {
        let mut next = self.next.lock().expect("no panic while held");
        let files = some_files(&self.files, next.0);
        if files.is_empty() {
            return None;
        }
        let lane = match &self.shared {
            Some(shared) => shared.clone(),
            None => {
                let (lane, batches) = sync_channel(AHEAD);
                next.1.send(batches).ok()?; // waits for the reader while each thread has a lane that is not read
                lane
            }
        };
        next.0 = files.end;
        Some((files, lane))
    }
}

/// The files to read at a time, starting with `from`.
fn some_files(files: &[Input], from: usize) -> Range<usize> {
    let mut bytes = 0;
    let sizes = files[from..].iter().map(|file| file.bytes().unwrap_or(FILES_BYTES));
    let small = sizes.take_while(|size| {
        bytes += size;
        bytes <= FILES_BYTES
    });
    let count = small.count().max(1);
    from..files.len().min(from + count)
}

/// Ok(false) if no more documents are wanted.
fn read_file(file: &Input, settings: &Settings, collector: &mut Collector) -> Result<bool, String> {
    let read = file.open().map_err(|error| Failure::Error(error.to_string())).and_then(|input| {
        match (file.format, &settings.separator) {
            (Format::JsonLines, _) => read_lines(input, settings, collector),
            (Format::Text, Some(separator)) => read_separated(input, separator.as_bytes(), settings, collector),
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
