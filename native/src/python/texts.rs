//! Documents as Python has them.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{arrays, calls::detached, text::Batch};
use crate::text::documents::{Buffers, Documents, Strings};

/// Documents as Python has them.
#[derive(FromPyObject)]
pub enum Texts<'py> {
    Batch(PyRef<'py, Batch>),
    /// UTF-8 and offsets into it, Arrow's layout.
    Buffers(PyReadonlyArray1<'py, u8>, PyReadonlyArray1<'py, i64>),
    Strings(Vec<Bound<'py, PyString>>),
}

impl Texts<'_> {
    /// The documents, which must be UTF-8, where they lie.
    pub fn documents(&self, py: Python<'_>) -> PyResult<Box<dyn Documents + '_>> {
        Ok(match self {
            Self::Batch(batch) => Box::new(batch.0.as_ref()),
            Self::Buffers(data, offsets) => {
                // Offsets are small, and everything else rests on them.
                let (data, offsets) = (arrays::slice(data)?, arrays::to_vec(offsets)?);
                Box::new(detached(py, || Buffers::new(data, offsets.into()))?)
            }
            // Lone surrogates cannot be UTF-8: Python raises UnicodeEncodeError with their place.
            Self::Strings(texts) => Box::new(Strings::new(
                texts.iter().map(|text| text.to_str().map(str::as_bytes)).collect::<PyResult<_>>()?,
            )),
        })
    }
}
