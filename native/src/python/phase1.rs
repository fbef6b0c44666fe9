//! Phase 1.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::calls::{detached, user_error};
use super::merges::{merge_result, ranked_tokens, veto, Progress};
use super::{arrays, counting::check_counts};
use crate::runtime::interrupt;
use crate::train::options::{Tie, Veto};
use crate::train::{cells::Words, merge_loop::MergeLoop};
use crate::vocabulary::Tokens;

/// Phase 1: merges of counted pretokens, by rank. `progress(n)` is called every `progress_seconds` with the number of
/// merges so far. If it returns true, `progress(n, columns)` is called with the merges.
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
    let (data, offsets, counts) = (arrays::slice(&data)?, arrays::to_vec(&offsets)?, arrays::to_vec(&counts)?);
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

/// `train_bpe` for pretokens that are sequences of tokens: `ranks` concatenated, `tokens` by rank.
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
    let (ranks, offsets, counts) = (arrays::to_vec(&ranks)?, arrays::to_vec(&offsets)?, arrays::to_vec(&counts)?);
    check_counts(&ranks, &offsets, &counts)?;
    if ranks.iter().any(|&rank| rank as usize >= tokens.len()) {
        return Err(user_error(format!("a pretoken has a rank that is not below the {} tokens", tokens.len())));
    }
    let words = || Words::new(&counts, |i| ranks[offsets[i] as usize..offsets[i + 1] as usize].iter().copied());
    let progress = Progress::new(progress, progress_seconds);
    run_merge_loop(py, words, table, tie_break, &veto, min_count, n_merges, progress)
}

#[allow(clippy::too_many_arguments)] // arguments of the two above
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
