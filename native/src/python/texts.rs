//! Documents from Python: the one way in for calls of any kind.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::arrays;
use super::calls::{brief, detached};
use super::text::{utf8, Batch};
use crate::text::documents::{check_utf8, slices};

/// Documents from Python.
#[derive(FromPyObject)]
pub enum Texts<'py> {
    Strings(Bound<'py, PyList>),
    Batch(PyRef<'py, Batch>),
    /// UTF-8 and offsets into it (Arrow's layout).
    Buffers(PyReadonlyArray1<'py, u8>, PyReadonlyArray1<'py, i64>),
}

impl<'py> Texts<'py> {
    /// The text of a list that has only one.
    pub fn only(&self) -> Option<Bound<'py, PyAny>> {
        let Self::Strings(list) = self else { return None };
        (list.len() == 1).then(|| list.get_item(0).ok()).flatten()
    }

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
                    let documents = slices(&data, &offsets, "buffer")?;
                    check_utf8(&documents)?;
                    work(&documents)
                })
            }
            Self::Strings(list) => {
                let texts: Vec<_> = list.iter().collect();
                let documents =
                    texts.iter().enumerate().map(|(i, text)| utf8(i, text)).collect::<PyResult<Vec<_>>>()?;
                brief(py, documents.iter().map(|text| text.len() + 1).sum(), || work(&documents))
            }
        }
    }
}
