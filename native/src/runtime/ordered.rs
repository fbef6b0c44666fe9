//! Results that are produced out of order, joined in order while others are still being produced.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::{
    interrupt::poll,
    memory::{self, huge_with_capacity},
};

/// Parts kept for reuse: enough for threads that take turns, but few if many had to wait for one.
const MOST_SPARE: usize = 16;

/// The results of some documents: items, and the end of each document.
pub struct Part<T> {
    pub items: Vec<T>,
    pub ends: Vec<usize>,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { items: Vec::new(), ends: Vec::new() }
    }
}

/// All items, and the offsets of the documents.
pub struct Output<T> {
    pub items: Vec<T>,
    pub offsets: Vec<i64>,
}

impl<T: Copy> Output<T> {
    /// Reserves capacity for about `items` items.
    pub fn new(items: usize, documents: usize) -> Self {
        let mut offsets = memory::with_capacity(documents + 1);
        offsets.push(0);
        Self { items: huge_with_capacity(items), offsets }
    }

    fn add(&mut self, part: &Part<T>) {
        let before = self.items.len();
        self.offsets.extend(part.ends.iter().map(|end| (before + end) as i64));
        memory::reserve(&mut self.items, part.items.len());
        self.items.extend_from_slice(&part.items);
    }
}

/// Joins parts, on whichever thread brings the next one. No thread waits: while one joins, others leave their parts
/// with it. So a part is copied while it is still in the processor's cache, and its memory is reused.
pub struct OrderedOutput<T>(Mutex<Parts<T>>);

struct Parts<T> {
    /// Parts that arrived early, by number, and the number of the next part to join.
    waiting: BTreeMap<usize, Part<T>>,
    next: usize,
    /// Empty parts for reuse.
    spare: Vec<Part<T>>,
    /// None while a thread is joining.
    output: Option<Output<T>>,
}

impl<T: Copy> OrderedOutput<T> {
    pub fn new(output: Output<T>) -> Self {
        Self(Mutex::new(Parts { waiting: BTreeMap::new(), next: 0, spare: Vec::new(), output: Some(output) }))
    }

    fn parts(&self) -> MutexGuard<'_, Parts<T>> {
        self.0.lock().expect("no panic while held")
    }

    /// An empty part.
    pub fn part(&self) -> Part<T> {
        self.parts().spare.pop().unwrap_or_default()
    }

    /// Adds the part with this number. Each number comes once, from 0 without gaps.
    pub fn add(&self, number: usize, part: Part<T>) {
        let mut parts = self.parts();
        parts.waiting.insert(number, part);
        let Some(mut output) = parts.output.take() else { return };
        loop {
            let next = parts.next;
            let Some(mut part) = parts.waiting.remove(&next) else { break };
            parts.next += 1;
            drop(parts);
            poll(part.items.len()); // other threads may produce parts for as long as this one joins them
            output.add(&part);
            part.items.clear();
            part.ends.clear();
            parts = self.parts();
            if parts.spare.len() < MOST_SPARE {
                parts.spare.push(part);
            }
        }
        parts.output = Some(output);
    }

    /// The output of all parts.
    pub fn output(self) -> Output<T> {
        let parts = self.0.into_inner().expect("no panic while held");
        debug_assert!(parts.waiting.is_empty(), "a number did not come");
        parts.output.expect("no thread joins any more")
    }
}
