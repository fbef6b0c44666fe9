//! The Python binding: conversions, errors and the GIL; no algorithm.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::corpus::{self, Filter, Format, Settings, Split};
use crate::counting::{self, Specials, Unit};
use crate::encoding::{self, Definition, MergeRule};
use crate::merging::{MergeLoop, Report, Stop, Tie, Tokens, Veto, Words};
use crate::patterns::{Scanner, NAMED};
use crate::phase2;

/// An error of the core is a mistake in what the user gave: `tokenizer.errors.UserError`.
fn user_error(message: String) -> PyErr {
    Python::attach(|py| {
        let make = || py.import("tokenizer.errors")?.getattr("UserError")?.call1((message.as_str(),));
        match make() {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    })
}

/// Documents as one UTF-8 buffer.
#[pyclass(frozen, module = "tokenizer._native")]
struct Batch(Arc<corpus::Batch>);

#[pymethods]
impl Batch {
    #[staticmethod]
    fn from_texts(texts: Vec<Bound<'_, pyo3::types::PyString>>) -> PyResult<Self> {
        let mut batch = corpus::Batch::default();
        for text in &texts {
            // Lone surrogates cannot be UTF-8: Python raises UnicodeEncodeError with their place.
            batch.push(text.to_cow()?.as_bytes());
        }
        Ok(Self(Arc::new(batch)))
    }

    /// From a UTF-8 buffer and offsets into it (Arrow's layout); copies, and checks the text.
    #[staticmethod]
    #[pyo3(signature = (data, offsets, *, replace_invalid = false))]
    fn from_buffers(
        data: PyReadonlyArray1<u8>,
        offsets: PyReadonlyArray1<i64>,
        replace_invalid: bool,
    ) -> PyResult<Self> {
        let (data, offsets) = (data.as_slice()?, offsets.as_slice()?);
        let mut batch = corpus::Batch::default();
        for (i, bounds) in offsets.windows(2).enumerate() {
            let document = usize::try_from(bounds[0])
                .ok()
                .zip(usize::try_from(bounds[1]).ok())
                .and_then(|(start, end)| data.get(start..end))
                .ok_or_else(|| user_error(format!("offsets of document {i} do not fit the buffer")))?;
            match std::str::from_utf8(document) {
                Ok(_) => batch.push(document),
                Err(_) if replace_invalid => batch.push(String::from_utf8_lossy(document).as_bytes()),
                Err(error) => {
                    return Err(user_error(format!(
                        "document {i} of the batch is not UTF-8 at its byte {}; set corpus.on_invalid_utf8=replace to read \
                         malformed bytes as U+FFFD",
                        error.valid_up_to()
                    )))
                }
            }
        }
        Ok(Self(Arc::new(batch)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn n_bytes(&self) -> usize {
        self.0.data.len()
    }

    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u8>> {
        PyArray1::from_slice(py, &self.0.data)
    }

    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_slice(py, &self.0.offsets)
    }

    fn text(&self, i: usize) -> PyResult<&str> {
        if i >= self.0.len() {
            return Err(PyIndexError::new_err(format!("document {i} of {}", self.0.len())));
        }
        std::str::from_utf8(self.0.document(i)).map_err(|error| user_error(error.to_string()))
    }
}

/// Which documents to take; keeps count of the budget.
#[pyclass(module = "tokenizer._native")]
struct DocumentFilter(Filter);

#[pymethods]
impl DocumentFilter {
    #[new]
    #[pyo3(signature = (*, split, min_bytes, max_bytes, budget, heldout_fraction, heldout_salt, sample_fraction, sample_salt))]
    #[allow(clippy::too_many_arguments)] // keywords of one call
    fn new(
        split: &str,
        min_bytes: usize,
        max_bytes: Option<usize>,
        budget: Option<u64>,
        heldout_fraction: f64,
        heldout_salt: String,
        sample_fraction: f64,
        sample_salt: String,
    ) -> PyResult<Self> {
        let split = match split {
            "all" => Split::All,
            "train" => Split::Train,
            "heldout" => Split::HeldOut,
            _ => return Err(user_error(format!("split is {split:?}; it is one of: all, train, heldout"))),
        };
        Ok(Self(Filter {
            min_bytes,
            max_bytes,
            budget,
            heldout_fraction,
            heldout_salt,
            split,
            sample_fraction,
            // Another coin than the held-out split's, also where both salts are the same.
            sample_salt: format!("sample:{sample_salt}"),
            used: 0,
        }))
    }

    /// The documents taken, and whether more are wanted.
    fn apply(&mut self, py: Python<'_>, batch: &Batch) -> (Batch, bool) {
        let (taken, more) = py.detach(|| self.0.apply(&batch.0));
        (Batch(Arc::new(taken)), more)
    }
}

/// Batches of documents out of files, read ahead on a thread.
#[pyclass(module = "tokenizer._native")]
struct Reader(Mutex<corpus::Reader>);

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (files, *, field, separator, score_field, min_score, replace_invalid, batch_bytes))]
    #[allow(clippy::too_many_arguments)] // keywords of one call
    fn new(
        files: Vec<(PathBuf, String)>,
        field: &str,
        separator: Option<String>,
        score_field: Option<&str>,
        min_score: f64,
        replace_invalid: bool,
        batch_bytes: usize,
    ) -> PyResult<Self> {
        let path = |name: &str| name.split('.').map(str::to_string).collect();
        let files = files
            .into_iter()
            .map(|(path, format)| match format.as_str() {
                "txt" => Ok((path, Format::Text)),
                "jsonl" => Ok((path, Format::JsonLines)),
                _ => Err(user_error(format!("{}: no native reader for {format:?}", path.display()))),
            })
            .collect::<PyResult<_>>()?;
        let settings = Settings {
            field: path(field),
            separator: separator.filter(|separator| !separator.is_empty()),
            score_field: score_field.map(path),
            min_score,
            replace_invalid,
            batch_bytes,
        };
        Ok(Self(Mutex::new(corpus::Reader::start(files, settings))))
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        match py.detach(|| self.0.lock().expect("no panic while held").next()) {
            None => Ok(None),
            Some(Ok(batch)) => Ok(Some(Batch(Arc::new(batch)))),
            Some(Err(message)) => Err(user_error(message)),
        }
    }
}

