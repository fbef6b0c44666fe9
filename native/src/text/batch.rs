//! Documents as batches of one UTF-8 buffer and offsets, and which of them to take.

use std::sync::Arc;

use crate::runtime::{lock_free::Pool, memory};

/// Documents laid end to end; document i is `data[offsets[i]..offsets[i + 1]]`, valid UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub data: Vec<u8>,
    pub offsets: Vec<i64>,
    /// Whether the first document is a further part of one that another batch began.
    pub continued: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Self { data: Vec::new(), offsets: vec![0], continued: false }
    }
}

impl Batch {
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn document(&self, i: usize) -> &[u8] {
        &self.data[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }

    pub fn push(&mut self, document: &[u8]) {
        memory::reserve(&mut self.data, document.len());
        self.data.extend_from_slice(document);
        memory::push(&mut self.offsets, self.data.len() as i64);
    }
}

/// Buffers of batches that nobody needs any more. A new buffer of some megabytes costs more to get from the system, page
/// by page, than to fill (measured: a quarter of the time of reading .jsonl).
static BUFFERS: Pool<Vec<u8>, 4> = Pool::new();
const LARGEST_BUFFER: usize = 1 << 24;

/// An empty buffer with room for about `bytes`.
pub fn buffer(bytes: usize) -> Vec<u8> {
    let mut data = BUFFERS.take().map_or_else(Vec::new, |data| *data);
    memory::reserve(&mut data, bytes);
    data
}

/// Keeps the buffer of a batch that nobody else holds.
pub fn recycle(batch: Arc<Batch>) {
    let Some(Batch { mut data, .. }) = Arc::into_inner(batch) else { return };
    if (1 << 16..=LARGEST_BUFFER).contains(&data.capacity()) {
        data.clear();
        BUFFERS.put(Box::new(data));
    }
}
