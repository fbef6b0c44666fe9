//! Phase 2.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyList};

use super::arrays;
use super::calls::{core, detached, user_error};
use super::counting::check_counts;
use super::merges::{merge_result, veto, Progress};
use super::{text::Batch, vocabulary::table};
use crate::encode::definition::{self, Definition};
use crate::encode::encoder::Encoder;
use crate::pretokenize::scanner::Scanner;
use crate::text::{specials::Specials, unit::Unit};
use crate::train::options::{Judge, Tie};
use crate::train::phase2::partial::{self, Table};
use crate::train::phase2::sample::Size;
use crate::train::phase2::sketch;
use crate::train::phase2::trainer::{MergeRules, SampleLimits, Trainer};
use crate::train::phase2::worker::{Pass, SpanLimits};
use crate::vocabulary::MergeRule;

type RowArrays<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u64>>);

/// Phase 2: passes over batches, then merges.
#[pyclass(module = "tokenizer._native")]
pub struct SuperwordTrainer(Trainer);

#[pymethods]
impl SuperwordTrainer {
    #[classattr]
    const MAX_WEIGHT: u32 = sketch::MAX_WEIGHT;

    #[new]
    #[pyo3(signature = (tokens, merges, *, pattern, fence, two_pass, eligible, unit, span_trigger, span_cap, special_tokens, sample_cells, sample_memory, threads))]
    #[allow(clippy::too_many_arguments)] // keywords of one call
    fn new(
        tokens: &Bound<'_, PyList>,
        merges: Vec<(u32, u32)>,
        pattern: &str,
        fence: &str,
        two_pass: bool,
        eligible: Option<&str>,
        unit: &str,
        span_trigger: Option<usize>,
        span_cap: usize,
        special_tokens: Vec<String>,
        sample_cells: u64,
        sample_memory: usize,
        threads: usize,
    ) -> PyResult<Self> {
        let tokens = table(tokens)?;
        let n = tokens.len() as u32;
        let bytes: Vec<&[u8]> = (0..n.min(256)).map(|rank| tokens.get(rank)).collect();
        if tokens.len() != 256 + merges.len()
            || merges.iter().any(|&(left, right)| left.max(right) >= n)
            || bytes.iter().any(|byte| byte.len() != 1)
        {
            return Err(user_error(format!("{} merges do not fit {n} tokens", merges.len())));
        }
        let mut byte_ids = [0; 256];
        bytes.iter().zip(0..).for_each(|(byte, rank)| byte_ids[byte[0] as usize] = rank);
        let rules =
            merges.iter().enumerate().map(|(rank, &(left, right))| MergeRule { left, right, new: (256 + rank) as u32 });
        let scanner = |regex: &str| Scanner::new(regex).map_err(user_error);
        let definition = Definition {
            eligible: eligible.map(|regex| definition::eligible(regex, &tokens)).transpose().map_err(user_error)?,
            tokens,
            byte_ids,
            merges: rules.collect(),
            phase1: merges.len(),
            scanner: scanner(if two_pass { pattern } else { fence })?,
            second_pass_fence: if two_pass { Some(scanner(fence)?) } else { None },
        };
        let spans = SpanLimits {
            unit: Unit::parse(unit).map_err(user_error)?,
            trigger: span_trigger,
            cap: span_cap.max(1),
            longest: None,
        };
        let specials = Specials::without_ids(&special_tokens).map_err(user_error)?;
        let limits = SampleLimits { cells: sample_cells, memory: sample_memory };
        core(|| Ok(Trainer::new(Encoder::new(definition), spans, limits, specials, threads))).map(Self)
    }

    fn begin_pass(&mut self) {
        self.0.begin_pass();
    }

    /// From now on, passes see the text with the merges found so far applied. Its seams have to be counted again.
    fn start_over(&mut self) {
        self.0.start_over();
    }

    /// Bytes used by the fragments of this pass and a merge loop over them.
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

    /// A document of weight w, from 1 to `MAX_WEIGHT`, counts as w equal documents. This holds for every pass.
    fn measure_spans(&mut self, py: Python<'_>, batch: &Batch, weight: u32) -> PyResult<()> {
        detached(py, || self.0.add(&batch.0, Pass::Lengths, weight))
    }

    /// After a pass of measure_spans: truncates spans at this quantile of their lengths, and returns it.
    fn truncate_spans(&mut self, quantile: f64) -> usize {
        let longest = self.0.length_quantile(quantile);
        self.0.set_longest(longest);
        longest
    }

    /// Truncates spans to this many phase-1 tokens.
    fn set_longest(&mut self, longest: usize) {
        self.0.set_longest(longest);
    }

