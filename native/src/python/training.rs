//! Training: pretoken counts, phase 1, phase 2.

use std::path::PathBuf;
use std::time::Duration;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::text::Batch;
use super::{core, detached, given, user_error};
use crate::counting::{Counter, Counts, Specials, Spill, Unit};
use crate::encoding::{self, Definition, MergeRule};
use crate::interrupt;
use crate::merging::{Merge, MergeLoop, Report, Stop, Tie, Tokens, Veto, Words};
use crate::patterns::Scanner;
use crate::phase2;
use crate::spill::{Arrays, Source};

type CountArrays<'py> = (Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u64>>);

fn count_arrays(py: Python<'_>, counts: Counts) -> CountArrays<'_> {
    (counts.data.into_pyarray(py), counts.offsets.into_pyarray(py), counts.counts.into_pyarray(py))
}

#[pyclass(module = "tokenizer._native")]
pub struct PretokenCounter(Option<Counter>);

#[pymethods]
impl PretokenCounter {
    #[new]
    #[pyo3(signature = (pattern, *, unit, special_tokens, threads, memory_bytes, spill_folder))]
    fn new(
        pattern: &str,
        unit: &str,
        special_tokens: Vec<String>,
        threads: usize,
        memory_bytes: Option<usize>,
        spill_folder: PathBuf,
    ) -> PyResult<Self> {
        let spill = memory_bytes.map(|memory| Spill { memory, folder: spill_folder });
        let make = || Counter::new(Scanner::new(pattern)?, Unit::parse(unit)?, &special_tokens, spill, threads);
        core(make).map(|counter| Self(Some(counter)))
    }

    /// Whether documents may come in parts (see `Reader`).
    #[getter]
    fn takes_parts(&self) -> PyResult<bool> {
        Ok(self.0.as_ref().ok_or_else(finished)?.takes_parts())
    }

    fn add(&self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        let counter = self.0.as_ref().ok_or_else(finished)?;
        detached(py, || counter.add(&batch.0))
    }

    /// (bytes laid end to end, offsets, counts), sorted by bytes. Ends the counter.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<CountArrays<'py>> {
        let counter = self.0.take().ok_or_else(finished)?;
        let counts = detached(py, || counter.finish())?;
        Ok(count_arrays(py, counts))
    }

    /// Gives up: ends the threads and deletes what was spilled.
    fn close(&mut self, py: Python<'_>) {
        let counter = self.0.take();
        py.detach(|| drop(counter));
    }
}

fn finished() -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err("the counter is finished")
}

type WeightedCounts<'py> = (PyReadonlyArray1<'py, u8>, PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, u64>, u64);

/// Adds up counts, each multiplied by its weight: (bytes, offsets, counts, weight) each.
#[pyfunction]
pub fn sum_counts<'py>(py: Python<'py>, parts: Vec<WeightedCounts<'py>>) -> PyResult<CountArrays<'py>> {
    let sources = parts
        .iter()
        .map(|(data, offsets, counts, weight)| {
            let (data, offsets, counts) = (given::owned(data)?, given::owned(offsets)?, given::owned(counts)?);
            check_counts(&data, &offsets, &counts)?;
            Ok(Source::Arrays(Arrays { data, offsets, counts, weight: *weight, next: 0 }))
        })
        .collect::<PyResult<Vec<_>>>()?;
    let counts = detached(py, || Counts::sum(sources))?;
    Ok(count_arrays(py, counts))
}

/// Pretokens are laid end to end in `data`, whatever they consist of.
fn check_counts<T>(data: &[T], offsets: &[i64], counts: &[u64]) -> PyResult<()> {
    if offsets.len() != counts.len() + 1
        || offsets.first() != Some(&0)
        || offsets.last() != Some(&(data.len() as i64))
        || offsets.windows(2).any(|bounds| bounds[0] > bounds[1])
    {
        return Err(user_error("the pretokens, their offsets and their counts do not fit together".into()));
    }
    Ok(())
}

