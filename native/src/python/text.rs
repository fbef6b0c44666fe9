//! Text: batches of documents, filters, readers.

use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use xxhash_rust::xxh3::xxh3_64;

use super::arrays::{self, Array};
use super::calls::{core, detached, user_error};
use crate::runtime::interrupt::poll;
use crate::text::filter::{Filter, Split};
use crate::text::overlap::{Found, Overlap};
use crate::text::read::damage::Failure;
use crate::text::read::feed;
use crate::text::read::input::Input;
use crate::text::read::settings::{Format, Settings};
use crate::text::{batch, documents, read::reader};

/// Documents as one UTF-8 buffer.
#[pyclass(frozen, module = "tokenizer._native")]
pub struct Batch(pub Arc<batch::Batch>);

#[pymethods]
impl Batch {
    #[staticmethod]
    fn from_texts(texts: &Bound<'_, PyAny>) -> PyResult<Self> {
        if texts.is_instance_of::<PyString>() {
            return Err(user_error("a batch is made of a list of texts; put the one text in a list".to_string()));
        }
        let mut batch = batch::Batch::default();
        let each = texts.try_iter().map_err(|_| user_error("a batch is made of a list of texts".to_string()))?;
        for (i, text) in each.enumerate() {
            batch.push(utf8(i, &text?)?);
        }
        Ok(Self(Arc::new(batch)))
    }

    /// From a UTF-8 buffer and offsets into it (Arrow's layout). Copies and validates the text.
    #[staticmethod]
    #[pyo3(signature = (data, offsets, *, replace_invalid = false))]
    fn from_buffers(
        py: Python<'_>,
        data: PyReadonlyArray1<u8>,
        offsets: PyReadonlyArray1<i64>,
        replace_invalid: bool,
    ) -> PyResult<Self> {
        let (data, offsets) = (arrays::slice(&data)?, arrays::to_vec(&offsets)?);
        let copy = || {
            let mut batch = batch::Batch::default();
            for (i, document) in documents::slices(&data, &offsets, "buffer")?.into_iter().enumerate() {
                poll(document.len());
                match simdutf8::compat::from_utf8(document) {
                    Ok(_) => batch.push(document),
                    Err(_) if replace_invalid => batch.push(String::from_utf8_lossy(document).as_bytes()),
                    Err(error) => {
                        return Err(format!(
                        "document {i} of the batch is not UTF-8 at its byte {}; set on_invalid_utf8=replace to read \
                         malformed bytes as U+FFFD",
                        error.valid_up_to()
                    ))
                    }
                }
            }
            Ok(batch)
        };
        detached(py, copy).map(|batch| Self(Arc::new(batch)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn n_bytes(&self) -> usize {
        self.0.data.len()
    }

    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Array<'py, u8> {
        PyArray1::from_slice(py, &self.0.data)
    }

    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> Array<'py, i64> {
        PyArray1::from_slice(py, &self.0.offsets)
    }

    /// XXH3-64 of each document, by which texts are compared.
    fn hashes<'py>(&self, py: Python<'py>) -> PyResult<Array<'py, u64>> {
        let hash = |document: &[u8]| {
            poll(document.len());
            xxh3_64(document)
        };
        let hashes: Vec<u64> = detached(py, || Ok(self.0.documents().into_iter().map(hash).collect()))?;
        Ok(hashes.into_pyarray(py))
    }

    fn text(&self, i: usize) -> PyResult<&str> {
        if i >= self.0.len() {
            return Err(PyIndexError::new_err(format!("document {i} of {}", self.0.len())));
        }
        std::str::from_utf8(self.0.document(i)).map_err(|error| user_error(error.to_string()))
    }
}

/// Selects documents and counts them against the budget.
#[pyclass(module = "tokenizer._native")]
pub struct DocumentFilter(Filter);

