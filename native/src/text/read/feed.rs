//! A file whose bytes another thread supplies in blocks, such as one that is downloaded.

use std::io::{Error, ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Mutex};

/// Blocks from `put` to a reader. One waits while another is read.
pub struct Feed {
    sender: Mutex<Option<SyncSender<Vec<u8>>>>,
    receiver: Mutex<Option<Receiver<Vec<u8>>>>,
    /// Why the file could not be supplied to its end.
    error: Mutex<Option<String>>,
    closed: AtomicBool,
}

impl Default for Feed {
    fn default() -> Self {
        let (sender, receiver) = sync_channel(1);
        Self {
            sender: Mutex::new(Some(sender)),
            receiver: Mutex::new(Some(receiver)),
            error: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().expect("no panic while held").take()
}

impl Feed {
    /// Adds a block once the previous one is taken; false if nothing is read any more.
    pub fn put(&self, block: Vec<u8>) -> bool {
        let sender = self.sender.lock().expect("no panic while held").clone(); // not held while waiting
        sender.is_some_and(|sender| sender.send(block).is_ok()) && !self.closed.load(Ordering::Relaxed)
    }

    /// Ends the file after the last block, or fails the reader with an error.
    pub fn end(&self, error: Option<String>) {
        if let Some(_sender) = take(&self.sender) {
            *self.error.lock().expect("no panic while held") = error;
        }
    }

    /// Stops the reader and the writer.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        drop((take(&self.sender), take(&self.receiver)));
    }
}

/// The reading side. Dropping it stops the writer.
pub(super) struct FeedReader {
    feed: Arc<Feed>,
    blocks: Option<Receiver<Vec<u8>>>,
    block: Vec<u8>,
    taken: usize,
}

impl FeedReader {
    pub(super) fn new(feed: Arc<Feed>) -> Self {
        Self { blocks: take(&feed.receiver), feed, block: Vec::new(), taken: 0 }
    }
}

impl Read for FeedReader {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        while self.taken == self.block.len() {
            match self.blocks.as_ref().and_then(|blocks| blocks.recv().ok()) {
                Some(block) if !self.feed.closed.load(Ordering::Relaxed) => (self.block, self.taken) = (block, 0),
                None if !self.feed.closed.load(Ordering::Relaxed) => {
                    let error = take(&self.feed.error);
                    return error.map_or(Ok(0), |error| Err(Error::new(ErrorKind::ConnectionAborted, error)));
                }
                _ => return Err(Error::new(ErrorKind::ConnectionAborted, "reading was stopped")),
            }
        }
        let n = buffer.len().min(self.block.len() - self.taken);
        buffer[..n].copy_from_slice(&self.block[self.taken..self.taken + n]);
        self.taken += n;
        Ok(n)
    }
}