/// Calls back to Python with the merges so far, as columns; remembers an exception and stops the loop.
struct Progress {
    callback: Option<Py<PyAny>>,
    every: Duration,
    error: Option<PyErr>,
}

impl Progress {
    fn new(callback: Option<Py<PyAny>>, seconds: f64) -> Self {
        Self { callback, every: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX), error: None }
    }

    /// `callback(n)`; and where it returns true, or training ends here, `callback(n, merges as columns)`.
    fn report(&mut self, merges: &[Merge]) -> bool {
        Python::attach(|py| {
            let Some(callback) = &self.callback else {
                return py.check_signals().map_err(|error| self.error = Some(error)).is_ok();
            };
            let called = callback
                .call1(py, (merges.len(),))
                .and_then(|wanted| if wanted.is_truthy(py)? { self.give(py, merges) } else { Ok(()) })
                .and_then(|()| py.check_signals());
            if let Err(error) = called {
                let _ = self.give(py, merges); // what led to the end is the error to tell of
                self.error = Some(error);
                return false;
            }
            true
        })
    }

    fn give(&self, py: Python<'_>, merges: &[Merge]) -> PyResult<()> {
        let Some(callback) = &self.callback else { return Ok(()) };
        callback.call1(py, (merges.len(), merge_columns(py, merges)?)).map(drop)
    }
}

fn merge_columns<'py>(py: Python<'py>, merges: &[Merge]) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    let column = |value: fn(&Merge) -> u32| -> Vec<u32> { merges.iter().map(value).collect() };
    columns.set_item("left", column(|merge| merge.left).into_pyarray(py))?;
    columns.set_item("right", column(|merge| merge.right).into_pyarray(py))?;
    let counts: Vec<u64> = merges.iter().map(|merge| merge.count).collect();
    columns.set_item("count", counts.into_pyarray(py))?;
    Ok(columns)
}

fn merge_result<'py>(py: Python<'py>, report: Report, stop: Stop) -> PyResult<Bound<'py, PyDict>> {
    let result = merge_columns(py, &report.merges)?;
    result.set_item("exhausted", stop == Stop::Exhausted)?;
    result.set_item("rejected", report.rejected)?;
    result.set_item("too_long", report.too_long)?;
    result.set_item("already_tokens", report.already_tokens)?;
    result.set_item("selecting_seconds", report.selecting.as_secs_f64())?;
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

/// Phase 1: merges of counted pretokens, by rank. `progress(n)` is called every `progress_seconds` with the number of
/// merges so far; where it returns true it is called again as `progress(n, columns)` with the merges.
#[pyfunction]
#[pyo3(signature = (data, offsets, counts, alphabet, n_merges, *, tie_break, min_count, max_token_bytes, special_tokens, progress, progress_seconds = 0.1))]
#[allow(clippy::too_many_arguments)] // keywords of one call
pub fn train_bpe<'py>(
    py: Python<'py>,
    data: PyReadonlyArray1<u8>,
    offsets: PyReadonlyArray1<i64>,
    counts: PyReadonlyArray1<u64>,
    alphabet: [u8; 256],
    n_merges: usize,
    tie_break: &str,
    min_count: u64,
    max_token_bytes: Option<usize>,
    special_tokens: Vec<String>,
    progress: Option<Py<PyAny>>,
    progress_seconds: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let tokens = ranked_tokens(&alphabet, &[])?;
    let veto = veto(max_token_bytes, None, Vec::new(), special_tokens);
    let (data, offsets, counts) = (given::values(&data)?, given::owned(&offsets)?, given::owned(&counts)?);
    check_counts(&data, &offsets, &counts)?;
    let words = || {
        let mut rank_of = [0u32; 256];
        alphabet.iter().enumerate().for_each(|(rank, &byte)| rank_of[byte as usize] = rank as u32);
        Words::new(&counts, |i| {
            data[offsets[i] as usize..offsets[i + 1] as usize].iter().map(|&byte| rank_of[byte as usize])
        })
    };
    let progress = Progress::new(progress, progress_seconds);
    run_merge_loop(py, words, tokens, tie_break, &veto, min_count, n_merges, progress)
}

