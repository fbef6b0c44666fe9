//! Counts distinct pretokens. Threads take chunks of batches from a queue, each with its own table.
//!
//! A table that exceeds its share of the memory limit is written to disk as a sorted run and emptied. At the end,
//! tables and runs are merged in order, so the result depends neither on the number of threads nor on memory.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::counts::Counts;
use super::spill::{Run, Source, Sum};
use super::table::{Sorted, Table};
use crate::pretokenize::scanner::Scanner;
use crate::runtime::interrupt::{self, catch, Call, Stopped};
use crate::runtime::{lock_free::Process, parallel};
use crate::text::{batch::Batch, specials::Specials, unit::Unit, word_ends::is_word_end};

const CHUNK_BYTES: usize = 1 << 18;
/// Runs merged at once. Each holds an open file and less than half a megabyte.
const MOST_RUNS: usize = 64;
/// Time to sleep when the queue is full. Each thread has a chunk to work on meanwhile, and four more are queued per
/// thread.
const FULL: Duration = Duration::from_micros(500);

/// Where tables that exceed the memory limit are written.
#[derive(Clone, Debug)]
pub struct Spill {
    /// Bytes that all tables together may use.
    pub memory: usize,
    /// A folder that nothing else writes to.
    pub folder: PathBuf,
}

/// A part of a batch that one thread counts.
struct Work {
    batch: Arc<Batch>,
    place: Place,
}

enum Place {
    Documents(Range<usize>),
    /// A byte range of a document that is too long for one thread.
    Bytes(Range<usize>),
}

pub(super) struct Shared {
    scanner: Scanner,
    unit: Unit,
    specials: Specials,
    spill: Option<Spill>,
    /// Limit per thread, in bytes.
    memory: usize,
    runs: Mutex<Vec<Run>>,
    pub(super) n_spilled: AtomicUsize,
    failed: AtomicBool,
    error: Mutex<Option<Failure>>,
}

enum Failure {
    Error(String),
    Stopped(Stopped),
}

impl Shared {
    fn fail(&self, failure: Failure) {
        self.error.lock().expect("no panic while held").get_or_insert(failure);
        self.failed.store(true, Ordering::Release);
    }

    fn check(&self) -> Result<(), String> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let stopped = match &*self.error.lock().expect("no panic while held") {
            Some(Failure::Error(error)) => return Err(error.clone()),
            Some(Failure::Stopped(stopped)) => stopped.for_another_thread(),
            None => unreachable!("a failure has its reason"),
        };
        stopped.unwind() // the lock is released by now
    }

    fn count(&self, work: &Work, table: &mut Table) -> Result<(), String> {
        let mut spilled = Ok(());
        let mut text = |text: &[u8]| {
            self.specials.between(text, |text| {
                self.unit.split(text, |text| {
                    self.scanner.pieces(text, |start, end| {
                        table.add(text, start, end);
                        if table.is_full() && spilled.is_ok() {
                            spilled = self.spill(table);
                        }
                    })
                })
            })
        };
        match &work.place {
            Place::Documents(documents) => documents.clone().try_for_each(|i| text(work.batch.document(i)))?,
            Place::Bytes(bytes) => text(&work.batch.data[bytes.clone()])?,
        }
        spilled?;
        if table.memory() > self.memory {
            self.spill(table)?;
        }
        Ok(())
    }

    /// Writes a table to disk and empties it.
    #[cold]
    #[inline(never)]
    fn spill(&self, table: &mut Table) -> Result<(), String> {
        self.write(std::mem::replace(table, Table::new(self.memory)))
    }

    /// Writes a table to disk. If that makes too many runs, merges them into one.
    fn write(&self, table: Table) -> Result<(), String> {
        let spill = self.spill.as_ref().expect("a place to spill to");
        let path = || spill.folder.join(format!("{:06}.run", self.n_spilled.fetch_add(1, Ordering::Relaxed)));
        let mut sorted = table.into_sorted();
        let run = Run::write(path(), |bytes| Ok(sorted.next_into(bytes)))?;
        let mut many = {
            let mut runs = self.runs.lock().expect("no panic while held");
            runs.push(run);
            if runs.len() < MOST_RUNS {
                return Ok(());
            }
            std::mem::take(&mut *runs)
        };
        // Not under the lock: merging takes long and may be interrupted.
        let mut sum = Sum::new(many.drain(..).map(Source::Run).collect())?;
        let merged = Run::write(path(), |bytes| {
            bytes.clear();
            sum.next_onto(bytes)
        })?;
        self.runs.lock().expect("no panic while held").push(merged);
        Ok(())
    }
}

/// Counts on one thread. Returns the sorted table, or None after a failure.
fn work(shared: &Shared, queue: &Mutex<Receiver<Work>>) -> Option<Sorted> {
    let counted = catch(|| {
        let mut table = Table::new(shared.memory);
        loop {
            let received = queue.lock().expect("no panic while held").recv();
            // After a failure, only drain the queue, so that no sender blocks.
            let failed = shared.failed.load(Ordering::Acquire);
            match received {
                Err(_) => return Ok((!failed).then(|| table.into_sorted())),
                Ok(work) if !failed => shared.count(&work, &mut table)?,
                Ok(_) => {}
            }
        }
    });
    let failure = match counted {
        Ok(Ok(sorted)) => return sorted,
        Ok(Err(error)) => Failure::Error(error),
        Err(stopped) => Failure::Stopped(stopped),
    };
    shared.fail(failure);
    while queue.lock().expect("no panic while held").recv().is_ok() {}
    None
}

