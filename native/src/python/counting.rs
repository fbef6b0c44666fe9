//! Pretoken counts.

use std::path::PathBuf;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::calls::{core, detached, user_error};
use super::{arrays, text::Batch};
use crate::count::counter::{Counter, Spill};
use crate::count::counts::Counts;
use crate::count::spill::{Arrays, Source};
use crate::pretokenize::scanner::Scanner;
use crate::text::unit::Unit;

type CountArrays<'py> = (Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u64>>);

fn count_arrays(py: Python<'_>, counts: Counts) -> CountArrays<'_> {
    (counts.data.into_pyarray(py), counts.offsets.into_pyarray(py), counts.counts.into_pyarray(py))
}

#[pyclass(module = "tokenizer._native")]
pub struct PretokenCounter(Option<Counter>);

#[pymethods]
impl PretokenCounter {
    #[new]
    #[pyo3(signature = (pattern, *, unit, special_tokens, threads, memory_bytes, spill_folder))]
    fn new(
        pattern: &str,
        unit: &str,
        special_tokens: Vec<String>,
        threads: usize,
        memory_bytes: Option<usize>,
        spill_folder: PathBuf,
    ) -> PyResult<Self> {
        let spill = memory_bytes.map(|memory| Spill { memory, folder: spill_folder });
        let make = || Counter::new(Scanner::new(pattern)?, Unit::parse(unit)?, &special_tokens, spill, threads);
        core(make).map(|counter| Self(Some(counter)))
    }

    /// Counts a batch. If that fails or is interrupted, the counter is closed.
    fn add(&mut self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        let mut counter = self.0.take().ok_or_else(finished)?;
        self.0 = Some(detached(py, || counter.add(&batch.0).map(|()| counter))?);
        Ok(())
    }

    /// (concatenated bytes, offsets, counts), sorted by bytes. Finishes the counter.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<CountArrays<'py>> {
        let counter = self.0.take().ok_or_else(finished)?;
        let counts = detached(py, || counter.finish())?;
        Ok(count_arrays(py, counts))
    }

    /// Aborts: deletes spilled files.
    fn close(&mut self) {
        self.0 = None;
    }
}

fn finished() -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err("the counter is finished")
}

type WeightedCounts<'py> = (PyReadonlyArray1<'py, u8>, PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, u64>, u64);

/// Sums counts, each multiplied by its weight: (bytes, offsets, counts, weight).
#[pyfunction]
pub fn sum_counts<'py>(py: Python<'py>, parts: Vec<WeightedCounts<'py>>) -> PyResult<CountArrays<'py>> {
    let sources = parts
        .iter()
        .map(|(data, offsets, counts, weight)| {
            let (data, offsets, counts) = (arrays::slice(data)?, arrays::slice(offsets)?, arrays::slice(counts)?);
            check_counts(&data, &offsets, &counts)?;
            Ok(Source::Arrays(Arrays { data, offsets, counts, weight: *weight, next: 0 }))
        })
        .collect::<PyResult<Vec<_>>>()?;
    let counts = detached(py, || Counts::sum(sources))?;
    Ok(count_arrays(py, counts))
}

/// Checks that the pretokens are concatenated in `data`.
pub fn check_counts<T>(data: &[T], offsets: &[i64], counts: &[u64]) -> PyResult<()> {
    if offsets.len() != counts.len() + 1
        || offsets.first() != Some(&0)
        || offsets.last() != Some(&(data.len() as i64))
        || offsets.windows(2).any(|bounds| bounds[0] > bounds[1])
    {
        return Err(user_error("the pretokens, their offsets and their counts do not fit together".into()));
    }
    Ok(())
}