type Counts<'py> = (Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u64>>);

#[pyclass(module = "tokenizer._native")]
struct PretokenCounter(Option<counting::Counter>);

#[pymethods]
impl PretokenCounter {
    #[new]
    #[pyo3(signature = (pattern, *, unit, special_tokens, threads))]
    fn new(pattern: &str, unit: &str, special_tokens: Vec<String>, threads: usize) -> PyResult<Self> {
        let make = || {
            Ok(counting::Counter::new(
                Scanner::new(pattern)?,
                Unit::parse(unit)?,
                Specials::new(&special_tokens)?,
                threads,
            ))
        };
        make().map(|counter| Self(Some(counter))).map_err(user_error)
    }

    fn add(&mut self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        let counter = self.0.as_mut().ok_or_else(finished)?;
        py.detach(|| counter.add(&batch.0)).map_err(user_error)
    }

    /// (bytes laid end to end, offsets, counts), sorted by bytes. Ends the counter.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Counts<'py>> {
        let counter = self.0.take().ok_or_else(finished)?;
        let (data, offsets, counts) = py.detach(|| counter.finish().sorted());
        Ok((data.into_pyarray(py), offsets.into_pyarray(py), counts.into_pyarray(py)))
    }
}

fn finished() -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err("the counter is finished")
}

/// Calls back to Python with (merges, count of the last); remembers an exception and stops the loop.
struct Progress {
    callback: Option<Py<PyAny>>,
    error: Option<PyErr>,
}

impl Progress {
    fn report(&mut self, merges: usize, count: u64) -> bool {
        Python::attach(|py| {
            let called = match &self.callback {
                Some(callback) => callback.call1(py, (merges, count)).map(drop),
                None => Ok(()),
            };
            match called.and_then(|()| py.check_signals()) {
                Ok(()) => true,
                Err(error) => {
                    self.error = Some(error);
                    false
                }
            }
        })
    }
}

fn merge_result<'py>(py: Python<'py>, report: Report, stop: Stop) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    let column = |value: fn(&crate::merging::Merge) -> u32| -> Vec<u32> { report.merges.iter().map(value).collect() };
    result.set_item("left", column(|merge| merge.left).into_pyarray(py))?;
    result.set_item("right", column(|merge| merge.right).into_pyarray(py))?;
    let counts: Vec<u64> = report.merges.iter().map(|merge| merge.count).collect();
    result.set_item("count", counts.into_pyarray(py))?;
    result.set_item("exhausted", stop == Stop::Exhausted)?;
    result.set_item("rejected", report.rejected)?;
    result.set_item("already_tokens", report.already_tokens)?;
    Ok(result)
}