/// Whether text may be cut at the ends of words (`is_word_end`) without cutting a special string.
fn allow_cuts(strings: &[String]) -> bool {
    strings.iter().all(|string| (1..string.len()).all(|at| !is_word_end(string.as_bytes(), at)))
}

/// Counts the pretokens of batches.
pub struct Counter {
    pub(super) shared: Arc<Shared>,
    queue: Option<SyncSender<Work>>,
    workers: Vec<JoinHandle<()>>,
    sorted: Mutex<Receiver<Sorted>>,
    call: Arc<Call>,
    process: Process,
    /// Whether long documents may be cut at the ends of words.
    cuts: bool,
}

impl Counter {
    pub fn new(
        scanner: Scanner,
        unit: Unit,
        special_tokens: &[String],
        spill: Option<Spill>,
        threads: usize,
    ) -> Result<Self, String> {
        let threads = threads.max(1);
        let cuts = scanner.cuts_after_words() && allow_cuts(special_tokens);
        let shared = Arc::new(Shared {
            scanner,
            unit,
            specials: Specials::without_ids(special_tokens)?,
            memory: spill.as_ref().map_or(usize::MAX, |spill| spill.memory / threads),
            spill,
            runs: Mutex::default(),
            n_spilled: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            error: Mutex::default(),
        });
        let (sender, receiver) = sync_channel(4 * threads);
        let (send_sorted, sorted) = channel();
        let (receiver, call) = (Arc::new(Mutex::new(receiver)), Arc::<Call>::default());
        let workers = parallel::start(threads, || {
            let (shared, receiver, call) = (Arc::clone(&shared), Arc::clone(&receiver), Arc::clone(&call));
            let send_sorted = send_sorted.clone();
            move || {
                if let Some(sorted) = call.on_this_thread(None, || work(&shared, &receiver)) {
                    let _ = send_sorted.send(sorted); // fails only if the receiver is gone
                }
            }
        })?;
        let process = Process::current();
        let sorted = Mutex::new(sorted);
        Ok(Self { shared, queue: Some(sender), workers, sorted, call, process, cuts })
    }

    /// Whether documents may be passed in parts that were cut at word ends.
    pub fn takes_parts(&self) -> bool {
        self.cuts
    }

    /// Queues a batch; blocks while the queue is full.
    pub fn add(&self, batch: &Arc<Batch>) -> Result<(), String> {
        self.check_process()?;
        for documents in parallel::chunks(&batch.offsets, CHUNK_BYTES) {
            let bytes = batch.offsets[documents.start] as usize..batch.offsets[documents.end] as usize;
            if self.cuts && documents.len() == 1 && bytes.len() > 2 * CHUNK_BYTES {
                self.add_long(batch, bytes)?;
            } else {
                self.send(batch, Place::Documents(documents))?;
            }
        }
        self.shared.check()
    }

    /// A forked child has none of the threads.
    fn check_process(&self) -> Result<(), String> {
        if self.process.is_current() {
            return Ok(());
        }
        Err("counting started before a fork can only continue in the parent process".into())
    }

    fn add_long(&self, batch: &Arc<Batch>, bytes: Range<usize>) -> Result<(), String> {
        let mut start = bytes.start;
        while start < bytes.end {
            let end = (start + CHUNK_BYTES..bytes.end).find(|&at| is_word_end(&batch.data, at)).unwrap_or(bytes.end);
            self.send(batch, Place::Bytes(start..end))?;
            start = end;
        }
        Ok(())
    }

    fn send(&self, batch: &Arc<Batch>, place: Place) -> Result<(), String> {
        let queue = self.queue.as_ref().expect("open until the counter is finished or dropped");
        let mut work = Work { batch: Arc::clone(batch), place };
        loop {
            match queue.try_send(work) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(again)) => work = again,
                Err(TrySendError::Disconnected(_)) => return Err("all counting threads died".into()),
            }
            interrupt::check();
            std::thread::sleep(FULL);
        }
    }

    /// All counts, sorted by bytes.
    pub fn finish(mut self) -> Result<Counts, String> {
        self.check_process()?;
        drop(self.queue.take());
        let mut sources = Vec::new();
        while sources.len() < self.workers.len() && !self.shared.failed.load(Ordering::Acquire) {
            match self.sorted.get_mut().expect("no panic while held").recv_timeout(interrupt::WAIT) {
                Ok(sorted) => sources.push(Source::Table(sorted)),
                Err(RecvTimeoutError::Timeout) => interrupt::check(),
                Err(RecvTimeoutError::Disconnected) => break, // after a failure
            }
        }
        self.shared.check()?;
        sources.extend(self.shared.runs.lock().expect("no panic while held").drain(..).map(Source::Run));
        Counts::sum(sources)
    }
}

impl Drop for Counter {
    /// Joins the threads, so that nothing is written afterwards.
    fn drop(&mut self) {
        self.call.stop();
        drop(self.queue.take());
        let workers = self.workers.drain(..);
        if self.process.is_current() {
            workers.for_each(|worker| drop(worker.join()));
        }
    }
}
