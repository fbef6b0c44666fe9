//! The encoder.

use numpy::{Element, IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use super::lent::lent;
use super::text::Batch;
use super::vocabulary::table;
use super::{core, detached, given, user_error};
use crate::documents::{self, Buffers, Documents, Strings};
use crate::dropout::{Coins, Dropout};
use crate::encoding::{self, Definition, MergeRule};
use crate::normalizing::Form;
use crate::offsets;
use crate::patterns::Scanner;
use crate::preparing;
use crate::shards::{Stream, Width};
use crate::special;
use crate::unlocked::Once;

type Array<'py, T> = Bound<'py, PyArray1<T>>;
/// Bytes of a text that is encoded without giving up the GIL: some microseconds.
const SHORT_TEXT: usize = 1 << 10;

/// Most ids for which room is kept from one text to the next.
const KEPT_IDS: usize = 1 << 20;

type Encoded<'py> = (Array<'py, u32>, Array<'py, i64>);
type Streamed<'py> = (Bound<'py, PyAny>, Array<'py, i64>, Array<'py, i64>, Option<usize>);

#[pyclass(frozen, module = "tokenizer._native")]
pub struct Encoder {
    core: encoding::Encoder,
    dropout: Once<Dropout>,
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
                // Offsets are small, and everything else rests on them.
                let (data, offsets) = (given::values(data)?, given::owned(offsets)?);
                Box::new(detached(py, || Buffers::new(data, offsets.into()))?)
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
        let whole = given::owned(&whole)?;
        let merges: Vec<MergeRule> = given::owned(&merges)?
            .chunks_exact(3)
            .map(|ids| MergeRule { left: ids[0], right: ids[1], new: ids[2] })
            .collect();
        if n > encoding::MOST_IDS {
            return Err(user_error(format!("{n} tokens are too many: ids are below {}", encoding::MOST_IDS)));
        }
        if merges.len() > encoding::MOST_MERGES {
            let most = encoding::MOST_MERGES;
            return Err(user_error(format!("{} merges are too many: at most {most}", merges.len())));
        }
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
        let make = || {
            let core = encoding::Encoder::new(definition);
            Ok(if whole.is_empty() { core } else { core.ignoring_merges(&whole) })
        };
        Ok(Self { core: detached(tokens.py(), make)?, dropout: Once::new() })
    }

    /// (left, right) by rank, flat, where tiktoken's rule makes token `rank` of those two; 2**32 - 1 where it makes
    /// it of none. `tokens`: bytes by rank, all single bytes among them.
    #[staticmethod]
    fn recover_merges<'py>(py: Python<'py>, tokens: Vec<Vec<u8>>) -> PyResult<Array<'py, u32>> {
        let parts = detached(py, || Ok(encoding::recover_merges(&tokens)))?;
        let flat: Vec<u32> =
            parts.into_iter().flat_map(|parts| parts.map_or([u32::MAX; 2], |(left, right)| [left, right])).collect();
        Ok(flat.into_pyarray(py))
    }

    /// Ranks of the merges that can apply: not an earlier one of a repeated pair, nor a token's other derivations.
    fn live_merges<'py>(&self, py: Python<'py>) -> PyResult<Array<'py, u32>> {
        Ok(detached(py, || Ok(self.core.live_merges()))?.into_pyarray(py))
    }

    /// By id: how many tokens the merges make of the token's own bytes. For one-pass tokenizers.
    fn tokens_in_tokens<'py>(&self, py: Python<'py>) -> PyResult<Array<'py, u32>> {
        Ok(detached(py, || Ok(self.core.tokens_in_tokens()))?.into_pyarray(py))
    }

    /// How many merges of phase 1 join what only merges of phase 2 make, so that they apply among these.
    #[getter]
    fn late_merges(&self) -> usize {
        self.core.late_merges
    }

    /// The rank of the first merge of the second level: phase 2's, or, where the tokenizer does not say so, that from
    /// which on merges make superwords.
    #[getter]
    fn phase1(&self) -> usize {
        self.core.definition().phase1
    }

    /// Ids of one text.
    #[pyo3(signature = (text, preparation=None))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        preparation: Option<&Preparation>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.with_ids(py, text, preparation, |ids| list(py, ids))?
    }

    /// The same as an array.
    #[pyo3(signature = (text, preparation=None))]
    fn encode_array<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        preparation: Option<&Preparation>,
    ) -> PyResult<Array<'py, u32>> {
        self.with_ids(py, text, preparation, |ids| given::array(py, ids))?
    }

    #[pyo3(signature = (texts, threads, preparation=None))]
    fn encode_batch<'py>(
        &self,
        py: Python<'py>,
        texts: Texts<'py>,
        threads: usize,
        preparation: Option<&Preparation>,
    ) -> PyResult<Encoded<'py>> {
        let documents = texts.documents(py)?;
        let documents = &*documents;
        let encode = || match preparation {
            None => self.core.encode_batch(documents, threads),
            Some(Preparation(preparation)) => preparation.encode_batch(&self.core, documents, threads),
        };
        let (ids, offsets) = detached(py, encode)?;
        Ok((ids.into_pyarray(py), offsets.into_pyarray(py)))
    }

    /// Documents as a file of tokens holds them, each after the id `mark`, uint16 if `narrow` and else uint32; where
    /// each ends there; bytes that each one's tokens spell, of the `lengths` by id; the first document with the mark
    /// among its ids. On the calling thread.
    #[pyo3(signature = (texts, mark, lengths, narrow, preparation=None))]
    fn encode_stream<'py>(
        &self,
        py: Python<'py>,
        texts: Texts<'py>,
        mark: u32,
        lengths: PyReadonlyArray1<u32>,
        narrow: bool,
        preparation: Option<&Preparation>,
    ) -> PyResult<Streamed<'py>> {
        let (documents, lengths) = (texts.documents(py)?, given::owned(&lengths)?);
        if narrow {
            self.stream::<u16>(py, &*documents, mark, &lengths, preparation)
        } else {
            self.stream::<u32>(py, &*documents, mark, &lengths, preparation)
        }
    }

    /// Tokens of each text; ids are kept for no longer than one document.
    #[pyo3(signature = (texts, threads, preparation=None))]
    fn count_tokens<'py>(
        &self,
        py: Python<'py>,
        texts: Texts<'py>,
        threads: usize,
        preparation: Option<&Preparation>,
    ) -> PyResult<Array<'py, i64>> {
        let documents = texts.documents(py)?;
        let documents = &*documents;
        let count = || {
            self.core.with_states(threads, |states| {
                let mut states: Vec<_> = states.iter_mut().map(|state| (state, Vec::new())).collect();
                documents::map(documents, &mut states, documents.count(), |(state, ids), _, text, out| {
                    ids.clear();
                    prepared(preparation, text, ids, |text, ids| self.core.encode(text, state, ids))?;
                    out.push(ids.len() as i64);
                    Ok(())
                })
            })
        };
        Ok(detached(py, count)?.0.into_pyarray(py))
    }

    /// Ids of a text, and the start and end of every token in bytes, and in characters, both flat.
    #[pyo3(signature = (text, preparation=None))]
    fn encode_spans<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        preparation: Option<&Preparation>,
    ) -> PyResult<(Array<'py, u32>, Array<'py, i64>, Array<'py, i64>)> {
        let text = text.as_bytes();
        let find = || match preparation {
            Some(Preparation(preparation)) => {
                let spans =
                    self.core.with_states(1, |states| preparation.spans(&self.core, text, false, &mut states[0]))?;
                Ok((spans.ids, spans.bytes, spans.characters))
            }
            None => {
                let mut ids = Vec::new();
                self.core.with_states(1, |states| self.core.encode(text, &mut states[0], &mut ids))?;
                let (bytes, characters) = offsets::spans(text, &ids, |id| self.core.tokens().get(id).len())?;
                Ok((ids, bytes, characters))
            }
        };
        let (ids, bytes, characters) = detached(py, find)?;
        Ok((ids.into_pyarray(py), bytes.into_pyarray(py), characters.into_pyarray(py)))
    }

    /// Ids of a text, the start and end of every token in characters, flat, and the number of the piece it is in.
    fn encode_words<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        preparation: &Preparation,
    ) -> PyResult<(Array<'py, u32>, Array<'py, i64>, Array<'py, i64>)> {
        let find = || {
            self.core.with_states(1, |states| preparation.0.spans(&self.core, text.as_bytes(), true, &mut states[0]))
        };
        let spans = detached(py, find)?;
        Ok((spans.ids.into_pyarray(py), spans.characters.into_pyarray(py), spans.words.into_pyarray(py)))
    }

    /// Ids of each text with merges dropped at random: document i by the coins of (seed, i).
    #[pyo3(signature = (texts, p, seed, threads, preparation=None))]
    fn encode_dropout<'py>(
        &self,
        py: Python<'py>,
        texts: Texts<'py>,
        p: f64,
        seed: u64,
        threads: usize,
        preparation: Option<&Preparation>,
    ) -> PyResult<Encoded<'py>> {
        let documents = texts.documents(py)?;
        let documents = &*documents;
        let encode = || {
            let definition = self.core.definition();
            let dropout = self.dropout.get_or_make(|| Dropout::new(definition));
            let mut states: Vec<_> = std::iter::repeat_with(Default::default).take(threads.max(1)).collect();
            documents::map(documents, &mut states, 0, |scratch, i, text, out| {
                let mut coins = Coins::new(p, seed, i as u64);
                prepared(preparation, text, out, |text, out| dropout.encode(definition, text, &mut coins, scratch, out))
            })
        };
        let (ids, offsets) = detached(py, encode)?;
        Ok((ids.into_pyarray(py), offsets.into_pyarray(py)))
    }
}

