//! The encoder.

use std::sync::OnceLock;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use super::text::Batch;
use super::user_error;
use super::vocabulary::table;
use crate::documents::{self, Buffers, Documents, Strings};
use crate::dropout::{Coins, Dropout};
use crate::encoding::{self, Definition, MergeRule};
use crate::offsets;
use crate::patterns::Scanner;
use crate::special;
use crate::streaming;

type Array<'py, T> = Bound<'py, PyArray1<T>>;
/// Bytes of a text that is encoded without giving up the GIL: some microseconds.
const SHORT_TEXT: usize = 1 << 10;

/// Most ids for which room is kept from one text to the next.
const KEPT_IDS: usize = 1 << 20;

type Encoded<'py> = (Array<'py, u32>, Array<'py, i64>);

#[pyclass(frozen, module = "tokenizer._native")]
pub struct Encoder {
    core: encoding::Encoder,
    dropout: OnceLock<Dropout>,
}

/// Documents as Python has them.
#[derive(FromPyObject)]
enum Texts<'py> {
    Batch(PyRef<'py, Batch>),
    /// UTF-8 and offsets into it, Arrow's layout.
    Buffers(PyReadonlyArray1<'py, u8>, PyReadonlyArray1<'py, i64>),
    Strings(Vec<Bound<'py, PyString>>),
}

impl Texts<'_> {
    /// The documents, which must be UTF-8, where they lie.
    fn documents(&self, py: Python<'_>) -> PyResult<Box<dyn Documents + '_>> {
        Ok(match self {
            Self::Batch(batch) => Box::new(batch.0.as_ref()),
            Self::Buffers(data, offsets) => {
                let (data, offsets) = (data.as_slice()?, offsets.as_slice()?);
                Box::new(py.detach(|| Buffers::new(data, offsets)).map_err(user_error)?)
            }
            // Lone surrogates cannot be UTF-8: Python raises UnicodeEncodeError with their place.
            Self::Strings(texts) => Box::new(Strings::new(
                texts.iter().map(|text| text.to_str().map(str::as_bytes)).collect::<PyResult<_>>()?,
            )),
        })
    }
}

#[pymethods]
impl Encoder {
    /// `tokens`: bytes by id. `merges`: (left, right, new) ids by rank, the first `phase1` of them phase 1's.
    /// `whole`: ids of the tokens that a whole piece of the pattern becomes without merging.
    /// `eligible`: with two passes, a regex; only whole pretokens of one token in which it is found take part in phase 2.
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
        let core = encoding::Encoder::new(definition);
        let whole = whole.as_slice()?;
        Ok(Self { core: if whole.is_empty() { core } else { core.ignoring_merges(whole) }, dropout: OnceLock::new() })
    }

    /// (left, right) by rank, flat, where tiktoken's rule makes token `rank` of those two; 2**32 - 1 where it makes
    /// it of none. `tokens`: bytes by rank, all single bytes among them.
    #[staticmethod]
    fn recover_merges<'py>(py: Python<'py>, tokens: Vec<Vec<u8>>) -> Array<'py, u32> {
        let parts = py.detach(|| encoding::recover_merges(&tokens));
        let flat: Vec<u32> =
            parts.into_iter().flat_map(|parts| parts.map_or([u32::MAX; 2], |(left, right)| [left, right])).collect();
        flat.into_pyarray(py)
    }

    /// Ranks of the merges that can apply: not an earlier one of a repeated pair, nor a token's other derivations.
    fn live_merges<'py>(&self, py: Python<'py>) -> Array<'py, u32> {
        py.detach(|| self.core.live_merges()).into_pyarray(py)
    }

    /// By id: how many tokens the merges make of the token's own bytes. For one-pass tokenizers.
    fn tokens_in_tokens<'py>(&self, py: Python<'py>) -> Array<'py, u32> {
        py.detach(|| self.core.tokens_in_tokens()).into_pyarray(py)
    }

    /// Whether superword merges share one level with the others because two levels could differ from it.
    #[getter]
    fn plain(&self) -> bool {
        self.core.plain
    }

    /// The rank of the first merge of the second level: phase 2's, or, where the tokenizer does not say so, that from
    /// which on merges make superwords.
    #[getter]
    fn phase1(&self) -> usize {
        self.core.definition().phase1
    }

    /// Ids of one text; the strings of `special` in it are special tokens.
    #[pyo3(signature = (text, special=None))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        special: Option<&SpecialStrings>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.with_ids(py, text, special, |ids| PyList::new(py, ids))?
    }

    /// The same as an array.
    #[pyo3(signature = (text, special=None))]
    fn encode_array<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        special: Option<&SpecialStrings>,
    ) -> PyResult<Array<'py, u32>> {
        self.with_ids(py, text, special, |ids| PyArray1::from_slice(py, ids))
    }

    #[pyo3(signature = (texts, threads, special=None))]
    fn encode_batch<'py>(
        &self,
        py: Python<'py>,
        texts: Texts<'py>,
        threads: usize,
        special: Option<&SpecialStrings>,
    ) -> PyResult<Encoded<'py>> {
        let documents = texts.documents(py)?;
        let documents = &*documents;
        let encode = || match special {
            None => self.core.encode_batch(documents, threads),
            Some(SpecialStrings(special)) => self.core.with_states(threads, |states| {
                documents::map(documents, states, |state, _, text, out| special.encode(&self.core, text, state, out))
            }),
        };
        let (ids, offsets) = py.detach(encode).map_err(user_error)?;
        Ok((ids.into_pyarray(py), offsets.into_pyarray(py)))
    }

    /// Tokens of each text, special strings as ordinary text; ids are kept for no longer than one document.
    fn count_tokens<'py>(&self, py: Python<'py>, texts: Texts<'py>, threads: usize) -> PyResult<Array<'py, i64>> {
        let documents = texts.documents(py)?;
        let documents = &*documents;
        let count = || {
            self.core.with_states(threads, |states| {
                let mut states: Vec<_> = states.iter_mut().map(|state| (state, Vec::new())).collect();
                documents::map(documents, &mut states, |(state, ids), _, text, out| {
                    ids.clear();
                    self.core.encode(text, state, ids)?;
                    out.push(ids.len() as i64);
                    Ok(())
                })
            })
        };
        Ok(py.detach(count).map_err(user_error)?.0.into_pyarray(py))
    }

    /// Start and end of every token in bytes, and in characters, both flat.
    fn spans<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        ids: PyReadonlyArray1<u32>,
    ) -> PyResult<(Array<'py, i64>, Array<'py, i64>)> {
        let ids = ids.as_slice()?;
        let tokens = self.core.tokens();
        if ids.iter().any(|&id| id as usize >= tokens.len()) {
            return Err(user_error("an id is not in the vocabulary".to_string()));
        }
        let (bytes, characters) =
            py.detach(|| offsets::spans(text.as_bytes(), ids, |id| tokens.get(id).len())).map_err(user_error)?;
        Ok((bytes.into_pyarray(py), characters.into_pyarray(py)))
    }

    /// Ids of each text with merges dropped at random: document i by the coins of (seed, i).
    fn encode_dropout<'py>(
        &self,
        py: Python<'py>,
        texts: Texts<'py>,
        p: f64,
        seed: u64,
        threads: usize,
    ) -> PyResult<Encoded<'py>> {
        let documents = texts.documents(py)?;
        let documents = &*documents;
        let encode = || {
            let definition = self.core.definition();
            let dropout = self.dropout.get_or_init(|| Dropout::new(definition));
            let mut states: Vec<_> = std::iter::repeat_with(Default::default).take(threads.max(1)).collect();
            documents::map(documents, &mut states, |scratch, i, text, out| {
                dropout.encode(definition, text, &mut Coins::new(p, seed, i as u64), scratch, out)
            })
        };
        let (ids, offsets) = py.detach(encode).map_err(user_error)?;
        Ok((ids.into_pyarray(py), offsets.into_pyarray(py)))
    }
}

