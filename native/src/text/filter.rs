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
    /// Hashes of documents to exclude.
    pub excluded: std::collections::HashSet<u64>,
}

impl Filter {
    /// From now on, excludes every document whose text equals one of these.
    pub fn exclude(&mut self, batch: &Batch) {
        for i in 0..batch.len() {
            poll(batch.document(i).len());
            self.excluded.insert(xxh3_64(batch.document(i)));
        }
    }

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
        if !self.excluded.is_empty() && self.excluded.contains(&xxh3_64(document)) {
            return Some(false);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn filter() -> Filter {
        Filter {
            min_bytes: 0,
            max_bytes: None,
            budget: None,
            heldout_fraction: 0.02,
            heldout_salt: String::new(),
            heldout_ngram: 0,
            split: Split::HeldOut,
            sample_fraction: 1.0,
            sample_salt: String::new(),
            used: 0,
            excluded: Default::default(),
        }
    }

    #[test]
    fn near_duplicates_are_on_the_same_side() {
        let side = |filter: &mut Filter, text: &str| filter.takes(text.as_bytes()).unwrap();
        let mut by_gram = Filter { heldout_ngram: 5, heldout_fraction: 0.5, ..filter() };
        let mut by_text = Filter { heldout_ngram: 0, ..by_gram.clone() };
        let (mut together, mut apart, mut held_out) = (0, 0, 0);
        for i in 0..400 {
            let words: Vec<String> = (0..200).map(|j| format!("{i}x{j}")).collect();
            let pair = [words.join(" "), words.join(", ").replace("x7,", "y7,")];
            let sides = pair.each_ref().map(|text| side(&mut by_gram, text));
            together += usize::from(sides[0] == sides[1]);
            held_out += usize::from(sides[0]);
            apart += usize::from(side(&mut by_text, &pair[0]) != side(&mut by_text, &pair[1]));
        }
        assert!(together > 380 && apart > 150, "{together} {apart}");
        assert!((160..240).contains(&held_out));
        let short: Vec<_> = (0..50).map(|i| side(&mut by_gram, &format!("a {i}"))).collect();
        assert!(short.contains(&true) && short.contains(&false));
    }

    #[test]
    fn the_split_is_a_partition_within_the_budget() {
        let batch: Arc<Batch> = Arc::new((0..500).map(|i| format!("document {i}")).collect());
        let side = |split| {
            let selected = Filter { heldout_fraction: 0.1, split, ..filter() }.apply(&batch).0;
            (0..selected.len()).map(|i| selected.document(i).to_vec()).collect::<Vec<_>>()
        };
        let (train, held_out) = (side(Split::Train), side(Split::HeldOut));
        assert_eq!(train.len() + held_out.len(), 500);
        assert!((25..80).contains(&held_out.len()), "{}", held_out.len());
        assert!(held_out.iter().all(|text| !train.contains(text)));
        let three = Arc::new(["one", "two", "", "three"].iter().collect::<Batch>());
        let (selected, more) = Filter { budget: Some(4), min_bytes: 1, split: Split::All, ..filter() }.apply(&three);
        assert_eq!((selected.documents(), more), (vec![&b"one"[..], b"two"], false));
    }
}