/// Appends what `encode` makes of a text, or with a preparation, of the text that it makes.
fn prepared(
    preparation: Option<&Preparation>,
    text: &[u8],
    out: &mut Vec<u32>,
    mut encode: impl FnMut(&[u8], &mut Vec<u32>) -> Result<(), String>,
) -> Result<(), String> {
    match preparation {
        None => encode(text, out),
        Some(Preparation(preparation)) => preparation.encode(text, out, encode),
    }
}

impl Encoder {
    fn stream<'py, T: Width + Element + Send + Sync>(
        &self,
        py: Python<'py>,
        documents: &dyn Documents,
        mark: u32,
        lengths: &[u32],
        preparation: Option<&Preparation>,
    ) -> PyResult<Streamed<'py>> {
        let encode = || {
            self.core.with_state(|state| {
                let mut ids = std::mem::take(&mut state.ids);
                let stream = Stream::<T>::of(documents, lengths, mark, &mut ids, |text, ids| {
                    prepared(preparation, text, ids, |text, ids| self.core.encode(text, state, ids))
                });
                if ids.capacity() <= KEPT_IDS {
                    state.ids = ids;
                }
                stream
            })
        };
        let Stream { ids, ends, spelled, marked } = detached(py, encode)?;
        Ok((lent(py, ids)?.into_any(), ends.into_pyarray(py), spelled.into_pyarray(py), marked))
    }

    /// Passes the ids of one text on, out of room that is there already.
    fn with_ids<R>(
        &self,
        py: Python<'_>,
        text: &str,
        preparation: Option<&Preparation>,
        pass: impl FnOnce(&[u32]) -> R,
    ) -> PyResult<R> {
        self.core.with_state(|state| {
            let mut ids = std::mem::take(&mut state.ids);
            ids.clear();
            let encode =
                || prepared(preparation, text.as_bytes(), &mut ids, |text, ids| self.core.encode(text, state, ids));
            // Other threads can wait for a short text rather than this one for the GIL.
            let encoded = if text.len() < SHORT_TEXT { core(encode) } else { detached(py, encode) };
            let passed = encoded.map(|()| pass(&ids));
            if ids.capacity() <= KEPT_IDS {
                state.ids = ids;
            }
            passed
        })
    }
}

