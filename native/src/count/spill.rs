//! Sorted counts on disk, and the k-way merge of sorted counts.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::PathBuf;

use super::table::{head, Sorted};
use crate::runtime::interrupt::poll;

const BUFFER: usize = 1 << 16;
/// Log2 of the compression window, which bounds the memory of each run while it is read.
const WINDOW_LOG: u32 = 17;

/// A source of byte strings in sorted order, each with a count.
pub enum Source<'a> {
    Table(Sorted),
    Run(Run),
    Arrays(Arrays<'a>),
}

impl Source<'_> {
    /// Total number of strings.
    pub fn len(&self) -> usize {
        match self {
            Self::Table(sorted) => sorted.len(),
            Self::Run(run) => run.length,
            Self::Arrays(arrays) => arrays.counts.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn next_into(&mut self, bytes: &mut Vec<u8>) -> Result<Option<u64>, String> {
        match self {
            Self::Table(sorted) => Ok(sorted.next_into(bytes)),
            Self::Run(run) => run.next_into(bytes),
            Self::Arrays(arrays) => arrays.next_into(bytes),
        }
    }
}

/// Concatenated strings and their counts, which are multiplied by a weight.
pub struct Arrays<'a> {
    pub data: Cow<'a, [u8]>,
    pub offsets: Cow<'a, [i64]>,
    pub counts: Cow<'a, [u64]>,
    pub weight: u64,
    pub next: usize,
}

impl Arrays<'_> {
    fn next_into(&mut self, bytes: &mut Vec<u8>) -> Result<Option<u64>, String> {
        let i = self.next;
        if i == self.counts.len() {
            return Ok(None);
        }
        self.next += 1;
        bytes.clear();
        bytes.extend_from_slice(&self.data[self.offsets[i] as usize..self.offsets[i + 1] as usize]);
        self.counts[i].checked_mul(self.weight).map(Some).ok_or_else(too_many)
    }
}

fn too_many() -> String {
    "a pretoken's count does not fit 64 bits; use smaller counts or weights".into()
}

/// A compressed file of sorted strings: length, bytes and count of each. Deleted on drop.
pub struct Run {
    path: PathBuf,
    length: usize,
    /// Opened on the first read.
    input: Option<Box<dyn Read + Send>>,
}

impl Run {
    /// Writes the strings that `next` returns, in that order.
    pub fn write(
        path: PathBuf,
        mut next: impl FnMut(&mut Vec<u8>) -> Result<Option<u64>, String>,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: cannot spill counts: {error}", path.display());
        let file = BufWriter::with_capacity(BUFFER, File::create_new(&path).map_err(failed)?);
        // From here on, dropping the run deletes the file, even if writing fails.
        let mut run = Self { path: path.clone(), length: 0, input: None };
        let mut output = zstd::Encoder::new(file, 1).map_err(failed)?;
        output.window_log(WINDOW_LOG).map_err(failed)?;
        let mut bytes = Vec::new();
        while let Some(count) = next(&mut bytes)? {
            poll(bytes.len());
            output.write_all(&(bytes.len() as u32).to_le_bytes()).map_err(failed)?;
            output.write_all(&bytes).map_err(failed)?;
            output.write_all(&count.to_le_bytes()).map_err(failed)?;
            run.length += 1;
        }
        output.finish().and_then(|mut file| file.flush()).map_err(failed)?;
        Ok(run)
    }

    fn next_into(&mut self, bytes: &mut Vec<u8>) -> Result<Option<u64>, String> {
        let (path, input) = (&self.path, &mut self.input);
        let mut read = || -> std::io::Result<Option<u64>> {
            let input = match input {
                Some(input) => input,
                None => {
                    let decoder = zstd::Decoder::new(File::open(path)?)?;
                    input.insert(Box::new(BufReader::with_capacity(BUFFER, decoder)))
                }
            };
            let mut length = [0; 4];
            if input.read(&mut length[..1])? == 0 {
                return Ok(None);
            }
            input.read_exact(&mut length[1..])?;
            bytes.resize(u32::from_le_bytes(length) as usize, 0);
            input.read_exact(bytes)?;
            let mut count = [0; 8];
            input.read_exact(&mut count)?;
            Ok(Some(u64::from_le_bytes(count)))
        };
        read().map_err(|error| format!("{}: cannot read spilled counts: {error}", path.display()))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// K-way merge of sorted sources: every string once, in order, with the sum of its counts.
pub struct Sum<'a> {
    sources: Vec<Source<'a>>,
    /// The next string of each source that has one, the first on top.
    heap: BinaryHeap<Reverse<Head>>,
}

/// In order of the string: its head decides nearly every comparison.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    head: u128,
    bytes: Vec<u8>,
    source: usize,
    count: u64,
}

impl<'a> Sum<'a> {
    pub fn new(sources: Vec<Source<'a>>) -> Result<Self, String> {
        let mut sum = Self { heap: BinaryHeap::with_capacity(sources.len()), sources };
        (0..sum.sources.len()).try_for_each(|source| sum.advance(source, Vec::new()))?;
        Ok(sum)
    }

    fn advance(&mut self, source: usize, mut bytes: Vec<u8>) -> Result<(), String> {
        if let Some(count) = self.sources[source].next_into(&mut bytes)? {
            self.heap.push(Reverse(Head { head: head(&bytes), bytes, source, count }));
        }
        Ok(())
    }

    /// Appends the next string to `data` and returns its count; None at the end.
    pub fn next_onto(&mut self, data: &mut Vec<u8>) -> Result<Option<u64>, String> {
        let (start, mut total) = (data.len(), None);
        while let Some(Reverse(next)) = self.heap.peek() {
            match total {
                None => data.extend_from_slice(&next.bytes),
                Some(_) if next.bytes != data[start..] => break,
                Some(_) => {}
            }
            total = Some(total.unwrap_or(0u64).checked_add(next.count).ok_or_else(too_many)?);
            let Some(Reverse(next)) = self.heap.pop() else { break };
            self.advance(next.source, next.bytes)?;
        }
        Ok(total)
    }
}
