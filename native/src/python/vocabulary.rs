//! The bytes of tokens: decoding, spelling merges, merges in files.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::arrays;
use super::calls::{core, detached};
use crate::files::{hf_model, merges};
use crate::runtime::{interrupt::poll, memory};
use crate::text::documents::BYTES_PER_TOKEN;
use crate::vocabulary::Tokens;

/// Byte strings by id.
pub fn table(tokens: &Bound<'_, PyList>) -> PyResult<Tokens> {
    let mut table = Tokens::default();
    for token in tokens.iter() {
        table.push(token.cast::<PyBytes>()?.as_bytes());
    }
    Ok(table)
}

/// Copies bytes. Unlike `PyBytes::new`, it does not panic if memory is missing.
fn bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: the bytes are readable; the call returns a new object, or null with an exception set.
    unsafe {
        let copy = ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t);
        Ok(Bound::from_owned_ptr_or_err(py, copy)?.cast_into_unchecked())
    }
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

    fn decode<'py>(&self, py: Python<'py>, ids: PyReadonlyArray1<u32>) -> PyResult<Bound<'py, PyBytes>> {
        let ids = arrays::slice(&ids)?;
        let text = detached(py, || self.spell(&ids))?;
        bytes(py, &text)
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
                (memory::with_capacity(BYTES_PER_TOKEN * ids.len()), memory::with_capacity(offsets.len()));
            ends.push(0);
            for (i, bounds) in offsets.windows(2).enumerate() {
                let ids = usize::try_from(bounds[0])
                    .ok()
                    .zip(usize::try_from(bounds[1]).ok())
                    .and_then(|(start, end)| ids.get(start..end))
                    .ok_or_else(|| format!("offsets of document {i} do not fit the {} ids", ids.len()))?;
                self.append(ids, &mut text)?;
                ends.push(text.len() as i64);
            }
            Ok((text, ends))
        })?;
        Ok((bytes(py, &text)?, ends.into_pyarray(py)))
    }
}

impl Decoder {
    fn spell(&self, ids: &[u32]) -> Result<Vec<u8>, String> {
        let mut text = memory::with_capacity(BYTES_PER_TOKEN * ids.len());
        self.append(ids, &mut text)?;
        Ok(text)
    }

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
                memory::reserve(text, token.len());
                text.extend_from_slice(token);
            }
        }
        Ok(())
    }
}

fn triples(merges: &PyReadonlyArray1<u32>) -> PyResult<Vec<[u32; 3]>> {
    Ok(arrays::to_vec(merges)?.chunks_exact(3).map(|ids| [ids[0], ids[1], ids[2]]).collect())
}

/// `given` with the products of merges added. None if a merge cannot be spelled, if two tokens share an id or their
/// bytes, if one has more than `longest` bytes, or if the products have more than `most` bytes in total.
#[pyfunction]
pub fn spell<'py>(
    given: &Bound<'py, PyList>,
    merges: PyReadonlyArray1<u32>,
    longest: usize,
    most: usize,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let py = given.py();
    let (table, merges) = (table(given)?, triples(&merges)?);
    let Some(made) = detached(py, || Ok(merges::spell(&table, &merges, longest, most)))? else { return Ok(None) };
    let vocabulary = given.get_slice(0, given.len());
    for (id, token) in made {
        vocabulary.set_item(id as usize, PyBytes::new(py, &token))?;
    }
    Ok(Some(vocabulary))
}

type ReadModel<'py> =
    (String, usize, Vec<(String, u32)>, Vec<i64>, Bound<'py, PyArray1<u32>>, bool, Vec<(Bound<'py, PyBytes>, u32)>);

/// Reads a tokenizer.json (see `hf_model`). None if the Python reader has to report what is wrong.
#[pyfunction]
pub fn read_hf_model<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Option<ReadModel<'py>>> {
    let Some(found) = detached(py, || Ok(hf_model::read(text)))? else { return Ok(None) };
    let unmerged = found.unmerged.iter().map(|(token, id)| (PyBytes::new(py, token), *id)).collect();
    let merges = found.merges.into_pyarray(py);
    Ok(Some((found.rest, found.n_tokens, found.added, found.byte_ids, merges, found.as_strings, unmerged)))
}

/// Formats flat merges like `json.dumps` of a list of lists of three.
#[pyfunction]
pub fn write_merges(merges: PyReadonlyArray1<u32>) -> PyResult<String> {
    let merges = triples(&merges)?;
    core(|| Ok(merges::write_merges(&merges)))
}

/// Parses the merges at a position of a JSON text. Returns them flat, with the position of their end; None if their
/// format differs.
#[pyfunction]
pub fn read_merges<'py>(
    py: Python<'py>,
    text: &[u8],
    start: usize,
) -> PyResult<Option<(Bound<'py, PyArray1<u32>>, usize)>> {
    let found = detached(py, || Ok(text.get(start..).and_then(merges::read_merges)))?;
    Ok(found.map(|(merges, length)| (merges.into_pyarray(py), start + length)))
}
