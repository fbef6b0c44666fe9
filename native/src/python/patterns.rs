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

/// For each text, whether the pattern cuts inside it in every context: a string before and a string after the text.
#[pyfunction]
pub fn always_cut(texts: Vec<String>, contexts: Vec<(String, String)>, pattern: &str) -> PyResult<Vec<bool>> {
    core(|| {
        let scanner = Scanner::new(pattern)?;
        let is_cut = |text: &String, (before, after): &(String, String)| -> Result<bool, String> {
            let (start, end) = (before.len(), before.len() + text.len());
            let mut found = false;
            scanner.pieces([before.as_str(), text, after].concat().as_bytes(), |_, at| {
                found |= start < at && at < end;
            })?;
            Ok(found)
        };
        let always = |text: &String| -> Result<bool, String> {
            for context in &contexts {
                if !is_cut(text, context)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        texts.iter().map(always).collect()
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