/// Tokens by rank: the bytes in HF's alphabet order, then merges of earlier tokens.
fn ranked_tokens(alphabet: &[u8], merges: &[(u32, u32)]) -> PyResult<Tokens> {
    let mut tokens = Tokens::default();
    for &byte in alphabet {
        tokens.push(&[byte]);
    }
    for &(left, right) in merges {
        if left.max(right) as usize >= tokens.len() {
            return Err(user_error(format!("merge ({left}, {right}) uses a token that is made later")));
        }
        let token = [tokens.get(left), tokens.get(right)].concat();
        tokens.push(&token);
    }
    Ok(tokens)
}

fn veto(max_bytes: Option<usize>, max_words: Option<usize>, forbid: Vec<Vec<u8>>, special_tokens: Vec<String>) -> Veto {
    Veto { max_bytes, max_words, forbid, reserved: special_tokens.into_iter().map(String::into_bytes).collect() }
}

/// Phase 1: merges of counted pretokens, by rank.
#[pyfunction]
#[pyo3(signature = (data, offsets, counts, alphabet, n_merges, *, tie_break, min_count, max_token_bytes, special_tokens, progress))]
#[allow(clippy::too_many_arguments)] // keywords of one call
fn train_bpe<'py>(
    py: Python<'py>,
    data: PyReadonlyArray1<u8>,
    offsets: PyReadonlyArray1<i64>,
    counts: PyReadonlyArray1<u64>,
    alphabet: Vec<u8>,
    n_merges: usize,
    tie_break: &str,
    min_count: u64,
    max_token_bytes: Option<usize>,
    special_tokens: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let tie = Tie::parse(tie_break).map_err(user_error)?;
    let tokens = ranked_tokens(&alphabet, &[])?;
    let veto = veto(max_token_bytes, None, Vec::new(), special_tokens);
    let (data, offsets, counts) = (data.as_slice()?, offsets.as_slice()?, counts.as_slice()?);
    if offsets.len() != counts.len() + 1
        || offsets.first() != Some(&0)
        || offsets.last() != Some(&(data.len() as i64))
        || offsets.windows(2).any(|bounds| bounds[0] > bounds[1])
    {
        return Err(user_error("counts, offsets and bytes of the pretokens do not fit together".into()));
    }
    let mut progress = Progress { callback: progress, error: None };
    let result = py.detach(|| {
        let mut rank_of = [0u32; 256];
        alphabet.iter().enumerate().for_each(|(rank, &byte)| rank_of[byte as usize] = rank as u32);
        let ranks: Vec<u32> = data.iter().map(|&byte| rank_of[byte as usize]).collect();
        let words = Words::new(counts, |i| &ranks[offsets[i] as usize..offsets[i + 1] as usize])?;
        drop(ranks);
        let mut merging = MergeLoop::new(words, tokens, tie, &veto, min_count);
        let stop = merging.run(n_merges, |merges, count| progress.report(merges, count));
        Ok((merging.report, stop))
    });
    if let Some(error) = progress.error {
        return Err(error);
    }
    let (report, stop) = result.map_err(user_error)?;
    merge_result(py, report, stop)
}

/// Phase 2: passes over batches, then merges.
#[pyclass(module = "tokenizer._native")]
struct SuperwordTrainer(phase2::Trainer);

#[pymethods]
impl SuperwordTrainer {
    #[new]
    #[pyo3(signature = (alphabet, merges, *, pattern, fence, two_pass, unit, span_trigger, span_cap, special_tokens, threads))]
    #[allow(clippy::too_many_arguments)] // keywords of one call
    fn new(
        alphabet: Vec<u8>,
        merges: Vec<(u32, u32)>,
        pattern: &str,
        fence: &str,
        two_pass: bool,
        unit: &str,
        span_trigger: Option<usize>,
        span_cap: usize,
        special_tokens: Vec<String>,
        threads: usize,
    ) -> PyResult<Self> {
        let tokens = ranked_tokens(&alphabet, &merges)?;
        let mut byte_ids = [0; 256];
        alphabet.iter().enumerate().for_each(|(rank, &byte)| byte_ids[byte as usize] = rank as u32);
        let rules =
            merges.iter().enumerate().map(|(rank, &(left, right))| MergeRule { left, right, new: (256 + rank) as u32 });
        let scanner = |regex: &str| Scanner::new(regex).map_err(user_error);
        let definition = Definition {
            tokens,
            byte_ids,
            merges: rules.collect(),
            phase1: merges.len(),
            scanner: scanner(if two_pass { pattern } else { fence })?,
            fence: if two_pass { Some(scanner(fence)?) } else { None },
        };
        let spans = phase2::Spans {
            unit: Unit::parse(unit).map_err(user_error)?,
            trigger: span_trigger,
            cap: span_cap.max(1),
            longest: None,
        };
        let specials = Specials::new(&special_tokens).map_err(user_error)?;
        let encoder = encoding::Encoder::new(definition);
        Ok(Self(phase2::Trainer::new(encoder, spans, specials, threads)))
    }

