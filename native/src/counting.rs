//! Counts of distinct pretokens: threads that take pieces of batches from a queue, each with a table of its own.
//!
//! A table that outgrows its share of the memory limit is written to disk as a sorted run and starts anew; in the
//! end tables and runs are added up in order. So the result depends neither on threads nor on memory.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::corpus::Batch;
use crate::interrupt::{self, catch, poll, Call, Stopped};
use crate::patterns::Scanner;
use crate::reading::is_word_end;
use crate::spill::{Run, Source, Sum};
use crate::table::{Sorted, Table};
use crate::unlocked::Process;
use crate::{memory, parallel};

const CHUNK_BYTES: usize = 1 << 18;
/// Work of adding up one string's counts, as `poll` takes it.
const WORK_PER_SUM: usize = 16;
/// Runs that are merged at once; each holds a file and less than half a megabyte.
const MOST_RUNS: usize = 64;
/// How long to wait where the threads have enough to do; they have a chunk each in that time, and four wait.
const FULL: Duration = Duration::from_micros(500);

/// What a merge may not cross before any pattern is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Document,
    /// Lines with their line feed, as HF reads files.
    Line,
}

impl Unit {
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "document" => Ok(Self::Document),
            "line" => Ok(Self::Line),
            _ => Err(format!("unit is {name:?}; it is one of: document, line")),
        }
    }

    #[inline]
    pub fn split<E>(self, text: &[u8], mut unit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Document => unit(text),
            Self::Line => text.split_inclusive(|&byte| byte == b'\n').try_for_each(unit),
        }
    }
}

/// Cuts out special strings, longest first where several start at one place.
pub struct Specials(Option<AhoCorasick>);

impl Specials {
    pub fn new(strings: &[String]) -> Result<Self, String> {
        if strings.is_empty() {
            return Ok(Self(None));
        }
        AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(strings)
            .map(|automaton| Self(Some(automaton)))
            .map_err(|error| error.to_string())
    }

    /// Whether text may be cut at the ends of words (`is_word_end`) without cutting a special string.
    fn allow_cuts(strings: &[String]) -> bool {
        strings.iter().all(|string| (1..string.len()).all(|at| !is_word_end(string.as_bytes(), at)))
    }

    /// Calls `ordinary` with each stretch of text between special strings.
    pub fn between<E>(&self, text: &[u8], mut ordinary: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut start = 0;
        if let Some(automaton) = &self.0 {
            for found in automaton.find_iter(text) {
                ordinary(&text[start..found.start()])?;
                start = found.end();
            }
        }
        ordinary(&text[start..])
    }
}

/// Where tables go that have no room in memory.
#[derive(Clone, Debug)]
pub struct Spill {
    /// Bytes that all tables together may take.
    pub memory: usize,
    /// A folder of our own.
    pub folder: PathBuf,
}

/// A part of a batch that one thread counts at once.
struct Work {
    batch: Arc<Batch>,
    place: Place,
}

enum Place {
    Documents(Range<usize>),
    /// Bytes of a document that is too long for one thread.
    Bytes(Range<usize>),
}

