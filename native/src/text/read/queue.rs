//! A queue between several reading threads and one consumer: in the order of the files, or as batches come.
//!
//! In order, a thread whose files are not next buffers its batches, up to a limit that all threads share; the thread
//! whose turn it is can always proceed. So several files are decompressed in parallel and memory is bounded.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::runtime::interrupt;

/// Buffered batches per thread. A batch with a long document counts as several.
const AHEAD: usize = 2;

/// Buffered batches per thread if several threads keep an order: the buffer decides how long all of them can read.
const AHEAD_IN_ORDER: usize = 16;

pub struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    threads: usize,
    in_order: bool,
}

struct State<T> {
    /// Files that are being read, or whose batches are not all taken, in order.
    lanes: VecDeque<Waiting<T>>,
    /// Number of the next lane.
    number: usize,
    /// The first file without a lane.
    file: usize,
    /// Total size of the batches in all lanes.
    waiting: usize,
    /// Whether all files have a lane.
    complete: bool,
    /// Whether the consumer is gone.
    closed: bool,
}

struct Waiting<T> {
    number: usize,
    /// Batches with their sizes.
    batches: VecDeque<(Result<T, String>, usize)>,
    ended: bool,
}

impl<T> Queue<T> {
    pub fn new(threads: usize, in_order: bool) -> Arc<Self> {
        let state = State { lanes: VecDeque::new(), number: 0, file: 0, waiting: 0, complete: false, closed: false };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), threads, in_order })
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no panic while held")
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).expect("no panic while held")
    }

    /// Opens a lane for the next files, `choose(first)`, once there are fewer lanes than threads. None if the range is
    /// empty, which means that no file is left, or if the consumer is gone.
    pub fn open(self: &Arc<Self>, choose: impl FnOnce(usize) -> Range<usize>) -> Option<(Lane<T>, Range<usize>)> {
        let mut state = self.state();
        while state.lanes.len() >= self.threads && !state.closed {
            state = self.wait(state);
        }
        let files = choose(state.file);
        if files.is_empty() || state.closed {
            state.complete = true;
            self.changed.notify_all();
            return None;
        }
        let number = state.number;
        (state.number, state.file) = (number + 1, files.end);
        state.lanes.push_back(Waiting { number, batches: VecDeque::new(), ended: false });
        Some((Lane { queue: Arc::clone(self), number }, files))
    }

    /// The next batch, or an error instead of all that would follow; None at the end.
    pub fn take(&self) -> Option<Result<T, String>> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            let looked_at = if self.in_order { 1 } else { state.lanes.len() };
            if let Some(at) = state.lanes.iter().take(looked_at).position(|lane| lane.ended || !lane.batches.is_empty())
            {
                let taken = state.lanes[at].batches.pop_front();
                match &taken {
                    None => drop(state.lanes.remove(at)), // the lane has ended
                    Some((batch, size)) => {
                        state.waiting -= size;
                        state.closed = batch.is_err();
                    }
                }
                self.changed.notify_all();
                if let Some((batch, _)) = taken {
                    return Some(batch);
                }
            } else if state.lanes.is_empty() && state.complete {
                return None;
            } else {
                // Nothing is locked while the caller may stop the wait.
                drop(self.changed.wait_timeout(state, interrupt::WAIT).expect("no panic while held"));
                interrupt::check();
                state = self.state();
            }
        }
    }

    /// Closes the queue, so that the threads can end.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.lanes.clear();
        self.changed.notify_all();
    }
}

/// The sending side for some files. Dropping it without `end` means that the thread died, which must not look like the
/// end of the files.
pub struct Lane<T> {
    queue: Arc<Queue<T>>,
    number: usize,
}

impl<T> Lane<T> {
    /// Sends a batch; false if the consumer is gone. `size`: number of usual batches that it counts as.
    pub fn send(&self, batch: T, size: usize) -> bool {
        let queue = &self.queue;
        let limit = if queue.in_order && queue.threads > 1 { AHEAD_IN_ORDER } else { AHEAD } * queue.threads;
        let mut state = queue.state();
        loop {
            let Some(at) = state.lanes.iter().position(|lane| lane.number == self.number).filter(|_| !state.closed)
            else {
                return false;
            };
            let is_next = queue.in_order && at == 0 && state.lanes[at].batches.len() < AHEAD;
            if state.waiting < limit || is_next {
                state.waiting += size;
                state.lanes[at].batches.push_back((Ok(batch), size));
                queue.changed.notify_all();
                return true;
            }
            state = queue.wait(state);
        }
    }

    /// All batches are sent.
    pub fn end(self) {
        self.finish(None);
    }