    fn begin_pass(&mut self) {
        self.0.begin_pass();
    }

    fn end_pass(&mut self, py: Python<'_>) {
        py.detach(|| self.0.end_pass());
    }

    fn measure_spans(&mut self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        py.detach(|| self.0.add(&batch.0, phase2::Pass::Lengths)).map_err(user_error)
    }

    /// After a pass of measure_spans: truncates spans at this quantile of their lengths, which it returns.
    fn truncate_spans(&mut self, quantile: f64) -> usize {
        let longest = self.0.length_quantile(quantile);
        self.0.set_longest(longest);
        longest
    }

    fn count_seams(&mut self, py: Python<'_>, batch: &Batch, sample_every: usize) -> PyResult<()> {
        py.detach(|| self.0.add(&batch.0, phase2::Pass::Seams { sample_every })).map_err(user_error)
    }

    fn count_fragments(&mut self, py: Python<'_>, batch: &Batch, threshold: u32) -> PyResult<()> {
        py.detach(|| self.0.add(&batch.0, phase2::Pass::Fragments { threshold })).map_err(user_error)
    }

    /// Merges the fragments that the last pass gathered.
    #[pyo3(signature = (n_merges, *, tie_break, min_count, max_bytes, max_words, forbid, special_tokens, progress))]
    #[allow(clippy::too_many_arguments)] // keywords of one call
    fn merge<'py>(
        &self,
        py: Python<'py>,
        n_merges: usize,
        tie_break: &str,
        min_count: u64,
        max_bytes: Option<usize>,
        max_words: Option<usize>,
        forbid: Vec<Vec<u8>>,
        special_tokens: Vec<String>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let tie = Tie::parse(tie_break).map_err(user_error)?;
        let veto = veto(max_bytes, max_words, forbid, special_tokens);
        let mut progress = Progress { callback: progress, error: None };
        let result =
            py.detach(|| self.0.merge(n_merges, tie, &veto, min_count, |merges, count| progress.report(merges, count)));
        if let Some(error) = progress.error {
            return Err(error);
        }
        let (report, stop) = result.map_err(user_error)?;
        merge_result(py, report, stop)
    }

    /// What the last pass saw.
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = self.0.statistics;
        let result = PyDict::new(py);
        for (name, value) in [
            ("documents", statistics.documents),
            ("bytes", statistics.bytes),
            ("tokens", statistics.tokens),
            ("spans", statistics.spans),
            ("seams", statistics.seams),
            ("dead_seams", statistics.dead_seams),
            ("fragments", statistics.fragments),
            ("cells", statistics.cells),
            ("sampled_bytes", statistics.sampled_bytes),
        ] {
            result.set_item(name, value)?;
        }
        Ok(result)
    }
}

type Encoded<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<i64>>);

#[pyclass(frozen, module = "tokenizer._native")]
struct Encoder(encoding::Encoder);

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

/// Names and regexes of the patterns that have scanners of their own.
#[pyfunction]
fn named_patterns() -> Vec<(&'static str, &'static str)> {
    NAMED.iter().map(|&(name, regex, _)| (name, regex)).collect()
}

/// The pieces into which a pattern cuts text; a regex that does not compile is an error.
#[pyfunction]
fn split(text: &str, pattern: &str) -> PyResult<Vec<String>> {
    let mut pieces = Vec::new();
    Scanner::new(pattern)
        .and_then(|scanner| scanner.pieces(text.as_bytes(), |start, end| pieces.push(text[start..end].to_string())))
        .map_err(user_error)?;
    Ok(pieces)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Batch>()?;
    module.add_class::<DocumentFilter>()?;
    module.add_class::<Encoder>()?;
    module.add_class::<PretokenCounter>()?;
    module.add_class::<Reader>()?;
    module.add_class::<SuperwordTrainer>()?;
    module.add_function(wrap_pyfunction!(named_patterns, module)?)?;
    module.add_function(wrap_pyfunction!(split, module)?)?;
    module.add_function(wrap_pyfunction!(train_bpe, module)?)?;
    Ok(())
}
