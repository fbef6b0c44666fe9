//! Documents from Python.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{arrays, calls::detached, text::Batch};
use crate::text::documents::{Buffers, Documents, Strings};

/// Documents from Python.
#[derive(FromPyObject)]
pub enum Texts<'py> {
    Batch(PyRef<'py, Batch>),
    /// UTF-8 and offsets into it (Arrow's layout).
    Buffers(PyReadonlyArray1<'py, u8>, PyReadonlyArray1<'py, i64>),
    Strings(Vec<Bound<'py, PyString>>),
}

impl Texts<'_> {
    /// The documents, validated as UTF-8, without copying where possible.
    pub fn documents(&self, py: Python<'_>) -> PyResult<Box<dyn Documents + '_>> {
        Ok(match self {
            Self::Batch(batch) => Box::new(batch.0.as_ref()),
            Self::Buffers(data, offsets) => {
                // Offsets are small, and all bounds checks rely on them, so they are copied.
                let (data, offsets) = (arrays::slice(data)?, arrays::to_vec(offsets)?);
                Box::new(detached(py, || Buffers::new(data, offsets.into()))?)
            }
            // Lone surrogates are not valid UTF-8: Python raises UnicodeEncodeError with their position.
            Self::Strings(texts) => Box::new(Strings::new(
                texts.iter().map(|text| text.to_str().map(str::as_bytes)).collect::<PyResult<_>>()?,
            )),
        })
    }
}
