//! Selection of documents.

use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::batch::Batch;
use super::overlap::smallest_gram;
use crate::runtime::interrupt::poll;

/// The side of the held-out split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    All,
    Train,
    HeldOut,
}

/// Selects documents. The budget counts the bytes of documents within the length bounds, before the split.
#[derive(Clone, Debug)]
pub struct Filter {
    pub min_bytes: usize,
    pub max_bytes: Option<usize>,
    pub budget: Option<u64>,
    pub heldout_fraction: f64,
    pub heldout_salt: String,
    /// Held out by the smallest hash of the n-grams of this many words (MinHash), so that two documents are on the same
    /// side with at least the probability of their Jaccard similarity; 0 to hold out by the whole text.
    pub heldout_ngram: usize,
    pub split: Split,
    pub sample_fraction: f64,
    pub sample_salt: String,
    /// Bytes of the budget used so far.
    pub used: u64,
}

impl Filter {
    /// The selected documents, and whether more are wanted. The batch is not copied if all are selected.
    pub fn apply(&mut self, batch: &Arc<Batch>) -> (Arc<Batch>, bool) {
        let mut taken = Vec::with_capacity(batch.len());
        let mut more = true;
        for i in 0..batch.len() {
            poll(batch.document(i).len());
            match self.takes(batch.document(i)) {
                None => {
                    more = false;
                    break;
                }
                Some(true) => taken.push(i),
                Some(false) => {}
            }
        }
        if taken.len() == batch.len() {
            return (Arc::clone(batch), more);
        }
        (Arc::new(taken.into_iter().map(|i| batch.document(i)).collect()), more)
    }

    /// Whether to select the document; None once the budget is used up.
    fn takes(&mut self, document: &[u8]) -> Option<bool> {
        if self.budget.is_some_and(|budget| self.used >= budget) {
            return None;
        }
        if document.len() < self.min_bytes || self.max_bytes.is_some_and(|most| document.len() > most) {
            return Some(false);
        }
        self.used += document.len() as u64;
        let held_out = || match smallest_gram(document, self.heldout_ngram) {
            Some(hash) => below(&hash.to_le_bytes(), &self.heldout_salt, self.heldout_fraction),
            None => below(document, &self.heldout_salt, self.heldout_fraction),
        };
        let on_this_side = match self.split {
            Split::All => true,
            Split::Train => !held_out(),
            Split::HeldOut => held_out(),
        };
        Some(on_this_side && (self.sample_fraction >= 1.0 || below(document, &self.sample_salt, self.sample_fraction)))
    }
}

/// A coin of the given probability, determined by the document's text and the salt.
fn below(document: &[u8], salt: &str, fraction: f64) -> bool {
    let hash = xxh3_64_with_seed(document, xxh3_64(salt.as_bytes()));
    // 53 bits fit a double exactly, so the comparison is the same on every platform.
    ((hash >> 11) as f64) < fraction * (1u64 << 53) as f64
}
