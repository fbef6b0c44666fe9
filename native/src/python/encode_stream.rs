//! Incremental encoding.

use numpy::IntoPyArray;
use pyo3::prelude::*;

use super::preparation::{core_of, Preparation};
use super::{arrays::Array, calls::detached, encoder::Encoder};
use crate::encode::stream::text::{PreparedStream, Target};

/// Incremental encoding of a text.
#[pyclass(module = "tokenizer._native")]
pub struct EncodeStream {
    encoder: Py<Encoder>,
    preparation: Option<Py<Preparation>>,
    stream: PreparedStream,
    limit: usize,
}

#[pymethods]
impl EncodeStream {
    #[new]
    #[pyo3(signature = (encoder, limit, preparation=None))]
    fn new(encoder: Py<Encoder>, limit: usize, preparation: Option<Py<Preparation>>) -> Self {
        Self { encoder, preparation, stream: PreparedStream::default(), limit }
    }

    /// Ids that no later part can change; with `last`, all remaining ids.
    #[pyo3(signature = (part, last=false))]
    fn push<'py>(&mut self, py: Python<'py>, part: &str, last: bool) -> PyResult<Array<'py, u32>> {
        let (encoder, stream, limit) = (self.encoder.get(), &mut self.stream, self.limit);
        let preparation = core_of(self.preparation.as_ref().map(Py::get));
        let mut ids = Vec::new();
        detached(py, || {
            encoder.core.with_state(|state| {
                let mut target = Target { preparation, encoder: &encoder.core, limit, state, out: &mut ids };
                stream.push(part.as_bytes(), last, &mut target)
            })
        })?;
        Ok(ids.into_pyarray(py))
    }
}
