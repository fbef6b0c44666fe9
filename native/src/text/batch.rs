//! Batches of documents: one UTF-8 buffer and offsets.

use std::sync::Arc;

use crate::runtime::{lock_free::Pool, memory};

/// Concatenated documents. Document i is `data[offsets[i]..offsets[i + 1]]`, valid UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub data: Vec<u8>,
    pub offsets: Vec<i64>,
    /// Whether the first document continues the last document of the batch before.
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

/// Buffers to reuse. A new buffer of some megabytes takes longer to allocate, page by page, than to fill (measured: a
/// quarter of the time of reading .jsonl).
static BUFFERS: Pool<Vec<u8>, 4> = Pool::new();
const LARGEST_BUFFER: usize = 1 << 24;

/// An empty buffer with capacity for about `bytes`.
pub fn buffer(bytes: usize) -> Vec<u8> {
    let mut data = BUFFERS.take().map_or_else(Vec::new, |data| *data);
    memory::reserve(&mut data, bytes);
    data
}

/// Returns the buffer of a batch to the pool, unless someone else holds the batch.
pub fn recycle(batch: Arc<Batch>) {
    let Some(Batch { mut data, .. }) = Arc::into_inner(batch) else { return };
    if (1 << 16..=LARGEST_BUFFER).contains(&data.capacity()) {
        data.clear();
        BUFFERS.put(Box::new(data));
    }
}
