//! Shared by both phases: tokens, progress and results.

use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::calls::user_error;
use crate::train::forbidden::Forbidden;
use crate::train::options::Veto;
use crate::train::report::{Merge, Report, Stop};

/// Reports the number of merges so far to Python. Records an exception and stops the loop.
pub struct Progress {
    callback: Option<Py<PyAny>>,
    pub error: Option<PyErr>,
}

impl Progress {
    pub fn new(callback: Option<Py<PyAny>>) -> Self {
        Self { callback, error: None }
    }

    /// Calls `callback(n)`. False if that, or a signal handler, raises an exception.
    pub fn report(&mut self, n: usize) -> bool {
        Python::attach(|py| {
            let called = self.callback.as_ref().map_or(Ok(()), |callback| callback.call1(py, (n,)).map(drop));
            called.and_then(|()| py.check_signals()).map_err(|error| self.error = Some(error)).is_ok()
        })
    }
}

pub fn merge_result<'py>(py: Python<'py>, report: Report, stop: Stop) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    let column = |value: fn(&Merge) -> u32| -> Vec<u32> { report.merges.iter().map(value).collect() };
    result.set_item("left", column(|merge| merge.left).into_pyarray(py))?;
    result.set_item("right", column(|merge| merge.right).into_pyarray(py))?;
    let counts: Vec<u64> = report.merges.iter().map(|merge| merge.count).collect();
    result.set_item("count", counts.into_pyarray(py))?;
    result.set_item("exhausted", stop == Stop::Exhausted)?;
    result.set_item("rejected", report.rejected)?;
    result.set_item("too_long", report.too_long)?;
    result.set_item("already_tokens", report.already_tokens)?;
    Ok(result)
}

pub fn veto(
    max_bytes: Option<usize>,
    max_words: Option<usize>,
    forbid: Vec<String>,
    special_tokens: Vec<String>,
) -> PyResult<Veto> {
    let forbid = if forbid.is_empty() { None } else { Some(Forbidden::new(&forbid).map_err(user_error)?) };
    Ok(Veto { max_bytes, max_words, forbid, reserved: special_tokens.into_iter().map(String::into_bytes).collect() })
}

/// Whether the regexes match in each token; fails if one of them is not a regex without look-around.
#[pyfunction]
pub fn are_forbidden(tokens: Vec<Vec<u8>>, forbid: Vec<String>) -> PyResult<Vec<bool>> {
    let forbidden = Forbidden::new(&forbid).map_err(user_error)?;
    Ok(tokens.iter().map(|token| forbidden.matches(token)).collect())
}
