//! The Python binding: conversions, errors and the GIL; no algorithm.

mod encoding;
mod given;
mod lent;
mod text;
mod training;
mod vocabulary;

use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;

use crate::interrupt::{self, Reason, Stopped};
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

/// Runs work of the core without the GIL: the one way into it for work of any length. Ctrl-C, or what else a signal's
/// handler raises, stops the work; without memory it raises MemoryError; a panic, which is a bug, RuntimeError.
pub fn detached<R: Send>(py: Python<'_>, work: impl FnOnce() -> Result<R, String> + Send) -> PyResult<R> {
    result(py.detach(|| interrupt::run(Some(check_signals), work)))
}

/// The same with the GIL, for work that is short.
pub fn core<R>(work: impl FnOnce() -> Result<R, String>) -> PyResult<R> {
    result(interrupt::catch(work))
}

fn check_signals() -> Result<(), Reason> {
    // An interpreter that ends has no signals any more.
    Python::try_attach(|py| py.check_signals().map_err(|error| Box::new(error) as Reason)).unwrap_or(Ok(()))
}

fn result<R>(ended: Result<Result<R, String>, Stopped>) -> PyResult<R> {
    match ended {
        Ok(result) => result.map_err(user_error),
        Err(Stopped::Interrupted(reason)) => Err(match reason.map(|reason| reason.downcast::<PyErr>()) {
            Some(Ok(error)) => *error,
            _ => PyKeyboardInterrupt::new_err(()),
        }),
        Err(Stopped::OutOfMemory) => Err(PyMemoryError::new_err("there is not enough memory for this call")),
        Err(stopped) => Err(PyRuntimeError::new_err(stopped.to_string())),
    }
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
    core(|| {
        let mut pieces = Vec::new();
        Scanner::new(pattern)?.pieces(text.as_bytes(), |start, end| pieces.push(text[start..end].to_string()))?;
        Ok(pieces)
    })
}

/// How many pieces a pattern cuts all documents into: scanning alone, for benchmarks. One thread.
#[pyfunction]
fn count_pieces(py: Python<'_>, batch: &text::Batch, pattern: &str) -> PyResult<usize> {
    detached(py, || {
        let scanner = Scanner::new(pattern)?;
        let mut pieces = 0;
        for i in 0..batch.0.len() {
            interrupt::poll(batch.0.document(i).len());
            scanner.pieces(batch.0.document(i), |_, _| pieces += 1)?;
        }
        Ok(pieces)
    })
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