    /// From now on, passes see the text with these merges applied, which another process has found.
    fn apply(&mut self, merges: Vec<(u32, u32)>) -> PyResult<()> {
        core(|| self.0.apply(&merges))
    }

    /// The seams that occur at least `threshold` times, for another process.
    fn live_seams<'py>(&self, py: Python<'py>, threshold: u32) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.live_seams(threshold))
    }

    /// Replaces the counted seams by the live seams of another process, whose threshold is then 1.
    fn set_live_seams(&mut self, bits: &[u8]) -> PyResult<()> {
        core(|| self.0.set_live_seams(bits))
    }

    /// After a pass: the counts of a table as (keys, offsets, counts), sorted by key.
    fn rows<'py>(&self, py: Python<'py>, table: &str) -> PyResult<RowArrays<'py>> {
        let rows = detached(py, || Ok(self.0.rows(Table::parse(table)?)))?;
        Ok((rows.keys.into_pyarray(py), rows.offsets.into_pyarray(py), rows.counts.into_pyarray(py)))
    }

    /// Adds rows of another process to the pass.
    fn add_rows(
        &mut self,
        py: Python<'_>,
        table: &str,
        keys: PyReadonlyArray1<u32>,
        offsets: PyReadonlyArray1<i64>,
        counts: PyReadonlyArray1<u64>,
    ) -> PyResult<()> {
        let (keys, offsets, counts) = (arrays::slice(&keys)?, arrays::slice(&offsets)?, arrays::slice(&counts)?);
        check_counts(&keys, &offsets, &counts)?;
        detached(py, || self.0.add_rows(Table::parse(table)?, partial::rows(&keys, &offsets, &counts)))
    }

    /// Adds a statistic of another process to the pass.
    fn add_statistic(&mut self, name: &str, count: u64) -> PyResult<()> {
        core(|| self.0.add_statistic(name, count))
    }

    /// After a pass of count_seams: the lowest level of the sample, and for each level from there on the number of
    /// tokens without and with weights.
    fn sample_sizes(&self) -> (usize, Vec<(u64, u64)>) {
        let (lowest, sizes) = self.0.sample_sizes();
        (lowest, sizes.iter().map(|size| (size.cells, size.tokens)).collect())
    }

    /// Adds the sizes of another process's sample to the pass.
    fn add_sample_sizes(&mut self, lowest: usize, sizes: Vec<(u64, u64)>) -> PyResult<()> {
        let sizes: Vec<Size> = sizes.iter().map(|&(cells, tokens)| Size { cells, tokens }).collect();
        core(|| self.0.add_sample_sizes(lowest, &sizes))
    }

    fn count_seams(&mut self, py: Python<'_>, batch: &Batch, weight: u32, sample_every: u64) -> PyResult<()> {
        detached(py, || self.0.add(&batch.0, Pass::Seams { sample_every }, weight))
    }

    fn count_fragments(&mut self, py: Python<'_>, batch: &Batch, weight: u32, threshold: u32) -> PyResult<()> {
        detached(py, || self.0.add(&batch.0, Pass::Fragments { threshold }, weight))
    }

    /// Count of each phase-1 token, by rank, after a pass of count_seams.
    fn token_counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        self.0.token_counts().to_vec().into_pyarray(py)
    }

    /// Merges the fragments of the last pass, on top of the merges that earlier calls found and the pass has applied
    /// (`start_over`); returns all of them. With `sample`, merges the sample of count_seams instead, without effect on
    /// later calls. `judge(left, right, count)` returns true to reject a candidate.
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
        forbid: Vec<String>,
        special_tokens: Vec<String>,
        non_overlapping: bool,
        judge: Option<Py<PyAny>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let tie = Tie::parse(tie_break).map_err(user_error)?;
        let veto = veto(max_bytes, max_words, forbid, special_tokens)?;
        let mut progress = Progress::new(progress);
        let mut failure = None;
        let result = detached(py, || {
            let rules = MergeRules { tie, veto: &veto, max_tokens, non_overlapping };
            if sample {
                return self.0.merge_sample(n_merges, &rules, |n| progress.report(n));
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
            let ask = ask.as_mut().map(|ask| ask as Judge);
            let (report, stop) = self.0.merge(n_merges, &rules, min_count, ask, |n| progress.report(n))?;
            Ok((report.clone(), stop))
        });
        if let Some(error) = progress.error.or(failure) {
            return Err(error);
        }
        let (report, stop) = result?;
        merge_result(py, report, stop)
    }

    /// Statistics of the last pass.
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut statistics = self.0.statistics;
        let others = [
            ("fragments", statistics.fragments),
            ("cells", statistics.cells),
            ("sampled_tokens", statistics.sampled_tokens),
        ];
        statistics.sums().map(|(name, sum)| (name, *sum)).into_iter().chain(others).into_py_dict(py)
    }
}