impl Encoder {
    /// Passes the ids of one text on, out of room that is there already.
    fn with_ids<R>(
        &self,
        py: Python<'_>,
        text: &str,
        special: Option<&SpecialStrings>,
        pass: impl FnOnce(&[u32]) -> R,
    ) -> PyResult<R> {
        self.core.with_state(|state| {
            let mut ids = std::mem::take(&mut state.ids);
            ids.clear();
            let mut encode = || match special {
                None => self.core.encode(text.as_bytes(), state, &mut ids),
                Some(SpecialStrings(special)) => special.encode(&self.core, text.as_bytes(), state, &mut ids),
            };
            // Other threads can wait for a short text rather than this one for the GIL.
            let encoded = if text.len() < SHORT_TEXT { encode() } else { py.detach(encode) };
            let passed = encoded.map(|()| pass(&ids)).map_err(user_error);
            if ids.capacity() <= KEPT_IDS {
                state.ids = ids;
            }
            passed
        })
    }
}

/// Strings that are looked for in text, and the ids that they have where they are special tokens.
#[pyclass(frozen, module = "tokenizer._native")]
pub struct SpecialStrings(special::Specials);

#[pymethods]
impl SpecialStrings {
    #[new]
    fn new(strings: Vec<String>, ids: Vec<u32>) -> PyResult<Self> {
        special::Specials::new(&strings, ids).map(Self).map_err(user_error)
    }

