//! Patterns.

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

/// The pieces of a text; fails if the regex does not compile.
#[pyfunction]
pub fn split(text: &str, pattern: &str) -> PyResult<Vec<String>> {
    core(|| {
        let mut pieces = Vec::new();
        Scanner::new(pattern)?.pieces(text.as_bytes(), |start, end| pieces.push(text[start..end].to_string()))?;
        Ok(pieces)
    })
}