/// The same for pretokens that are sequences of tokens already: `ranks` laid end to end, `tokens` by rank.
#[pyfunction]
#[pyo3(signature = (ranks, offsets, counts, tokens, n_merges, *, tie_break, min_count, max_token_bytes, special_tokens, progress, progress_seconds = 0.1))]
#[allow(clippy::too_many_arguments)] // keywords of one call
pub fn continue_bpe<'py>(
    py: Python<'py>,
    ranks: PyReadonlyArray1<u32>,
    offsets: PyReadonlyArray1<i64>,
    counts: PyReadonlyArray1<u64>,
    tokens: Vec<Vec<u8>>,
    n_merges: usize,
    tie_break: &str,
    min_count: u64,
    max_token_bytes: Option<usize>,
    special_tokens: Vec<String>,
    progress: Option<Py<PyAny>>,
    progress_seconds: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let mut table = Tokens::default();
    tokens.iter().for_each(|token| {
        table.push(token);
    });
    let veto = veto(max_token_bytes, None, Vec::new(), special_tokens);
    let (ranks, offsets, counts) = (given::owned(&ranks)?, given::owned(&offsets)?, given::owned(&counts)?);
    check_counts(&ranks, &offsets, &counts)?;
    if ranks.iter().any(|&rank| rank as usize >= tokens.len()) {
        return Err(user_error(format!("a pretoken has a rank that is not below the {} tokens", tokens.len())));
    }
    let words = || Words::new(&counts, |i| ranks[offsets[i] as usize..offsets[i + 1] as usize].iter().copied());
    let progress = Progress::new(progress, progress_seconds);
    run_merge_loop(py, words, table, tie_break, &veto, min_count, n_merges, progress)
}

#[allow(clippy::too_many_arguments)] // of the two above
fn run_merge_loop<'py>(
    py: Python<'py>,
    words: impl FnOnce() -> Result<Words, String> + Send,
    tokens: Tokens,
    tie_break: &str,
    veto: &Veto,
    min_count: u64,
    n_merges: usize,
    mut progress: Progress,
) -> PyResult<Bound<'py, PyDict>> {
    let tie = Tie::parse(tie_break).map_err(user_error)?;
    let result = detached(py, || {
        let mut merging = MergeLoop::new(words()?, tokens, tie, veto, min_count);
        match interrupt::catch(|| merging.run(n_merges, progress.every, |merges| progress.report(merges))) {
            Ok(stop) => Ok((merging.report, stop)),
            Err(stopped) => {
                let _ = Python::attach(|py| progress.give(py, &merging.report.merges));
                stopped.unwind()
            }
        }
    });
    if let Some(error) = progress.error {
        return Err(error);
    }
    let (report, stop) = result?;
    merge_result(py, report, stop)
}

/// Phase 2: passes over batches, then merges.
#[pyclass(module = "tokenizer._native")]
pub struct SuperwordTrainer(phase2::Trainer);

#[pymethods]
impl SuperwordTrainer {
    #[classattr]
    const MAX_WEIGHT: u32 = phase2::MAX_WEIGHT;

    #[new]
    #[pyo3(signature = (alphabet, merges, *, pattern, fence, two_pass, eligible, unit, span_trigger, span_cap, special_tokens, threads))]
    #[allow(clippy::too_many_arguments)] // keywords of one call
    fn new(
        alphabet: Vec<u8>,
        merges: Vec<(u32, u32)>,
        pattern: &str,
        fence: &str,
        two_pass: bool,
        eligible: Option<&str>,
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
            eligible: eligible.map(|regex| encoding::eligible(regex, &tokens)).transpose().map_err(user_error)?,
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
        core(|| Ok(phase2::Trainer::new(encoding::Encoder::new(definition), spans, specials, threads))).map(Self)
    }

    fn begin_pass(&mut self) {
        self.0.begin_pass();
    }

