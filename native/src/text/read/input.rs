//! Files as byte streams: decompressed, through a buffer.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use flate2::bufread::GzDecoder;

use super::damage::Failure;
use super::feed::{Feed, FeedReader};
use super::settings::Format;

pub(super) const READ_BUFFER: usize = 1 << 20;
/// Maximum growth of the buffer of a long document: doubling could far exceed the limit.
const GROWTH: usize = 1 << 26;

/// A file to read.
pub struct Input {
    /// Path of the file, or the name of the one that `feed` supplies.
    pub path: PathBuf,
    pub format: Format,
    pub feed: Option<Arc<Feed>>,
}

impl Input {
    /// Size as stored on disk; None if it is unknown.
    pub(super) fn bytes(&self) -> Option<u64> {
        if self.feed.is_some() {
            return None;
        }
        self.path.metadata().ok().map(|file| file.len())
    }

    pub fn open(&self) -> std::io::Result<Box<dyn Read + Send>> {
        match &self.feed {
            Some(feed) => self.decompressed(FeedReader::new(Arc::clone(feed))),
            None => self.decompressed(File::open(&self.path)?),
        }
    }

    fn decompressed(&self, file: impl Read + Send + 'static) -> std::io::Result<Box<dyn Read + Send>> {
        let extension = self.path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        Ok(match extension.to_ascii_lowercase().as_str() {
            "gz" => Box::new(Gzip(GzDecoder::new(BufReader::with_capacity(READ_BUFFER, Box::new(file))))),
            "zst" | "zstd" => {
                let mut decoder = zstd::Decoder::new(file)?;
                decoder.window_log_max(31)?; // as `zstd --long=31` writes; the library's limit is 27
                Box::new(decoder)
            }
            _ => Box::new(file),
        })
    }
}

/// The members of a gzip file. Zeros after a member are padding, as for `gzip -d`.
struct Gzip(GzDecoder<BufReader<Box<dyn Read + Send>>>);

impl Read for Gzip {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let n = self.0.read(buffer)?;
            let file = self.0.get_mut();
            if n > 0 || buffer.is_empty() || !skip_zeros(file)? {
                return Ok(n);
            }
            let nothing: Box<dyn Read + Send> = Box::new(std::io::empty());
            let file = std::mem::replace(file, BufReader::new(nothing));
            self.0 = GzDecoder::new(file);
        }
    }
}

/// Skips zeros; false at the end of the file.
fn skip_zeros(file: &mut impl BufRead) -> std::io::Result<bool> {
    loop {
        let ahead = file.fill_buf()?;
        let zeros = ahead.iter().take_while(|&&byte| byte == 0).count();
        if zeros < ahead.len() || ahead.is_empty() {
            let more = !ahead.is_empty();
            file.consume(zeros);
            return Ok(more);
        }
        file.consume(zeros);
    }
}

/// A buffer that is filled at the end and consumed from the front.
pub(super) struct Window<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Position of `buffer[start]` in the input.
    pub(super) base: u64,
}

impl<R: Read> Window<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: vec![0; READ_BUFFER], start: 0, end: 0, base: 0 }
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn use_up(&mut self, bytes: usize) {
        self.start += bytes;
        self.base += bytes as u64;
    }

    /// Reads more input; false at the end.
    pub(super) fn fill(&mut self) -> Result<bool, Failure> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            let growth = self.end.min(GROWTH);
            self.buffer.reserve_exact(growth);
            self.buffer.resize(self.end + growth, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(n) => {
                    self.end += n;
                    return Ok(n > 0);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::of(&error)),
            }
        }
    }
}
