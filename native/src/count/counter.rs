//! Counts distinct pretokens. Each thread has a table of its own.
//!
//! A table that exceeds its share of the memory limit is written to disk as a sorted run and emptied. At the end,
//! tables and runs are merged in order, so the result depends neither on the number of threads nor on memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use super::counts::Counts;
use super::spill::{Run, Source, Sum};
use super::table::Table;
use crate::pretokenize::scanner::Scanner;
use crate::runtime::parallel;
use crate::text::{batch::Batch, specials::Specials, unit::Unit, word_ends::is_word_end};

/// Text that a thread takes at a time. Batches have some megabytes, so all threads end at about the same time.
const CHUNK_BYTES: usize = 1 << 16;
/// Runs merged at once. Each holds an open file and less than half a megabyte.
const MOST_RUNS: usize = 64;

/// Where tables that exceed the memory limit are written.
#[derive(Clone, Debug)]
pub struct Spill {
    /// Bytes that all tables together may use.
    pub memory: usize,
    /// A folder that nothing else writes to.
    pub folder: PathBuf,
}

/// Counts the pretokens of batches.
pub struct Counter {
    settings: Settings,
    tables: Vec<Table>,
}

struct Settings {
    scanner: Scanner,
    unit: Unit,
    specials: Specials,
    /// Whether long documents may be cut at the ends of words.
    cuts: bool,
    spill: Option<Spill>,
    /// Limit per table, in bytes.
    memory: usize,
    runs: Mutex<Vec<Run>>,
    n_spilled: AtomicUsize,
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
        let settings = Settings {
            cuts: scanner.cuts_after_words() && allow_cuts(special_tokens),
            scanner,
            unit,
            specials: Specials::without_ids(special_tokens)?,
            memory: spill.as_ref().map_or(usize::MAX, |spill| spill.memory / threads),
            spill,
            runs: Mutex::default(),
            n_spilled: AtomicUsize::new(0),
        };
        let tables = (0..threads).map(|_| Table::new(settings.memory)).collect();
        Ok(Self { settings, tables })
    }

    /// Number of runs written to disk.
    #[cfg(test)]
    pub(super) fn n_spilled(&self) -> usize {
        self.settings.n_spilled.load(Ordering::Relaxed)
    }

    pub fn add(&mut self, batch: &Batch) -> Result<(), String> {
        let Self { settings, tables } = self;
        let parts = settings.parts(batch);
        let chunks = parallel::chunks(parts.iter().map(|part| part.len()), CHUNK_BYTES);
        parallel::for_each(tables, chunks.len(), |table, chunk| {
            parts[chunks[chunk].clone()].iter().try_for_each(|part| settings.count(part, table))
        })
    }

    /// All counts, sorted by bytes.
    pub fn finish(self) -> Result<Counts, String> {
        let runs = self.settings.runs.into_inner().expect("no panic while held");
        let tables = self.tables.into_iter().map(|table| Source::Table(table.into_sorted()));
        Counts::sum(tables.chain(runs.into_iter().map(Source::Run)).collect())
    }
}

impl Settings {
    /// The documents, of which long ones are cut for several threads.
    fn parts<'b>(&self, batch: &'b Batch) -> Vec<&'b [u8]> {
        let mut parts = Vec::with_capacity(batch.len());
        for mut rest in batch.documents() {
            while self.cuts && rest.len() > 2 * CHUNK_BYTES {
                let Some(end) = (CHUNK_BYTES..rest.len()).find(|&at| is_word_end(rest, at)) else { break };
                let (part, after) = rest.split_at(end);
                parts.push(part);
                rest = after;
            }
            parts.push(rest);
        }
        parts
    }

    fn count(&self, text: &[u8], table: &mut Table) -> Result<(), String> {
        let mut spilled = Ok(());
        self.specials.between(text, |text| {
            self.scanner.pieces_of(self.unit, text, |start, end| {
                table.add(text, start, end);
                if table.is_full() && spilled.is_ok() {
                    spilled = self.spill(table);
                }
            })
        })?;
        spilled?;
        if table.memory() > self.memory {
            self.spill(table)?;
        }
        Ok(())
    }

    /// Writes a table to disk and empties it. If that makes too many runs, merges them into one.
    #[cold]
    #[inline(never)]
    fn spill(&self, table: &mut Table) -> Result<(), String> {
        let spill = self.spill.as_ref().expect("a place to spill to");
        let path = || spill.folder.join(format!("{:06}.run", self.n_spilled.fetch_add(1, Ordering::Relaxed)));
        let mut sorted = std::mem::replace(table, Table::new(self.memory)).into_sorted();
        let run = Run::write(path(), |bytes| Ok(sorted.next_into(bytes)))?;
        let many = {
            let mut runs = self.runs.lock().expect("no panic while held");
            runs.push(run);
            if runs.len() < MOST_RUNS {
                return Ok(());
            }
            std::mem::take(&mut *runs)
        };
        // Not under the lock: merging takes long and may be interrupted.
        let mut sum = Sum::new(many.into_iter().map(Source::Run).collect())?;
        let merged = Run::write(path(), |bytes| {
            bytes.clear();
            sum.next_onto(bytes)
        })?;
        self.runs.lock().expect("no panic while held").push(merged);
        Ok(())
    }
}

/// Whether text may be cut at the ends of words (`is_word_end`) without cutting a special string.
fn allow_cuts(strings: &[String]) -> bool {
    strings.iter().all(|string| (1..string.len()).all(|at| !is_word_end(string.as_bytes(), at)))
}
