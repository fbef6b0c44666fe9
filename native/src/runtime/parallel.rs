//! Starting threads, and sharing work between them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle, Thread};

use super::interrupt;

/// Starts up to `threads` threads, as many as the system allows; an error if there are none.
pub fn start<W>(threads: usize, mut work: impl FnMut() -> W) -> Result<Vec<JoinHandle<()>>, String>
where
    W: FnOnce() + Send + 'static,
{
    let mut started = Vec::new();
    for _ in 0..threads.max(1) {
        match Builder::new().spawn(work()) {
            Ok(thread) => started.push(thread),
            Err(error) if started.is_empty() => {
                return Err(format!(
                "no thread can be started ({error}): raise the limits of the process (ulimit -u, ulimit -v), or end \
                     other processes"
            ))
            }
            Err(_) => break,
        }
    }
    Ok(started)
}

/// Signals on drop that a worker has ended.
struct Running<'a> {
    workers: &'a AtomicUsize,
    waiting: Thread,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.workers.fetch_sub(1, Ordering::Release);
        self.waiting.unpark();
    }
}

/// Indices of items up to `end`. After a failure none are left.
struct Items {
    next: AtomicUsize,
    end: usize,
}

impl Items {
    fn take(&self) -> Option<usize> {
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|item| *item < self.end)
    }

    fn give_up(&self) {
        self.next.store(self.end, Ordering::Relaxed);
    }
}

struct GiveUpOnPanic<'a>(&'a Items);

impl Drop for GiveUpOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up();
        }
    }
}

/// Runs `work(state, item)` for every item below `items`, on one thread per state. If the system starts fewer threads,
/// those do all the work. The order of items is not fixed. The first error ends the work and is returned.
pub fn for_each<S: Send, E: Send>(
    states: &mut [S],
    items: usize,
    work: impl Fn(&mut S, usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let items = Items { next: AtomicUsize::new(0), end: items };
    let take = |state: &mut S| {
        let _on_panic = GiveUpOnPanic(&items);
        while let Some(item) = items.take() {
            work(state, item).inspect_err(|_| items.give_up())?;
        }
        Ok(())
    };
    let (first, rest) = states.split_first_mut().expect("at least one thread");
    if rest.is_empty() || items.end <= 1 {
        return take(first);
    }
    let (call, workers) = (interrupt::current(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let mut started = Vec::new();
        for state in rest {
            workers.fetch_add(1, Ordering::Relaxed);
            let running = Running { workers: &workers, waiting: std::thread::current() };
            let (call, take) = (&call, &take);
            let run = move || {
                let _running = running;
                call.on_this_thread(None, || take(state))
            };
            match Builder::new().spawn_scoped(scope, run) {
                Ok(worker) => started.push(worker),
                Err(_) => break, // `running` is dropped
            }
        }
        let mut result = take(first);
        interrupt::wait_until(|| workers.load(Ordering::Acquire) == 0);
        for worker in started {
            let ended = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result
    })
}

/// Splits documents (by their offsets) into consecutive ranges of about `bytes` each.
pub fn chunks(offsets: &[i64], bytes: usize) -> Vec<std::ops::Range<usize>> {
    let documents = offsets.len() - 1;
    let mut ranges = Vec::new();
    let mut start = 0;
    for end in 1..=documents {
        if (offsets[end] - offsets[start]) as usize >= bytes || end == documents {
            ranges.push(start..end);
            start = end;
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::interrupt::{catch, poll, run, Stopped};

    #[test]
    fn a_call_stops_on_all_threads() {
        for threads in [1, 2, 5] {
            let stopped = run(Some(|| Err(Box::new(()))), || {
                for_each(&mut vec![(); threads], 100, |(), _| -> Result<(), ()> {
                    loop {
                        poll(1);
                    }
                })
            });
            assert!(matches!(stopped, Err(Stopped::Interrupted(Some(_)))), "{threads}");
            // The calling thread has no work and only waits.
            let main = std::thread::current().id();
            let stopped = run(Some(|| Err(Box::new(()))), || {
                for_each(&mut vec![(); threads], 2, |(), _| -> Result<(), ()> {
                    while threads == 1 || std::thread::current().id() != main {
                        poll(1);
                    }
                    Ok(())
                })
            });
            assert!(threads > 1 && stopped.is_ok() || matches!(stopped, Err(Stopped::Interrupted(Some(_)))));
        }
    }

    #[test]
    fn what_stops_one_thread_stops_all() {
        for stop in [|| panic!("broken"), || Stopped::OutOfMemory.unwind()] {
            let done = AtomicUsize::new(0);
            let stopped = catch(|| {
                for_each(&mut [(); 3], 1_000_000, |(), item| -> Result<(), ()> {
                    done.fetch_add(1, Ordering::Relaxed);
                    if item == 5 {
                        stop()
                    }
                    std::thread::sleep(std::time::Duration::from_micros(10));
                    Ok(())
                })
            });
            assert!(stopped.is_err());
            assert!(done.load(Ordering::Relaxed) < 1_000_000);
        }
    }
}
