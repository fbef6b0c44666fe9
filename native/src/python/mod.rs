//! The Python binding: conversions, errors and the GIL; no algorithm.

mod encoding;
mod lent;
mod text;
mod training;
mod vocabulary;

use pyo3::prelude::*;

use crate::patterns::{Scanner, EQUIVALENT, NAMED};

/// An error of the core is a mistake in what the user gave: `tokenizer.errors.UserError`.
pub fn user_error(message: String) -> PyErr {
    Python::attach(|py| {
        let make = || py.import("tokenizer.errors")?.getattr("UserError")?.call1((message.as_str(),));
        match make() {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    })
}
/// Names and regexes of the patterns that have scanners of their own.
#[pyfunction]
fn named_patterns() -> Vec<(&'static str, &'static str)> {
    NAMED.iter().map(|&(name, regex, _)| (name, regex)).collect()
}

/// Other spellings of named patterns, and the names.
#[pyfunction]
fn equivalent_patterns() -> Vec<(&'static str, &'static str)> {
    let name = |kind| NAMED.iter().find(|named| named.2 == kind).expect("every kind has a name").0;
    EQUIVALENT.iter().map(|&(regex, kind)| (regex, name(kind))).collect()
}

/// The pieces into which a pattern cuts text; a regex that does not compile is an error.
#[pyfunction]
fn split(text: &str, pattern: &str) -> PyResult<Vec<String>> {
    let mut pieces = Vec::new();
    Scanner::new(pattern)
        .and_then(|scanner| scanner.pieces(text.as_bytes(), |start, end| pieces.push(text[start..end].to_string())))
        .map_err(user_error)?;
    Ok(pieces)
}

/// How many pieces a pattern cuts all documents into: scanning alone, for benchmarks. One thread.
#[pyfunction]
fn count_pieces(py: Python<'_>, batch: &text::Batch, pattern: &str) -> PyResult<usize> {
    py.detach(|| {
        let scanner = Scanner::new(pattern)?;
        let mut pieces = 0;
        (0..batch.0.len()).try_for_each(|i| scanner.pieces(batch.0.document(i), |_, _| pieces += 1))?;
        Ok(pieces)
    })
    .map_err(user_error)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<text::Batch>()?;
    module.add_class::<vocabulary::Decoder>()?;
    module.add_class::<text::DocumentFilter>()?;
    module.add_class::<encoding::EncodeStream>()?;
    module.add_class::<encoding::Encoder>()?;
    module.add_class::<encoding::SpecialStrings>()?;
    module.add_class::<encoding::Preparation>()?;
    module.add_class::<training::PretokenCounter>()?;
    module.add_class::<text::Reader>()?;
    module.add_class::<training::SuperwordTrainer>()?;
    module.add_function(wrap_pyfunction!(count_pieces, module)?)?;
    module.add_function(wrap_pyfunction!(encoding::eligible, module)?)?;
    module.add_function(wrap_pyfunction!(equivalent_patterns, module)?)?;
    module.add_function(wrap_pyfunction!(named_patterns, module)?)?;
    module.add_function(wrap_pyfunction!(split, module)?)?;
    module.add_function(wrap_pyfunction!(training::continue_bpe, module)?)?;
    module.add_function(wrap_pyfunction!(vocabulary::read_hf_model, module)?)?;
    module.add_function(wrap_pyfunction!(vocabulary::read_merges, module)?)?;
    module.add_function(wrap_pyfunction!(vocabulary::spell, module)?)?;
    module.add_function(wrap_pyfunction!(vocabulary::write_merges, module)?)?;
    module.add_function(wrap_pyfunction!(training::sum_counts, module)?)?;
    module.add_function(wrap_pyfunction!(training::train_bpe, module)?)?;
    Ok(())
}
