//! The encoder.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::text::Batch;
use super::user_error;
use crate::encoding::{self, Definition, MergeRule};
use crate::merging::Tokens;
use crate::patterns::Scanner;

type Encoded<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<i64>>);

#[pyclass(frozen, module = "tokenizer._native")]
pub struct Encoder(encoding::Encoder);

#[pymethods]
impl Encoder {
    /// `tokens`: bytes by id. `merges`: (left, right, new) ids by rank, the first `phase1` of them phase 1's.
    #[new]
    #[pyo3(signature = (tokens, byte_ids, merges, *, phase1, pattern, fence, two_pass))]
    fn new(
        tokens: Vec<Vec<u8>>,
        byte_ids: [u32; 256],
        merges: PyReadonlyArray1<u32>,
        phase1: usize,
        pattern: &str,
        fence: Option<&str>,
        two_pass: bool,
    ) -> PyResult<Self> {
        let n = tokens.len();
        let mut table = Tokens::default();
        tokens.iter().for_each(|token| {
            table.push(token);
        });
        let merges: Vec<MergeRule> = merges
            .as_slice()?
            .chunks_exact(3)
            .map(|ids| MergeRule { left: ids[0], right: ids[1], new: ids[2] })
            .collect();
        let out_of_range = |id: u32| id as usize >= n;
        if byte_ids.iter().any(|&id| out_of_range(id))
            || merges.iter().any(|m| out_of_range(m.left) || out_of_range(m.right) || out_of_range(m.new))
            || phase1 > merges.len()
        {
            return Err(user_error(format!("ids of bytes and merges must be below the {n} tokens")));
        }
        let scanner = |regex: &str| Scanner::new(regex).map_err(user_error);
        let definition = Definition {
            tokens: table,
            byte_ids,
            merges,
            phase1,
            scanner: scanner(if two_pass { pattern } else { fence.unwrap_or(pattern) })?,
            fence: match fence {
                Some(fence) if two_pass => Some(scanner(fence)?),
                _ => None,
            },
        };
        Ok(Self(encoding::Encoder::new(definition)))
    }

    /// Whether superword merges share one level with the others because two levels could differ from it.
    #[getter]
    fn plain(&self) -> bool {
        self.0.plain
    }

    fn encode(&self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        py.detach(|| {
            let mut ids = Vec::new();
            self.0.with_states(1, |states| self.0.encode(text.as_bytes(), &mut states[0], &mut ids))?;
            Ok(ids)
        })
        .map_err(user_error)
    }

    fn encode_batch<'py>(&self, py: Python<'py>, batch: &Batch, threads: usize) -> PyResult<Encoded<'py>> {
        let (ids, offsets) = py.detach(|| self.0.encode_batch(&batch.0, threads)).map_err(user_error)?;
        Ok((ids.into_pyarray(py), offsets.into_pyarray(py)))
    }
}
