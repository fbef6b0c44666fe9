//! The encoder.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::arrays::{self, Array};
use super::calls::{brief, core, detached, user_error, SHORT_TEXT};
use super::preparation::{core_of, Preparation};
use super::text::utf8;
use super::{texts::Texts, vocabulary::table};
use crate::encode::definition::{self, Definition};
use crate::encode::rules::{recover_merges, superword_rank};
use crate::encode::{encoder, preparation::LocatedTokens};
use crate::files::shards::TokenStream;
use crate::pretokenize::scanner::Scanner;
use crate::text::documents;
use crate::vocabulary::MergeRule;

type Encoded<'py> = (Array<'py, u32>, Array<'py, i64>);
type Located<'py> = (Array<'py, u32>, Array<'py, i64>, Array<'py, i64>, Array<'py, i64>);
type Streamed<'py> = (Array<'py, u32>, Array<'py, i64>, Array<'py, i64>, Option<usize>);

#[pyclass(frozen, module = "tokenizer._native")]
pub struct Encoder {
    pub core: encoder::Encoder,
}

#[pymethods]
impl Encoder {
    /// `tokens`: bytes by id. `merges`: (left, right, new) ids by rank; the first `phase1` belong to phase 1. `whole`:
    /// ids of tokens that replace a whole piece of the pattern without merging. `eligible`: for two-pass tokenizers, a
    /// regex; only whole pretokens of one token that it matches take part in phase 2.
    #[new]
    #[pyo3(signature = (tokens, byte_ids, merges, *, phase1, pattern, fence, two_pass, whole, eligible=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        tokens: &Bound<'_, PyList>,
        byte_ids: [u32; 256],
        merges: PyReadonlyArray1<u32>,
        phase1: usize,
        pattern: &str,
        fence: Option<&str>,
        two_pass: bool,
        whole: PyReadonlyArray1<u32>,
        eligible: Option<&str>,
    ) -> PyResult<Self> {
        let table = table(tokens)?;
        let n = table.len();
        let whole = arrays::to_vec(&whole)?;
        let merges: Vec<MergeRule> = arrays::to_vec(&merges)?
            .chunks_exact(3)
            .map(|ids| MergeRule { left: ids[0], right: ids[1], new: ids[2] })
            .collect();
        let out_of_range = |id: u32| id as usize >= n;
        if byte_ids.iter().any(|&id| out_of_range(id))
            || merges.iter().any(|m| out_of_range(m.left) || out_of_range(m.right) || out_of_range(m.new))
            || whole.iter().any(|&id| out_of_range(id))
            || phase1 > merges.len()
        {
            return Err(user_error(format!("ids of bytes and merges must be below the {n} tokens")));
        }
        let scanner = |regex: &str| Scanner::new(regex).map_err(user_error);
        let mut definition = Definition {
            eligible: eligible.map(|regex| definition::eligible(regex, &table)).transpose().map_err(user_error)?,
            tokens: table,
            byte_ids,
            merges,
            phase1,
            scanner: scanner(if two_pass { pattern } else { fence.unwrap_or(pattern) })?,
            second_pass_fence: match fence {
                Some(fence) if two_pass => Some(scanner(fence)?),
                _ => None,
            },
        };
        if !two_pass && phase1 == definition.merges.len() {
            // Ids do not depend on the split of the levels. Imported superwords do not record where phase 2 begins.
            definition.phase1 = superword_rank(&definition);
        }
        let make = || {
            let core = encoder::Encoder::new(definition);
            Ok(if whole.is_empty() { core } else { core.ignoring_merges(&whole) })
        };
        Ok(Self { core: detached(tokens.py(), make)? })
    }

    /// (left, right) by rank, flat: the parts of which tiktoken's rule makes token `rank`, or 2**32 - 1 if it never
    /// does. `tokens`: bytes by rank, with all single bytes.
    #[staticmethod]
    fn recover_merges<'py>(py: Python<'py>, tokens: Vec<Vec<u8>>) -> PyResult<Array<'py, u32>> {
        let parts = detached(py, || Ok(recover_merges(&tokens)))?;
        let flat: Vec<u32> =
            parts.into_iter().flat_map(|parts| parts.map_or([u32::MAX; 2], |(left, right)| [left, right])).collect();
        Ok(flat.into_pyarray(py))
    }

    /// Ranks of the merges that can apply: no earlier merge of a repeated pair, and one derivation per token.
    fn live_merges<'py>(&self, py: Python<'py>) -> PyResult<Array<'py, u32>> {
        Ok(detached(py, || Ok(self.core.live_merges()))?.into_pyarray(py))
    }

    /// By id: number of tokens into which the merges turn the token's own bytes. For one-pass tokenizers.
    fn tokens_in_tokens<'py>(&self, py: Python<'py>) -> PyResult<Array<'py, u32>> {
        Ok(detached(py, || Ok(self.core.tokens_in_tokens()))?.into_pyarray(py))
    }

    /// Ids of one text.
    #[pyo3(signature = (text, preparation=None))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        preparation: Option<&Preparation>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.core.with_state(|state| {
            state.with_ids(|state, ids| {
                let preparation = core_of(preparation);
                brief(py, text.len(), || preparation.encode(&self.core, text.as_bytes(), state, ids))?;
                PyList::new(py, ids.as_slice())
            })
        })
    }

    #[pyo3(signature = (texts, threads, preparation=None))]
    fn encode_batch<'py>(
        &self,
        py: Python<'py>,
        texts: Texts<'py>,
        threads: usize,
        preparation: Option<&Preparation>,
    ) -> PyResult<Encoded<'py>> {
        if let Some(text) = texts.only() {
            let utf8 = utf8(0, &text)?;
            if utf8.len() < SHORT_TEXT {
                return self.core.with_state(|state| {
                    state.with_ids(|state, ids| {
                        core(|| core_of(preparation).encode(&self.core, utf8, state, ids))?;
                        Ok((PyArray1::from_slice(py, ids), PyArray1::from_slice(py, &[0, ids.len() as i64])))
                    })
                });
            }
        }
        let preparation = core_of(preparation);
        let (ids, offsets) = texts.with(py, |documents| self.core.encode_batch(documents, threads, preparation))?;
        Ok((ids.into_pyarray(py), offsets.into_pyarray(py)))
    }

    /// Documents in the format of a token file: each preceded by the id `mark`. Returns the ids, the end of each document,
    /// the bytes that each one's tokens spell (by `lengths`, indexed by id), and the first document with the mark among
    /// its own ids. Runs on the calling thread.
    #[pyo3(signature = (texts, mark, lengths, preparation=None))]
    fn encode_stream<'py>(
        &self,
        py: Python<'py>,
        texts: Texts<'py>,
        mark: u32,
        lengths: PyReadonlyArray1<u32>,
        preparation: Option<&Preparation>,
    ) -> PyResult<Streamed<'py>> {
        let (lengths, preparation) = (arrays::to_vec(&lengths)?, core_of(preparation));
        let encode = |documents: &[&[u8]]| {
            self.core.with_state(|state| {
                state.with_ids(|state, ids| {
                    let encode = |text: &[u8], ids: &mut Vec<u32>| preparation.encode(&self.core, text, state, ids);
                    TokenStream::of(documents, &lengths, mark, ids, encode)
                })
            })
        };
        let TokenStream { ids, ends, spelled, marked } = texts.with(py, encode)?;
        Ok((ids.into_pyarray(py), ends.into_pyarray(py), spelled.into_pyarray(py), marked))
    }

    /// Number of tokens of each text. Ids are not kept.
    #[pyo3(signature = (texts, threads, preparation=None))]
    fn count_tokens<'py>(
        &self,
        py: Python<'py>,
        texts: Texts<'py>,
        threads: usize,
        preparation: Option<&Preparation>,
    ) -> PyResult<Array<'py, i64>> {
        let preparation = core_of(preparation);
        let count = |documents: &[&[u8]]| {
            self.core.with_states(threads, |states| {
                documents::map(documents, states, documents.len(), |state, _, text, out| {
                    state.with_ids(|state, ids| {
                        preparation.encode(&self.core, text, state, ids)?;
                        out.push(ids.len() as i64);
                        Ok(())
                    })
                })
            })
        };
        Ok(texts.with(py, count)?.0.into_pyarray(py))
    }

    /// Ids of a text; the start and end of every token in bytes and in characters, both flat; and the number of each
    /// token's piece.
    #[pyo3(signature = (text, preparation=None))]
    fn encode_spans<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        preparation: Option<&Preparation>,
    ) -> PyResult<Located<'py>> {
        let preparation = core_of(preparation);
        let find = || self.core.with_state(|state| preparation.locate(&self.core, text.as_bytes(), state));
        let LocatedTokens { ids, bytes, characters, words } = detached(py, find)?;
        Ok((ids.into_pyarray(py), bytes.into_pyarray(py), characters.into_pyarray(py), words.into_pyarray(py)))
    }
}

/// Whether the regex matches in each token; false for tokens that are not valid UTF-8.
#[pyfunction]
pub fn eligible(tokens: &Bound<'_, PyList>, pattern: &str) -> PyResult<Vec<bool>> {
    definition::eligible(pattern, &table(tokens)?).map_err(user_error)
}
