//! Which measured documents, and which of their words, also occur in other text.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use rustc_hash::FxBuildHasher;
use xxhash_rust::xxh3::xxh3_64;

use super::batch::Batch;
use super::documents;
use super::utf8::decode;
use crate::runtime::interrupt::poll;

/// Base of the polynomial hash of an n-gram. It is odd, so that all words of an n-gram matter.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
/// FNV-1a.
const WORD: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;
/// Tells the hash of a document from that of an n-gram.
const DOCUMENT: u64 = 0x5851_f42d_4c95_7f2d;

/// Measured documents, and what of them the scanned text contains.
///
/// A word is a run of letters and digits in lower case; in scripts without spaces, every letter is a word. An n-gram
/// is the words of `n` consecutive words, whatever is between them. N-grams and documents are compared by 64-bit
/// hashes.
pub struct Overlap {
    n: usize,
    documents: Vec<Document>,
    /// Hashes of the n-grams of all documents, in order.
    grams: Vec<u64>,
    /// Every hash, and whether the scanned text has it; built when scanning begins.
    keys: OnceLock<Keys>,
}

type Keys = hashbrown::HashMap<u64, AtomicBool, FxBuildHasher>;

struct Document {
    hash: u64,
    words: usize,
}

/// Parts of a document that the scanned text contains.
pub struct Found {
    pub words: usize,
    /// Words inside an n-gram that the scanned text contains; all words of a document that it contains.
    pub shared: usize,
    /// Whether the scanned text contains the document.
    pub whole: bool,
}

impl Overlap {
    /// `n`: words of an n-gram, or 0 to compare whole documents only.
    pub fn new(n: usize) -> Self {
        Self { n, documents: Vec::new(), grams: Vec::new(), keys: OnceLock::new() }
    }

    /// Adds measured documents; fails after the first `scan`.
    pub fn add(&mut self, batch: &Batch) -> Result<(), String> {
        if self.keys.get().is_some() {
            return Err("documents cannot be added once other text has been scanned".to_string());
        }
        let mut grams = Grams::new(self.n);
        for i in 0..batch.len() {
            let text = batch.document(i);
            poll(text.len());
            let words = grams.of(text, |gram| self.grams.push(gram));
            self.documents.push(Document { hash: xxh3_64(text) ^ DOCUMENT, words });
        }
        Ok(())
    }

    /// Hashes of the n-grams, then of the documents.
    fn hashes(&self) -> impl Iterator<Item = u64> + Clone + '_ {
        self.grams.iter().copied().chain(self.documents.iter().map(|document| document.hash))
    }

    fn keys(&self) -> &Keys {
        let found = || self.hashes().inspect(|_| poll(8)).map(|hash| (hash, AtomicBool::new(false)));
        self.keys.get_or_init(|| found().collect())
    }

    /// Looks for the measured documents and n-grams in other text; several threads may.
    pub fn scan(&self, batch: &Batch, threads: usize) {
        let n = self.n;
        let keys = self.keys();
        let mut states: Vec<Grams> = (0..threads.max(1)).map(|_| Grams::new(n)).collect();
        let scanned = documents::map(&batch.documents(), &mut states, 0, |grams, _, text, _: &mut Vec<u8>| {
            mark(keys, xxh3_64(text) ^ DOCUMENT);
            if n > 0 {
                grams.of(text, |gram| mark(keys, gram));
            }
            Ok(())
        });
        debug_assert!(scanned.is_ok());
    }

    fn is_found(&self, hash: u64) -> bool {
        let found = self.keys.get().and_then(|keys| keys.get(&hash));
        found.is_some_and(|found| found.load(Ordering::Relaxed))
    }

    /// Matches so far, for `mark`: a bit for each n-gram, then one for each document.
    pub fn marks(&self) -> Vec<u8> {
        let mut marks = vec![0; (self.grams.len() + self.documents.len()).div_ceil(8)];
        for (i, hash) in self.hashes().enumerate() {
            poll(1);
            marks[i / 8] |= u8::from(self.is_found(hash)) << (i % 8);
        }
        marks
    }

    /// Adds what another object with the same documents has found.
    pub fn mark(&self, marks: &[u8]) -> Result<(), String> {
        let n = self.grams.len() + self.documents.len();
        if marks.len() != n.div_ceil(8) {
            return Err(format!("{} bytes of marks are not those of {n} n-grams and documents", marks.len()));
        }
        let keys = self.keys();
        for (i, hash) in self.hashes().enumerate() {
            poll(1);
            if marks[i / 8] >> (i % 8) & 1 == 1 {
                mark(keys, hash);
            }
        }
        Ok(())
    }

    /// Parts of each document that the scanned text contains, in the order of `add`.
    pub fn found(&self) -> Vec<Found> {
        let mut grams = self.grams.iter();
        let mut found = Vec::with_capacity(self.documents.len());
        for document in &self.documents {
            poll(document.words);
            let (mut shared, mut covered) = (0, 0);
            for first in 0..n_grams(document.words, self.n) {
                if grams.next().is_some_and(|&gram| self.is_found(gram)) {
                    shared += first + self.n - covered.max(first);
                    covered = first + self.n;
                }
            }
            let whole = self.is_found(document.hash);
            found.push(Found { words: document.words, shared: if whole { document.words } else { shared }, whole });
        }
        found
    }
}