type Tokens = Option<(Vec<String>, Vec<Option<u32>>)>;

/// What happens to text before it is encoded: see `preparing`.
#[pyclass(frozen, module = "tokenizer._native")]
pub struct Preparation(preparing::Preparation);

#[pymethods]
impl Preparation {
    /// `early` and `late`: strings, and the ids that they become; None for those that stay text and hide others.
    /// `forms`: names of normalisation forms.
    #[new]
    #[pyo3(signature = (early, forms=Vec::new(), late=None))]
    fn new(early: Tokens, forms: Vec<String>, late: Tokens) -> PyResult<Self> {
        let specials = |tokens: Tokens| tokens.map(|(strings, ids)| special::Specials::new(&strings, ids)).transpose();
        let make = || {
            Ok(preparing::Preparation {
                early: specials(early)?,
                forms: forms.iter().map(|name| Form::named(name)).collect::<Result<_, String>>()?,
                late: specials(late)?,
            })
        };
        make().map(Self).map_err(user_error)
    }

    /// Bytes of each text as it is encoded, and whether that is another one than was given.
    fn lengths<'py>(
        &self,
        py: Python<'py>,
        texts: Texts<'py>,
        threads: usize,
    ) -> PyResult<(Array<'py, i64>, Array<'py, bool>)> {
        let documents = texts.documents(py)?;
        let documents = &*documents;
        let measure = || {
            documents::map(documents, &mut vec![(); threads.max(1)], documents.count(), |(), _, text, out| {
                out.push(self.0.length(text));
                Ok(())
            })
        };
        let found = detached(py, measure)?.0;
        let changed: Vec<bool> = found.iter().map(|one| one.1).collect();
        let lengths: Vec<i64> = found.iter().map(|one| one.0 as i64).collect();
        Ok((lengths.into_pyarray(py), changed.into_pyarray(py)))
    }

    /// The texts as they are encoded; the batch itself where that is the same.
    fn normalize(&self, py: Python<'_>, batch: &Batch) -> PyResult<Batch> {
        detached(py, || Ok(self.0.normalize(&batch.0))).map(Batch)
    }
}

