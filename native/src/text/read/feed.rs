//! A file whose bytes another thread supplies in blocks, such as one that is downloaded.

use std::io::{Error, ErrorKind, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::runtime::interrupt;

/// Blocks from `put` to a reader, at most one at a time.
#[derive(Default)]
pub struct Feed {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    block: Option<Vec<u8>>,
    /// Set when there are no more blocks; the error if the file could not be read to its end.
    ended: Option<Option<String>>,
    /// Whether the reader is gone.
    closed: bool,
}

impl Feed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).expect("no panic while held")
    }

    /// Adds a block once the previous one is taken; false if the reader is gone.
    pub fn put(&self, block: Vec<u8>) -> bool {
        let mut state = self.state();
        while state.block.is_some() && !state.closed {
            drop(self.changed.wait_timeout(state, interrupt::WAIT).expect("no panic while held"));
            interrupt::check();
            state = self.state();
        }
        if state.closed {
            return false;
        }
        state.block = Some(block);
        self.changed.notify_all();
        true
    }

    /// Ends the file after the last block, or fails the reader with an error.
    pub fn end(&self, error: Option<String>) {
        self.state().ended.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Tells the writer that no more is read.
    pub fn close(&self) {
        let mut state = self.state();
        (state.closed, state.block) = (true, None);
        self.changed.notify_all();
    }
}

/// The reading side. Dropping it closes the feed.
pub(super) struct FeedReader {
    feed: Arc<Feed>,
    block: Vec<u8>,
    taken: usize,
}

impl FeedReader {
    pub(super) fn new(feed: Arc<Feed>) -> Self {
        Self { feed, block: Vec::new(), taken: 0 }
    }

    /// Waits for the next block; false at the end.
    fn next(&mut self) -> Result<bool, Error> {
        let mut state = self.feed.state();
        loop {
            if let Some(block) = state.block.take() {
                (self.block, self.taken) = (block, 0);
                self.feed.changed.notify_all();
                return Ok(true);
            }
            match &state.ended {
                _ if state.closed => return Err(Error::new(ErrorKind::ConnectionAborted, "reading was stopped")),
                Some(Some(error)) => return Err(Error::new(ErrorKind::ConnectionAborted, error.clone())),
                Some(None) => return Ok(false),
                None => state = self.feed.wait(state),
            }
        }
    }
}

impl Read for FeedReader {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        while self.taken == self.block.len() {
            if !self.next()? {
                return Ok(0);
            }
        }
        let n = buffer.len().min(self.block.len() - self.taken);
        buffer[..n].copy_from_slice(&self.block[self.taken..self.taken + n]);
        self.taken += n;
        Ok(n)
    }
}

impl Drop for FeedReader {
    fn drop(&mut self) {
        self.feed.close();
    }
}
