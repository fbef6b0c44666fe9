//! Batches of documents: one UTF-8 buffer and offsets.

/// Concatenated documents. Document i is `data[offsets[i]..offsets[i + 1]]`, valid UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub data: Vec<u8>,
    pub offsets: Vec<i64>,
}

impl Default for Batch {
    fn default() -> Self {
        Self { data: Vec::new(), offsets: vec![0] }
    }
}

impl<D: AsRef<[u8]>> FromIterator<D> for Batch {
    fn from_iter<I: IntoIterator<Item = D>>(documents: I) -> Self {
        let mut batch = Self::default();
        documents.into_iter().for_each(|document| batch.push(document.as_ref()));
        batch
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

    pub fn documents(&self) -> Vec<&[u8]> {
        (0..self.len()).map(|i| self.document(i)).collect()
    }

    pub fn push(&mut self, document: &[u8]) {
        self.data.extend_from_slice(document);
        self.offsets.push(self.data.len() as i64);
    }
}
