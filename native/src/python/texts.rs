//! Documents from Python: the one way in for calls of any kind.

use pyo3::prelude::*;
use pyo3::types::PyList;

use super::calls::{brief, detached};
use super::text::{utf8, Batch};

/// Documents from Python.
#[derive(FromPyObject)]
pub enum Texts<'py> {
    Strings(Bound<'py, PyList>),
    Batch(PyRef<'py, Batch>),
}

impl<'py> Texts<'py> {
    /// The text of a list that has only one.
    pub fn only(&self) -> Option<Bound<'py, PyAny>> {
        let Self::Strings(list) = self else { return None };
        (list.len() == 1).then(|| list.get_item(0).ok()).flatten()
    }

    /// Runs work on the documents without the GIL.
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
            Self::Strings(list) => {
                let texts: Vec<_> = list.iter().collect();
                let documents =
                    texts.iter().enumerate().map(|(i, text)| utf8(i, text)).collect::<PyResult<Vec<_>>>()?;
                brief(py, documents.iter().map(|text| text.len() + 1).sum(), || work(&documents))
            }
        }
    }
}
