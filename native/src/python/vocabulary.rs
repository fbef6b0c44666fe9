//! The bytes of tokens: decoding.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::arrays;
use super::calls::detached;
use crate::runtime::interrupt::poll;
use crate::text::documents::{slices, BYTES_PER_TOKEN};
use crate::vocabulary::Tokens;

/// Byte strings by id.
pub fn table(tokens: &Bound<'_, PyList>) -> PyResult<Tokens> {
    let mut table = Tokens::default();
    for token in tokens.iter() {
        table.push(token.cast::<PyBytes>()?.as_bytes());
    }
    Ok(table)
}

/// Ids between two calls of `poll`.
const BLOCK: usize = 1 << 8;

/// Decodes ids.
#[pyclass(frozen, module = "tokenizer._native")]
pub struct Decoder(Tokens);

#[pymethods]
impl Decoder {
    /// `tokens`: bytes by id, empty for unused ids.
    #[new]
    fn new(tokens: &Bound<'_, PyList>) -> PyResult<Self> {
        table(tokens).map(Self)
    }

    /// The bytes of all documents of flat ids, and their offsets.
    fn decode_batch<'py>(
        &self,
        py: Python<'py>,
        ids: PyReadonlyArray1<u32>,
        offsets: PyReadonlyArray1<i64>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyArray1<i64>>)> {
        let (ids, offsets) = (arrays::slice(&ids)?, arrays::to_vec(&offsets)?);
        let (text, ends) = detached(py, || {
            let (mut text, mut ends) =
                (Vec::with_capacity(BYTES_PER_TOKEN * ids.len()), Vec::with_capacity(offsets.len()));
            ends.push(0);
            for ids in slices(&ids, &offsets, &format!("{} ids", ids.len()))? {
                self.append(ids, &mut text)?;
                ends.push(text.len() as i64);
            }
            Ok((text, ends))
        })?;
        Ok((PyBytes::new(py, &text), ends.into_pyarray(py)))
    }
}

impl Decoder {
    fn append(&self, ids: &[u32], text: &mut Vec<u8>) -> Result<(), String> {
        let n = self.0.len();
        for block in ids.chunks(BLOCK) {
            poll(BLOCK * BYTES_PER_TOKEN);
            for &id in block {
                if id as usize >= n {
                    return Err(format!("the id {id} is not in the vocabulary: ids are below the vocabulary size {n}"));
                }
                let token = self.0.get(id);
                if token.is_empty() {
                    return Err(format!("the id {id} is in a gap of the vocabulary: no token has it"));
                }
                text.extend_from_slice(token);
            }
        }
        Ok(())
    }
}