#[pymethods]
impl DocumentFilter {
    #[new]
    #[pyo3(signature = (*, split="all", min_bytes=1, max_bytes=None, budget=None, heldout_fraction=0.0, heldout_salt="", heldout_ngram_words=0, sample_fraction=1.0, sample_salt=""))]
    #[allow(clippy::too_many_arguments)] // keywords of one call
    fn new(
        split: &str,
        min_bytes: usize,
        max_bytes: Option<usize>,
        budget: Option<u64>,
        heldout_fraction: f64,
        heldout_salt: &str,
        heldout_ngram_words: usize,
        sample_fraction: f64,
        sample_salt: &str,
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
            heldout_salt: heldout_salt.to_string(),
            heldout_ngram: heldout_ngram_words,
            split,
            sample_fraction,
            // Different coins than the held-out split, even if both salts are equal.
            sample_salt: format!("sample:{sample_salt}"),
            used: 0,
        }))
    }

    /// The selected documents, and whether more are wanted.
    fn apply(&mut self, py: Python<'_>, batch: &Batch) -> PyResult<(Batch, bool)> {
        let (taken, more) = detached(py, || Ok(self.0.apply(&batch.0)))?;
        Ok((Batch(taken), more))
    }
}

/// Which measured documents, and which of their words, also occur in other text.
#[pyclass(module = "tokenizer._native")]
pub struct TextOverlap(Overlap);

#[pymethods]
impl TextOverlap {
    /// `ngram_words`: words of an n-gram, or 0 to compare whole documents only.
    #[new]
    fn new(ngram_words: usize) -> Self {
        Self(Overlap::new(ngram_words))
    }

    /// Adds measured documents, before the first `scan`.
    fn add(&mut self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        detached(py, || self.0.add(&batch.0))
    }

    /// Looks for the measured documents in other text; several threads may.
    fn scan(&self, py: Python<'_>, batch: &Batch, threads: usize) -> PyResult<()> {
        detached(py, || {
            self.0.scan(&batch.0, threads);
            Ok(())
        })
    }

    /// Matches so far, for `mark`.
    fn marks<'py>(&self, py: Python<'py>) -> PyResult<Array<'py, u8>> {
        Ok(detached(py, || Ok(self.0.marks()))?.into_pyarray(py))
    }

    /// Adds what another object with the same documents has found.
    fn mark(&self, py: Python<'_>, marks: PyReadonlyArray1<u8>) -> PyResult<()> {
        let marks = arrays::to_vec(&marks)?;
        detached(py, || self.0.mark(&marks))
    }

    /// (words, words that also occur in the other text, whether the whole document does) of each measured document.
    #[allow(clippy::type_complexity)] // three arrays
    fn found<'py>(&self, py: Python<'py>) -> PyResult<(Array<'py, i64>, Array<'py, i64>, Array<'py, bool>)> {
        let found = detached(py, || Ok(self.0.found()))?;
        let column = |value: fn(&Found) -> usize| found.iter().map(|one| value(one) as i64).collect::<Vec<_>>();
        let (words, shared) = (column(|one| one.words), column(|one| one.shared));
        let whole: Vec<bool> = found.iter().map(|one| one.whole).collect();
        Ok((words.into_pyarray(py), shared.into_pyarray(py), whole.into_pyarray(py)))
    }
}

/// A file of a `Reader` whose bytes another thread supplies in blocks.
#[pyclass(frozen, module = "tokenizer._native")]
pub struct Feed(Arc<feed::Feed>);

#[pymethods]
impl Feed {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Adds a block once the previous one is taken; False if no more is read.
    fn put(&self, py: Python<'_>, block: &[u8]) -> PyResult<bool> {
        let block = block.to_vec();
        detached(py, || Ok(self.0.put(block)))
    }

    /// Ends the file, or fails the reader with an error.
    #[pyo3(signature = (error = None))]
    fn end(&self, error: Option<String>) {
        self.0.end(error);
    }

    /// Stops the reader and the thread that supplies the file.
    fn close(&self) {
        self.0.close();
    }
}