fn mark(keys: &Keys, hash: u64) {
    if let Some(found) = keys.get(&hash) {
        found.store(true, Ordering::Relaxed);
    }
}

/// The smallest hash of the n-grams of a text; None if it has fewer than `n` words, or `n` is 0.
pub fn smallest_gram(text: &[u8], n: usize) -> Option<u64> {
    let mut smallest = None;
    if n > 0 {
        Grams::new(n).of(text, |gram| smallest = Some(smallest.map_or(gram, |least: u64| least.min(gram))));
    }
    smallest
}

fn n_grams(words: usize, n: usize) -> usize {
    if n == 0 {
        0
    } else {
        (words + 1).saturating_sub(n)
    }
}

/// Rolling hash over the last n words.
struct Grams {
    n: usize,
    /// BASE^n
    leaving: u64,
    last: Vec<u64>,
}

impl Grams {
    fn new(n: usize) -> Self {
        let leaving = (0..n).fold(1u64, |power, _| power.wrapping_mul(BASE));
        Self { n, leaving, last: vec![0; n.max(1)] }
    }

    /// Calls `gram` with the hash of every n-gram; returns the number of words.
    #[inline]
    fn of(&mut self, text: &[u8], mut gram: impl FnMut(u64)) -> usize {
        let (mut hash, mut n_words, mut place) = (0u64, 0, 0);
        words(text, |word| {
            n_words += 1;
            if self.n == 0 {
                return;
            }
            let before = if n_words > self.n { self.last[place] } else { 0 };
            hash = hash.wrapping_mul(BASE).wrapping_add(word).wrapping_sub(before.wrapping_mul(self.leaving));
            self.last[place] = word;
            place = if place + 1 == self.n { 0 } else { place + 1 };
            if n_words >= self.n {
                gram(mixed(hash));
            }
        });
        n_words
    }
}

/// Calls `word` with the hash of every word.
#[inline]
fn words(text: &[u8], mut word: impl FnMut(u64)) {
    let (mut hash, mut at) = (WORD, 0);
    let add = |hash: u64, letter: u32| (hash ^ u64::from(letter)).wrapping_mul(PRIME);
    while at < text.len() {
        let byte = text[at];
        if byte.is_ascii_alphanumeric() {
            hash = add(hash, byte.to_ascii_lowercase().into());
            at += 1;
            continue;
        }
        let (code_point, length) = decode(text, at);
        let letter = char::from_u32(code_point).filter(|letter| letter.is_alphanumeric());
        at += length;
        // The word before ends here, unless a letter continues it.
        let alone = letter.is_some_and(without_spaces);
        if hash != WORD && (alone || letter.is_none()) {
            word(mixed(hash));
            hash = WORD;
        }
        hash = letter.into_iter().flat_map(char::to_lowercase).fold(hash, |hash, lower| add(hash, lower.into()));
        if alone {
            word(mixed(hash));
            hash = WORD;
        }
    }
    if hash != WORD {
        word(mixed(hash));
    }
}

/// Whether a letter is of a script that does not separate words: Thai, Lao, Burmese, Khmer, kana or Han.
fn without_spaces(letter: char) -> bool {
    matches!(letter,
        '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3005}'..='\u{3007}'
        | '\u{3040}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{3ffff}')
}

/// Spreads the entropy of a hash over all bits (the finalizer of MurmurHash3).
#[inline]
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}
