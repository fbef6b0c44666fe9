//! Patterns.

use std::cell::RefCell;
use std::collections::VecDeque;

use pyo3::prelude::*;

use super::calls::core;
use crate::pretokenize::patterns::{EQUIVALENT, NAMED};
use crate::pretokenize::scanner::Scanner;

/// Names and regexes of the named patterns.
#[pyfunction]
pub fn named_patterns() -> Vec<(&'static str, &'static str)> {
    NAMED.iter().map(|&(name, regex, _)| (name, regex)).collect()
}

/// Other spellings of named patterns, with the names.
#[pyfunction]
pub fn equivalent_patterns() -> Vec<(&'static str, &'static str)> {
    let name = |kind| NAMED.iter().find(|named| named.2 == kind).expect("every kind has a name").0;
    EQUIVALENT.iter().map(|&(regex, kind)| (regex, name(kind))).collect()
}

/// The number of pieces of each text; fails if the regex does not compile.
#[pyfunction]
pub fn count_pieces(texts: Vec<String>, pattern: &str) -> PyResult<Vec<usize>> {
    core(|| {
        let scanner = Scanner::new(pattern)?;
        let mut counts = vec![0; texts.len()];
        for (text, count) in texts.iter().zip(&mut counts) {
            scanner.pieces(text.as_bytes(), |_, _| *count += 1)?;
        }
        Ok(counts)
    })
}

thread_local! {
    /// The last patterns of `split`: compiling a regex takes a hundred times as long as cutting a short text.
    static LAST: RefCell<VecDeque<(String, Scanner)>> = const { RefCell::new(VecDeque::new()) };
}

/// The pieces of a text; fails if the regex does not compile.
#[pyfunction]
pub fn split(text: &str, pattern: &str) -> PyResult<Vec<String>> {
    core(|| {
        LAST.with_borrow_mut(|last| {
            if !last.iter().any(|(known, _)| known == pattern) {
                last.truncate(3);
                last.push_front((pattern.to_string(), Scanner::new(pattern)?));
            }
            let (_, scanner) = last.iter().find(|(known, _)| known == pattern).expect("added above");
            let mut pieces = Vec::new();
            scanner.pieces(text.as_bytes(), |start, end| pieces.push(text[start..end].to_string()))?;
            Ok(pieces)
        })
    })
}
