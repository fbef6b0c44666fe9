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
    /// `whole`: ids of the tokens that a whole piece of the pattern becomes without merging.
    /// `eligible`: with two passes, a regex; only whole pretokens of one token in which it is found take part in phase 2.
    #[new]
    #[pyo3(signature = (tokens, byte_ids, merges, *, phase1, pattern, fence, two_pass, whole, eligible=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        tokens: Vec<Vec<u8>>,
        byte_ids: [u32; 256],
        merges: PyReadonlyArray1<u32>,
        phase1: usize,
        pattern: &str,
        fence: Option<&str>,
        two_pass: bool,
        whole: PyReadonlyArray1<u32>,
        eligible: Option<&str>,
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
        if n > encoding::MOST_IDS {
            return Err(user_error(format!("{n} tokens are too many: ids are below {}", encoding::MOST_IDS)));
        }
        let out_of_range = |id: u32| id as usize >= n;
        if byte_ids.iter().any(|&id| out_of_range(id))
            || merges.iter().any(|m| out_of_range(m.left) || out_of_range(m.right) || out_of_range(m.new))
            || whole.as_slice()?.iter().any(|&id| out_of_range(id))
            || phase1 > merges.len()
        {
            return Err(user_error(format!("ids of bytes and merges must be below the {n} tokens")));
        }
        let scanner = |regex: &str| Scanner::new(regex).map_err(user_error);
        let mut definition = Definition {
            eligible: eligible.map(|regex| encoding::eligible(regex, &table)).transpose().map_err(user_error)?,
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
        if !two_pass && phase1 == definition.merges.len() {
            // Ids do not depend on where the levels part; imported superwords do not say where phase 2 began.
            definition.phase1 = encoding::superword_rank(&definition);
        }
        let encoder = encoding::Encoder::new(definition);
        let whole = whole.as_slice()?;
        Ok(Self(if whole.is_empty() { encoder } else { encoder.ignoring_merges(whole) }))
    }

    /// (left, right) by rank, flat, where tiktoken's rule makes token `rank` of those two; 2**32 - 1 where it makes
    /// it of none. `tokens`: bytes by rank, all single bytes among them.
    #[staticmethod]
    fn recover_merges<'py>(py: Python<'py>, tokens: Vec<Vec<u8>>) -> Bound<'py, PyArray1<u32>> {
        let parts = py.detach(|| encoding::recover_merges(&tokens));
        let flat: Vec<u32> =
            parts.into_iter().flat_map(|parts| parts.map_or([u32::MAX; 2], |(left, right)| [left, right])).collect();
        flat.into_pyarray(py)
    }

    /// Ranks of the merges that can apply: not an earlier one of a repeated pair, nor a token's other derivations.
    fn live_merges<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        py.detach(|| self.0.live_merges()).into_pyarray(py)
    }

    /// By id: how many tokens the merges make of the token's own bytes. For one-pass tokenizers.
    fn tokens_in_tokens<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        py.detach(|| self.0.tokens_in_tokens()).into_pyarray(py)
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

/// Whether the regex is found in each token; never in one that is no whole characters.
#[pyfunction]
pub fn eligible(tokens: Vec<Vec<u8>>, pattern: &str) -> PyResult<Vec<bool>> {
    let mut table = Tokens::default();
    tokens.iter().for_each(|token| {
        table.push(token);
    });
    encoding::eligible(pattern, &table).map_err(user_error)
}

/// The numbers of merges in a tokenizer's file, if they are triples just as Python's json writes them.
#[pyfunction]
pub fn triples<'py>(py: Python<'py>, text: &[u8]) -> Option<Bound<'py, PyArray1<u32>>> {
    encoding::triples(text).map(|numbers| numbers.into_pyarray(py))
}
