//! Documents from Python: the one way in for calls of any kind.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{arrays, calls::detached, text::Batch};
use crate::text::documents::{check_utf8, slices};

/// Documents from Python.
#[derive(FromPyObject)]
pub enum Texts<'py> {
    /// First, because calls with one short text should not wait for the others' errors.
    Strings(Vec<Bound<'py, PyString>>),
    Batch(PyRef<'py, Batch>),
    /// UTF-8 and offsets into it (Arrow's layout).
    Buffers(PyReadonlyArray1<'py, u8>, PyReadonlyArray1<'py, i64>),
}

impl Texts<'_> {
    /// Runs work on the documents without the GIL, validated as UTF-8 and without copying where possible.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&[&[u8]]) -> Result<R, String> + Send,
    ) -> PyResult<R> {
        match self {
            Self::Batch(batch) => {
                let batch = &*batch.0;
                detached(py, || work(&batch.documents()))
            }
            Self::Buffers(data, offsets) => {
                // Offsets are small, and all bounds checks rely on them, so they are copied.
                let (data, offsets) = (arrays::slice(data)?, arrays::to_vec(offsets)?);
                detached(py, || {
                    let documents = slices(&data, &offsets)?;
                    check_utf8(&documents)?;
                    work(&documents)
                })
            }
            // Lone surrogates are not valid UTF-8: Python raises UnicodeEncodeError with their position.
            Self::Strings(texts) => {
                let texts = texts.iter().map(|text| text.to_str().map(str::as_bytes)).collect::<PyResult<Vec<_>>>()?;
                detached(py, || work(&texts))
            }
        }
    }
}