/// Strings that are looked for in text.
#[pyclass(frozen, module = "tokenizer._native")]
pub struct SpecialStrings(special::Specials);

#[pymethods]
impl SpecialStrings {
    #[new]
    fn new(strings: Vec<String>) -> PyResult<Self> {
        let ids = vec![None; strings.len()];
        special::Specials::new(&strings, ids).map(Self).map_err(user_error)
    }

    /// Which string is the first in the text, by its place in the list; the longest where several start there.
    fn find(&self, py: Python<'_>, text: &str) -> PyResult<Option<usize>> {
        detached(py, || Ok(self.0.find(text.as_bytes())))
    }

    /// The first document that holds one of the strings, and which.
    fn find_in_batch(&self, py: Python<'_>, texts: Texts<'_>, threads: usize) -> PyResult<Option<(usize, usize)>> {
        let documents = texts.documents(py)?;
        let documents = &*documents;
        let find = || {
            documents::map(documents, &mut vec![(); threads.max(1)], 0, |(), i, text, out| {
                out.extend(self.0.find(text).map(|string| (i, string)));
                Ok(())
            })
        };
        Ok(detached(py, find)?.0.first().copied())
    }
}

/// The encoding of a text that comes in parts.
#[pyclass(module = "tokenizer._native")]
pub struct EncodeStream {
    encoder: Py<Encoder>,
    preparation: Option<Py<Preparation>>,
    stream: preparing::PreparedStream,
    limit: usize,
}

#[pymethods]
impl EncodeStream {
    #[new]
    #[pyo3(signature = (encoder, limit, preparation=None))]
    fn new(encoder: Py<Encoder>, limit: usize, preparation: Option<Py<Preparation>>) -> Self {
        Self { encoder, preparation, stream: preparing::PreparedStream::default(), limit }
    }

    /// Ids that no later part can change; with `last`, of all that is left.
    #[pyo3(signature = (part, last=false))]
    fn push<'py>(&mut self, py: Python<'py>, part: &str, last: bool) -> PyResult<Array<'py, u32>> {
        static NONE: preparing::Preparation = preparing::Preparation::NONE;
        let (encoder, stream, limit) = (self.encoder.get(), &mut self.stream, self.limit);
        let preparation = self.preparation.as_ref().map_or(&NONE, |preparation| &preparation.get().0);
        let mut ids = Vec::new();
        detached(py, || {
            encoder.core.with_state(|state| {
                let mut into = preparing::Into {
                    preparation,
                    encoder: &encoder.core,
                    cuts: encoder.core.cuts(),
                    limit,
                    state,
                    out: &mut ids,
                };
                stream.push(part.as_bytes(), last, &mut into)
            })
        })?;
        Ok(ids.into_pyarray(py))
    }
}

/// Ids as a list. Unlike `PyList::new`, it does not panic where there is no memory for an id.
fn list<'py>(py: Python<'py>, ids: &[u32]) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: a new list has `n` places, each of which is given a new reference once; both calls return null with an
    // exception set where they fail, and a list with empty places can be dropped.
    unsafe {
        let n = ids.len() as ffi::Py_ssize_t;
        let list = Bound::from_owned_ptr_or_err(py, ffi::PyList_New(n))?.cast_into_unchecked::<PyList>();
        for (place, &id) in (0..n).zip(ids) {
            let number = Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromUnsignedLong(id.into()))?;
            ffi::PyList_SetItem(list.as_ptr(), place, number.into_ptr());
        }
        Ok(list)
    }
}

/// Whether the regex is found in each token; never in one that is no whole characters.
#[pyfunction]
pub fn eligible(tokens: &Bound<'_, PyList>, pattern: &str) -> PyResult<Vec<bool>> {
    encoding::eligible(pattern, &table(tokens)?).map_err(user_error)
}
