//! Work shared out over threads: items taken from a counter, one state per thread.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `work(state, item)` for every item below `items`, each thread with a state of its own.
/// The order of items is not fixed; the first error ends the work and is returned.
pub fn for_each<S: Send, E: Send>(
    states: &mut [S],
    items: usize,
    work: impl Fn(&mut S, usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let take = |state: &mut S| loop {
        let item = next.fetch_add(1, Ordering::Relaxed);
        if item >= items {
            return Ok(());
        }
        if let Err(error) = work(state, item) {
            next.store(items, Ordering::Relaxed);
            return Err(error);
        }
    };
    let (first, rest) = states.split_first_mut().expect("at least one thread");
    if rest.is_empty() || items <= 1 {
        return take(first);
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> = rest.iter_mut().map(|state| scope.spawn(|| take(state))).collect();
        let mut result = take(first);
        for worker in workers {
            let ended = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result
    })
}

/// Cuts documents (by their offsets) into consecutive ranges of about `bytes` each.
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