    /// Ends the lane with an error.
    pub fn fail(self, error: String) {
        self.finish(Some(error));
    }

    fn finish(&self, error: Option<String>) {
        let mut state = self.queue.state();
        if let Some(at) = state.lanes.iter().position(|lane| lane.number == self.number && !lane.ended) {
            state.lanes[at].ended = true;
            if let Some(error) = error {
                state.waiting += 1;
                state.lanes[at].batches.push_back((Err(error), 1));
            }
            self.queue.changed.notify_all();
        }
    }
}

impl<T> Drop for Lane<T> {
    fn drop(&mut self) {
        self.finish(Some("a reading thread died".to_string()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    /// Batches (file, number), read by threads of varying speed.
    fn started(
        files: usize,
        batches: usize,
        threads: usize,
        in_order: bool,
    ) -> (Arc<Queue<(usize, usize)>>, Arc<AtomicUsize>) {
        let (queue, sent) = (Queue::new(threads, in_order), Arc::new(AtomicUsize::new(0)));
        for _ in 0..threads {
            let (queue, sent) = (Arc::clone(&queue), Arc::clone(&sent));
            std::thread::spawn(move || {
                while let Some((lane, taken)) = queue.open(|from| from..files.min(from + 1)) {
                    for number in 0..batches {
                        if (taken.start * 7 + number) % 5 == 0 {
                            std::thread::yield_now();
                        }
                        if !lane.send((taken.start, number), 1) {
                            return;
                        }
                        sent.fetch_add(1, SeqCst);
                    }
                    lane.end();
                }
            });
        }
        (queue, sent)
    }

    fn taken<T>(queue: &Queue<T>) -> Vec<Result<T, String>> {
        std::iter::from_fn(|| queue.take()).collect()
    }

    #[test]
    fn batches_come_in_order_or_at_least_all() {
        for threads in [1, 2, 5] {
            for (files, batches) in [(0, 3), (1, 100), (40, 3), (7, 50), (20, 0)] {
                let all: Vec<_> = (0..files).flat_map(|file| (0..batches).map(move |n| (file, n))).collect();
                let (queue, _) = started(files, batches, threads, true);
                assert!(taken(&queue).into_iter().map(Result::unwrap).eq(all.iter().copied()), "{threads} {files}");
                let (queue, _) = started(files, batches, threads, false);
                let mut found: Vec<_> = taken(&queue).into_iter().map(Result::unwrap).collect();
                found.sort_unstable();
                assert_eq!(found, all);
            }
        }
    }

    #[test]
    fn no_more_is_read_than_has_room() {
        for (threads, in_order, most) in
            [(1, true, AHEAD), (4, true, 4 * AHEAD_IN_ORDER + AHEAD), (4, false, 4 * AHEAD)]
        {
            let (queue, sent) = started(10, 1000, threads, in_order);
            for n in 0..200 {
                assert!(queue.take().is_some());
                assert!(sent.load(SeqCst) <= n + 1 + most + threads, "{threads} {n}");
            }
            queue.close();
            assert!(queue.take().is_none());
        }
    }

    #[test]
    fn large_batches_count_as_many() {
        let queue = Queue::new(2, true);
        let (first, _) = queue.open(|from| from..from + 1).unwrap();
        let (second, _) = queue.open(|from| from..from + 1).unwrap();
        assert!(second.send("large", 2 * AHEAD_IN_ORDER) && first.send("in its turn", 1));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| second.send("too much", 1));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waits.is_finished());
            assert_eq!(queue.take(), Some(Ok("in its turn")));
            first.end();
            assert_eq!(queue.take(), Some(Ok("large")));
            assert!(waits.join().unwrap());
        });
        assert_eq!(queue.take(), Some(Ok("too much")));
    }

    #[test]
    fn a_failure_comes_in_its_turn_and_ends_all() {
        let queue = Queue::new(2, true);
        let (first, _) = queue.open(|from| from..from + 1).unwrap();
        let (second, _) = queue.open(|from| from..from + 1).unwrap();
        second.fail("broken".to_string());
        assert!(first.send(1, 1) && first.send(2, 1));
        first.end();
        assert_eq!(taken(&queue), [Ok(1), Ok(2), Err("broken".to_string())]);
        assert!(queue.open(|from| from..from + 1).is_none());
    }

    #[test]
    fn a_thread_that_dies_is_a_failure() {
        let queue = Queue::<u8>::new(1, true);
        let (lane, _) = queue.open(|from| from..from + 1).unwrap();
        drop(lane);
        assert_eq!(taken(&queue), [Err("a reading thread died".to_string())]);
    }
}