/// The decompressed bytes of a file whose records Python parses.
#[pyclass(frozen, module = "tokenizer._native")]
pub struct Stream(Mutex<Box<dyn Read + Send>>, PathBuf);

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (path, feed = None))]
    fn new(py: Python<'_>, path: PathBuf, feed: Option<PyRef<'_, Feed>>) -> PyResult<Self> {
        let feed = feed.map(|feed| Arc::clone(&feed.0));
        let input = Input { path, format: Format::Text, feed };
        // Opening reads the header of a gzip file, so it may wait for the feed.
        let open = || input.open().map_err(|error| format!("{}: {error}", input.path.display()));
        Ok(Self(Mutex::new(detached(py, open)?), input.path.clone()))
    }

    /// At most `size` bytes; none at the end. An OSError says that the file is damaged.
    fn read<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let read = || {
            let mut content = vec![0; size];
            let read = self.0.lock().unwrap_or_else(PoisonError::into_inner).read(&mut content);
            Ok(read.map(|n| content[..n].to_vec()).map_err(|error| Failure::of(&error)))
        };
        match detached(py, read)? {
            Ok(content) => Ok(PyBytes::new(py, &content)),
            Err(Failure::Damage(message)) => Err(PyOSError::new_err(message)),
            Err(Failure::Error(message)) => Err(user_error(format!("{}: {message}", self.1.display()))),
        }
    }
}

/// Batches of documents from files, read ahead on threads.
#[pyclass(module = "tokenizer._native")]
pub struct Reader(Mutex<reader::Reader>);

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (files, *, field, separator, score_field, min_score, replace_invalid, skip_damaged, batch_bytes, document_limit_bytes, skip_above, threads, in_order))]
    #[allow(clippy::too_many_arguments)] // keywords of one call
    fn new(
        files: Vec<(PathBuf, String, Option<PyRef<'_, Feed>>)>,
        field: String,
        separator: Option<String>,
        score_field: Option<String>,
        min_score: f64,
        replace_invalid: bool,
        skip_damaged: bool,
        batch_bytes: usize,
        document_limit_bytes: usize,
        skip_above: Option<usize>,
        threads: usize,
        in_order: bool,
    ) -> PyResult<Self> {
        let files = files
            .into_iter()
            .map(|(path, format, feed)| {
                let format = match format.as_str() {
                    "txt" => Format::Text,
                    "jsonl" => Format::JsonLines,
                    _ => return Err(user_error(format!("{}: no native reader for {format:?}", path.display()))),
                };
                Ok(Input { path, format, feed: feed.map(|feed| Arc::clone(&feed.0)) })
            })
            .collect::<PyResult<_>>()?;
        let settings = Settings {
            field,
            separator: separator.filter(|separator| !separator.is_empty()),
            score_field,
            min_score,
            replace_invalid,
            skip_damaged,
            batch_bytes,
            limit: document_limit_bytes,
            skip_above,
        };
        core(|| reader::Reader::start(files, settings, threads, in_order)).map(|reader| Self(Mutex::new(reader)))
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        // A poisoned lock is fine: an interrupted wait for a batch changes nothing.
        let next = || self.0.lock().unwrap_or_else(PoisonError::into_inner).next().transpose();
        Ok(detached(py, next)?.map(|batch| Batch(Arc::new(batch))))
    }

    /// (path, number of skipped records, the first places with their errors) of each damaged file of the batches so far.
    fn skipped(&self) -> Vec<(String, u64, Vec<String>)> {
        let reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = reader.skipped().iter();
        skipped.map(|(path, found)| (path.display().to_string(), found.count, found.places.clone())).collect()
    }
}

/// The UTF-8 of text number `i` of a batch. If it is not a string or has lone surrogates, `check_text` says so.
pub fn utf8<'a>(i: usize, text: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    let string = text.cast::<PyString>().map_err(PyErr::from).and_then(|text| text.to_str());
    string.map(str::as_bytes).or_else(|error| {
        text.py().import("tokenizer.documents")?.call_method1("check_text", (text, format!("text {i}")))?;
        Err(error)
    })
}