    /// Which string is the first in the text, by its place in the list; the longest where several start there.
    fn find(&self, py: Python<'_>, text: &str) -> Option<usize> {
        py.detach(|| self.0.find(text.as_bytes()))
    }

    /// The first document that holds one of the strings, and which.
    fn find_in_batch(&self, py: Python<'_>, texts: Texts<'_>, threads: usize) -> PyResult<Option<(usize, usize)>> {
        let documents = texts.documents(py)?;
        let documents = &*documents;
        let find = || {
            documents::map(documents, &mut vec![(); threads.max(1)], |(), i, text, out| {
                out.extend(self.0.find(text).map(|string| (i, string)));
                Ok(())
            })
        };
        Ok(py.detach(find).map_err(user_error)?.0.first().copied())
    }
}

/// The encoding of a text that comes in parts.
#[pyclass(module = "tokenizer._native")]
pub struct EncodeStream {
    encoder: Py<Encoder>,
    stream: streaming::Stream,
    limit: usize,
}

#[pymethods]
impl EncodeStream {
    #[new]
    fn new(encoder: Py<Encoder>, limit: usize) -> Self {
        Self { encoder, stream: streaming::Stream::default(), limit }
    }

    /// Ids that no later part can change.
    fn push<'py>(&mut self, py: Python<'py>, part: &str) -> PyResult<Array<'py, u32>> {
        let (encoder, stream, limit) = (self.encoder.get(), &mut self.stream, self.limit);
        let mut ids = Vec::new();
        py.detach(|| {
            encoder.core.with_state(|state| {
                stream.push(part.as_bytes(), &encoder.core, encoder.core.cuts(), limit, state, &mut ids)
            })
        })
        .map_err(user_error)?;
        Ok(ids.into_pyarray(py))
    }

    /// Ids of what is left.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Array<'py, u32>> {
        let (encoder, stream) = (self.encoder.get(), &mut self.stream);
        let mut ids = Vec::new();
        py.detach(|| encoder.core.with_state(|state| stream.finish(&encoder.core, state, &mut ids)))
            .map_err(user_error)?;
        Ok(ids.into_pyarray(py))
    }
}

/// Whether the regex is found in each token; never in one that is no whole characters.
#[pyfunction]
pub fn eligible(tokens: &Bound<'_, PyList>, pattern: &str) -> PyResult<Vec<bool>> {
    encoding::eligible(pattern, &table(tokens)?).map_err(user_error)
}