    /// From now on passes see the text with the merges found so far; its seams are to be counted anew.
    fn start_over(&mut self) {
        self.0.start_over();
    }

    /// Bytes that the fragments of this pass and a merge loop over them take.
    #[getter]
    fn memory(&self) -> usize {
        self.0.memory()
    }

    fn end_pass(&mut self, py: Python<'_>) -> PyResult<()> {
        detached(py, || {
            self.0.end_pass();
            Ok(())
        })
    }

    /// Each pass takes documents with a weight: so many equal ones, 1 to `MAX_WEIGHT`.
    fn measure_spans(&mut self, py: Python<'_>, batch: &Batch, weight: u32) -> PyResult<()> {
        detached(py, || self.0.add(&batch.0, phase2::Pass::Lengths, weight))
    }

    /// After a pass of measure_spans: truncates spans at this quantile of their lengths, which it returns.
    fn truncate_spans(&mut self, quantile: f64) -> usize {
        let longest = self.0.length_quantile(quantile);
        self.0.set_longest(longest);
        longest
    }

    fn count_seams(&mut self, py: Python<'_>, batch: &Batch, weight: u32, sample_every: usize) -> PyResult<()> {
        detached(py, || self.0.add(&batch.0, phase2::Pass::Seams { sample_every }, weight))
    }

    fn count_fragments(&mut self, py: Python<'_>, batch: &Batch, weight: u32, threshold: u32) -> PyResult<()> {
        detached(py, || self.0.add(&batch.0, phase2::Pass::Fragments { threshold }, weight))
    }

    /// How often each phase-1 token occurs, by rank, after a pass of count_seams.
    fn token_counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        self.0.token_counts().to_vec().into_pyarray(py)
    }

    /// Merges the fragments that the last pass gathered, on top of the merges that earlier calls found and the pass has
    /// seen (`start_over`): all of them come back. With `sample`, what count_seams kept instead, which nothing else is built on.
    /// `judge(left, right, count)` refuses a candidate with true.
    #[pyo3(signature = (n_merges, *, sample, tie_break, min_count, max_bytes, max_words, max_tokens, forbid, special_tokens, non_overlapping, judge, progress))]
    #[allow(clippy::too_many_arguments)] // keywords of one call
    fn merge<'py>(
        &mut self,
        py: Python<'py>,
        n_merges: usize,
        sample: bool,
        tie_break: &str,
        min_count: u64,
        max_bytes: Option<usize>,
        max_words: Option<usize>,
        max_tokens: Option<u32>,
        forbid: Vec<Vec<u8>>,
        special_tokens: Vec<String>,
        non_overlapping: bool,
        judge: Option<Py<PyAny>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let tie = Tie::parse(tie_break).map_err(user_error)?;
        let veto = veto(max_bytes, max_words, forbid, special_tokens);
        let mut progress = Progress::new(progress, 0.1);
        let mut failure = None;
        let result = detached(py, || {
            let rules = phase2::MergeRules { tie, veto: &veto, max_tokens, non_overlapping };
            if sample {
                return self.0.merge_sample(n_merges, &rules, |merges| progress.report(merges));
            }
            let mut ask = judge.map(|judge| {
                let failure = &mut failure;
                move |left: &[u8], right: &[u8], count: u64| {
                    let verdict = Python::attach(|py| {
                        judge.call1(py, (PyBytes::new(py, left), PyBytes::new(py, right), count))?.is_truthy(py)
                    });
                    verdict.map_err(|error| *failure = Some(error)).ok()
                }
            });
            let ask = ask.as_mut().map(|ask| ask as phase2::Judge);
            let (report, stop) = self.0.merge(n_merges, &rules, min_count, ask, |merges| progress.report(merges))?;
            Ok((report.clone(), stop))
        });
        if let Some(error) = progress.error.or(failure) {
            return Err(error);
        }
        let (report, stop) = result?;
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
            ("sampled_tokens", statistics.sampled_tokens),
        ] {
            result.set_item(name, value)?;
        }
        Ok(result)
    }
}
