//! Threads that share the work of one call, and end with it.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::thread::Builder;

use super::interrupt::{self, catch, WAIT};

/// Runs `work(state, item)` for every item below `items`, on one thread per state. If the system starts fewer threads,
/// those do all the work. The order of items is not fixed. The first error ends the work and is returned.
pub fn for_each<S: Send, E: Send>(
    states: &mut [S],
    items: usize,
    work: impl Fn(&mut S, usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let take = |state: &mut S| {
        let ended = catch(|| loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                item if item < items => work(state, item)?,
                _ => return Ok(()),
            }
        });
        if !matches!(ended, Ok(Ok(()))) {
            next.store(items, Ordering::Relaxed); // nothing is left for the others
        }
        ended
    };
    let (first, rest) = states.split_first_mut().expect("at least one thread");
    let call = interrupt::current();
    let ended = std::thread::scope(|scope| {
        let (alive, all_ended) = channel::<()>();
        let mut workers = Vec::new();
        for state in rest.iter_mut().take(items.saturating_sub(1)) {
            let (call, take, alive) = (&call, &take, alive.clone());
            let run = move || {
                let _alive = alive;
                call.on_this_thread(None, || take(state))
            };
            match Builder::new().spawn_scoped(scope, run) {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
        drop(alive);
        let mut ended = vec![take(first)];
        while all_ended.recv_timeout(WAIT) == Err(RecvTimeoutError::Timeout) {
            if ended[0].is_ok() {
                interrupt::check(); // otherwise the workers are stopping, and the reason is known
            }
        }
        ended.extend(workers.into_iter().map(|worker| worker.join().expect("unwinding is caught")));
        ended
    });
    ended.into_iter().try_for_each(|ended| ended.unwrap_or_else(|stopped| stopped.unwind()))
}

/// Consecutive ranges of documents of about `bytes` each.
pub fn chunks(lengths: impl ExactSizeIterator<Item = usize>, bytes: usize) -> Vec<Range<usize>> {
    let documents = lengths.len();
    let (mut ranges, mut start, mut size) = (Vec::new(), 0, 0);
    for (i, length) in lengths.enumerate() {
        size += length;
        if size >= bytes || i + 1 == documents {
            ranges.push(start..i + 1);
            (start, size) = (i + 1, 0);
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::interrupt::{poll, run, Stopped};

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
        let done = AtomicUsize::new(0);
        let stopped = catch(|| {
            for_each(&mut [(); 3], 1_000_000, |(), item| -> Result<(), ()> {
                done.fetch_add(1, Ordering::Relaxed);
                assert!(item != 5, "broken");
                std::thread::sleep(std::time::Duration::from_micros(10));
                Ok(())
            })
        });
        assert!(matches!(stopped, Err(Stopped::Panicked(what)) if what == "broken"));
        assert!(done.load(Ordering::Relaxed) < 1_000_000);
        let failed = for_each(&mut [(); 3], 1_000_000, |(), item| if item == 5 { Err(item) } else { Ok(()) });
        assert_eq!(failed, Err(5));
    }
}