struct Shared {
    scanner: Scanner,
    unit: Unit,
    specials: Specials,
    spill: Option<Spill>,
    /// Per thread.
    memory: usize,
    runs: Mutex<Vec<Run>>,
    n_spilled: AtomicUsize,
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
            Some(Failure::Stopped(stopped)) => stopped.again(),
            None => unreachable!("a failure has its reason"),
        };
        stopped.unwind() // with the lock open
    }

    fn count(&self, work: &Work, table: &mut Table) -> Result<(), String> {
        let mut spilled = Ok(());
        let mut text = |text: &[u8]| {
            self.specials.between(text, |text| {
                self.unit.split(text, |text| {
                    self.scanner.pieces(text, |start, end| {
                        table.add(text, start, end);
                        if table.is_full() && spilled.is_ok() {
                            spilled = self.write(std::mem::replace(table, Table::new(self.memory)));
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
            self.write(std::mem::replace(table, Table::new(self.memory)))?;
        }
        Ok(())
    }

    /// Writes a table to disk; where that makes too many files, makes them one.
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
        // Without the lock: this takes long, and ends early where the call is to stop.
        let mut sum = Sum::new(many.drain(..).map(Source::Run).collect())?;
        let merged = Run::write(path(), |bytes| {
            bytes.clear();
            sum.next_onto(bytes)
        })?;
        self.runs.lock().expect("no panic while held").push(merged);
        Ok(())
    }
}

/// What one thread counts, in order of bytes; None after a failure.
fn work(shared: &Shared, queue: &Mutex<Receiver<Work>>) -> Option<Sorted> {
    let counted = catch(|| {
        let mut table = Table::new(shared.memory);
        loop {
            let received = queue.lock().expect("no panic while held").recv();
            // After a failure the queue is only emptied, so that nobody waits for room in it.
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

/// Counts the pretokens of batches.
pub struct Counter {
    shared: Arc<Shared>,
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
        let cuts = scanner.cuts_after_words() && Specials::allow_cuts(special_tokens);
        let shared = Arc::new(Shared {
            scanner,
            unit,
            specials: Specials::new(special_tokens)?,
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
                    let _ = send_sorted.send(sorted); // unless nobody waits for it any more
                }
            }
        })?;
        let process = Process::current();
        let sorted = Mutex::new(sorted);
        Ok(Self { shared, queue: Some(sender), workers, sorted, call, process, cuts })
    }

    /// Whether documents may come in parts that were cut at the ends of words.
    pub fn takes_parts(&self) -> bool {
        self.cuts
    }

    /// Hands a batch to the threads; waits while they have enough to do.
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

    /// A fork has none of the threads.
    fn check_process(&self) -> Result<(), String> {
        if self.process.is_current() {
            return Ok(());
        }
        Err("counting that was begun before a fork can only be continued in the process before it".into())
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
            interrupt::look();
            std::thread::sleep(FULL);
        }
    }

    /// Everything that was counted, in order of bytes.
    pub fn finish(mut self) -> Result<Counts, String> {
        self.check_process()?;
        drop(self.queue.take());
        let mut sources = Vec::new();
        while sources.len() < self.workers.len() && !self.shared.failed.load(Ordering::Acquire) {
            match self.sorted.get_mut().expect("no panic while held").recv_timeout(interrupt::WAIT) {
                Ok(sorted) => sources.push(Source::Table(sorted)),
                Err(RecvTimeoutError::Timeout) => interrupt::look(),
                Err(RecvTimeoutError::Disconnected) => break, // after a failure
            }
        }
        self.shared.check()?;
        sources.extend(self.shared.runs.lock().expect("no panic while held").drain(..).map(Source::Run));
        Counts::sum(sources)
    }
}

impl Drop for Counter {
    /// Waits for the threads to stop, so that nothing is written after it.
    fn drop(&mut self) {
        self.call.stop();
        drop(self.queue.take());
        let workers = self.workers.drain(..);
        if self.process.is_current() {
            workers.for_each(|worker| drop(worker.join()));
        }
    }
}

/// Distinct pretokens in order of bytes, laid end to end, and how often each occurs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub data: Vec<u8>,
    pub offsets: Vec<i64>,
    pub counts: Vec<u64>,
}

impl Counts {
    /// Adds up sorted sources.
    pub fn sum(sources: Vec<Source>) -> Result<Self, String> {
        let most: usize = sources.iter().map(Source::len).sum();
        let mut sum = Sum::new(sources)?;
        let mut this = Self { offsets: memory::room(most + 1), counts: memory::room(most), ..Self::default() };
        this.offsets.push(0);
        while let Some(count) = sum.next_onto(&mut this.data)? {
            poll(WORK_PER_SUM);
            this.offsets.push(this.data.len() as i64);
            this.counts.push(count);
        }
        Ok(this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanner() -> Scanner {
        Scanner::new(crate::patterns::NAMED[0].1).unwrap()
    }

    fn count(batches: &[Batch], threads: usize, memory: Option<usize>, name: &str) -> Counts {
        let folder = std::env::temp_dir().join(format!("superbpe-count-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let spill = memory.map(|memory| Spill { memory, folder: folder.clone() });
        let counter = Counter::new(scanner(), Unit::Document, &["<|s|>".to_string()], spill, threads).unwrap();
        batches.iter().for_each(|batch| counter.add(&Arc::new(batch.clone())).unwrap());
        let shared = Arc::clone(&counter.shared);
        let counts = counter.finish().unwrap();
        assert_eq!(shared.n_spilled.load(Ordering::Relaxed) > 0, memory.is_some(), "what does not fit is spilled");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "runs are deleted");
        std::fs::remove_dir(folder).unwrap();
        counts
    }

    #[test]
    fn counts_do_not_depend_on_threads_or_memory() {
        let mut batches = vec![Batch::default()];
        let text = "the cat\0 the\0 cat and a very-long-pretoken-indeed-it-is and antidisestablishmentarianism ";
        batches[0].push(text.repeat(50).as_bytes());
        batches[0].push(b"");
        batches[0].push("the the <|s|>the antidisestablishmentarianism".as_bytes());
        let mut state = 1u64;
        for _ in 0..90 {
            let mut batch = Batch::default();
            let mut words = String::new();
            for _ in 0..3000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                words += &format!(" w{:x}", state >> 48);
            }
            batch.push(words.as_bytes());
            batches.push(batch);
        }
        let mut expected = std::collections::BTreeMap::<Vec<u8>, u64>::new();
        let specials = Specials::new(&["<|s|>".to_string()]).unwrap();
        for batch in &batches {
            for i in 0..batch.len() {
                specials
                    .between(batch.document(i), |text| {
                        scanner().pieces(text, |s, e| *expected.entry(text[s..e].to_vec()).or_default() += 1)
                    })
                    .unwrap();
            }
        }
        for (case, (threads, memory)) in
            [(1, None), (3, None), (1, Some(1 << 19)), (2, Some(1))].into_iter().enumerate()
        {
            let counts = count(&batches, threads, memory, &case.to_string());
            let found: Vec<_> = (0..counts.counts.len())
                .map(|i| {
                    let bytes = &counts.data[counts.offsets[i] as usize..counts.offsets[i + 1] as usize];
                    (bytes.to_vec(), counts.counts[i])
                })
                .collect();
            assert_eq!(found, expected.clone().into_iter().collect::<Vec<_>>(), "{threads} {memory:?}");
        }
    }

    #[test]
    fn a_long_document_is_shared_out() {
        let mut text = String::new();
        for i in 0..200_000 {
            text += &format!("w{}\n\n x{} ", i % 1000, i % 7);
        }
        let mut long = Batch::default();
        long.push(text.as_bytes());
        let mut expected = std::collections::BTreeMap::<Vec<u8>, u64>::new();
        scanner()
            .pieces(text.as_bytes(), |s, e| *expected.entry(text.as_bytes()[s..e].to_vec()).or_default() += 1)
            .unwrap();
        let counts = count(&[long], 3, None, "long");
        assert_eq!(counts.counts, expected.into_values().collect::<Vec<_>>());
    }

    #[test]
    fn one_document_that_cannot_be_cut_stays_within_the_limit() {
        let words: String = (0..300_000).map(|i| format!(" {i:x}")).collect();
        let mut long = Batch::default();
        long.push(words.as_bytes());
        let folder = std::env::temp_dir().join(format!("superbpe-count-{}-uncut", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let spill = Spill { memory: 1 << 20, folder: folder.clone() };
        let scanner = Scanner::new(r" ?[0-9a-f]+").unwrap();
        let counter = Counter::new(scanner, Unit::Document, &[], Some(spill), 1).unwrap();
        counter.add(&Arc::new(long)).unwrap();
        let shared = Arc::clone(&counter.shared);
        assert_eq!(counter.finish().unwrap().counts, vec![1; 300_000]);
        assert!(shared.n_spilled.load(Ordering::Relaxed) > 10);
        std::fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error() {
        let spill = Spill { memory: 1, folder: "/nonexistent/folder".into() };
        let counter = Counter::new(scanner(), Unit::Document, &[], Some(spill), 2).unwrap();
        let mut batch = Batch::default();
        batch.push(b"some text");
        let _ = counter.add(&Arc::new(batch));
        assert!(counter.finish().unwrap_err().contains("/nonexistent/folder"));
    }
}
