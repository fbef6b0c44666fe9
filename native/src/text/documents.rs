//! Documents: texts of any origin, as slices.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::runtime::{interrupt::poll, memory::huge, parallel};

/// Bytes of documents per chunk of a thread's work.
pub const CHUNK_BYTES: usize = 1 << 17;

/// Estimated bytes of text per token, to reserve capacity.
pub const BYTES_PER_TOKEN: usize = 4;

/// The documents of Arrow's layout: document i is `data[offsets[i]..offsets[i + 1]]`. Fails if the offsets do not fit.
pub fn slices<'a, T>(data: &'a [T], offsets: &[i64], what: &str) -> Result<Vec<&'a [T]>, String> {
    if offsets.is_empty() {
        return Err("the offsets are empty; n documents have n + 1".to_string());
    }
    let document = |(i, bounds): (usize, &[i64])| {
        let bounds = usize::try_from(bounds[0]).ok().zip(usize::try_from(bounds[1]).ok());
        let document = bounds.and_then(|(start, end)| data.get(start..end));
        document.ok_or_else(|| format!("offsets of document {i} do not fit the {what}"))
    };
    offsets.windows(2).enumerate().map(document).collect()
}

/// Results of consecutive documents: items, and the end of each document.
struct Joined<T> {
    items: Vec<T>,
    offsets: Vec<i64>,
    /// Results of later documents, by the number of their chunk, and the number of the next chunk.
    waiting: BTreeMap<usize, (Vec<T>, Vec<usize>)>,
    next: usize,
}

impl<T: Copy> Joined<T> {
    /// Adds the results of a chunk, and of those that waited for it.
    fn add(&mut self, chunk: usize, items: Vec<T>, ends: Vec<usize>) {
        self.waiting.insert(chunk, (items, ends));
        while let Some((items, ends)) = self.waiting.remove(&self.next) {
            let before = self.items.len();
            self.items.extend_from_slice(&items);
            self.offsets.extend(ends.into_iter().map(|end| (before + end) as i64));
            self.next += 1;
        }
    }
}

/// Runs `work(state, i, document, out)` for each document, on one thread per state. Returns the appended items in the
/// order of the documents, and the offsets of each document. `room`: expected number of items.
pub fn map<S: Send, T: Copy + Send>(
    documents: &[&[u8]],
    states: &mut [S],
    room: usize,
    work: impl Fn(&mut S, usize, &[u8], &mut Vec<T>) -> Result<(), String> + Sync,
) -> Result<(Vec<T>, Vec<i64>), String> {
    let mut offsets = Vec::with_capacity(documents.len() + 1);
    offsets.push(0);
    if let [state] = states {
        let mut items = huge(room); // one thread needs no copies
        for (i, document) in documents.iter().enumerate() {
            poll(document.len());
            work(state, i, document, &mut items)?;
            offsets.push(items.len() as i64);
        }
        items.shrink_to_fit();
        return Ok((items, offsets));
    }
    let chunks = parallel::chunks(documents.iter().map(|document| document.len()), CHUNK_BYTES);
    let joined = Joined { items: huge(room), offsets, waiting: BTreeMap::new(), next: 0 };
    let joined = Mutex::new(joined);
    parallel::for_each(states, chunks.len(), |state, chunk| {
        let (mut items, mut ends) = (Vec::new(), Vec::new());
        for i in chunks[chunk].clone() {
            poll(documents[i].len());
            work(state, i, documents[i], &mut items)?;
            ends.push(items.len());
        }
        joined.lock().expect("no panic while held").add(chunk, items, ends);
        Ok::<(), String>(())
    })?;
    let Joined { mut items, offsets, .. } = joined.into_inner().expect("no panic while held");
    items.shrink_to_fit();
    Ok((items, offsets))
}
