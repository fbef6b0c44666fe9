//! Phase 1.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::calls::{detached, user_error};
use super::merges::{merge_result, veto, Progress};
use super::{arrays, counting::check_counts};
use crate::train::options::Tie;
use crate::train::{cells::Words, merge_loop::MergeLoop};
use crate::vocabulary::Tokens;

/// Phase 1: merges of counted pretokens, which are sequences of tokens, by rank: `ranks` concatenated, `tokens` by rank.
/// `progress(n)` is called with the number of merges so far.
#[pyfunction]
#[pyo3(signature = (ranks, offsets, counts, tokens, n_merges, *, tie_break, min_count, max_token_bytes, forbid, special_tokens, progress))]
#[allow(clippy::too_many_arguments)] // keywords of one call
pub fn train_bpe<'py>(
    py: Python<'py>,
    ranks: Ranks<'py>,
    offsets: PyReadonlyArray1<i64>,
    counts: PyReadonlyArray1<u64>,
    tokens: Vec<Vec<u8>>,
    n_merges: usize,
    tie_break: &str,
    min_count: u64,
    max_token_bytes: Option<usize>,
    forbid: Vec<String>,
    special_tokens: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut table = Tokens::default();
    tokens.iter().for_each(|token| {
        table.push(token);
    });
    let veto = veto(max_token_bytes, None, forbid, special_tokens)?;
    let (offsets, counts) = (arrays::to_vec(&offsets)?, arrays::to_vec(&counts)?);
    let words = match ranks {
        Ranks::Narrow(ranks) => words(&arrays::slice(&ranks)?, &offsets, &counts, tokens.len()),
        Ranks::Wide(ranks) => words(&arrays::slice(&ranks)?, &offsets, &counts, tokens.len()),
    }?;
    let tie = Tie::parse(tie_break).map_err(user_error)?;
    let mut progress = Progress::new(progress);
    let result = detached(py, || {
        let mut merging = MergeLoop::new(words, table, tie, &veto, min_count);
        let stop = merging.run(n_merges, |n| progress.report(n));
        Ok((merging.report, stop))
    });
    if let Some(error) = progress.error {
        return Err(error);
    }
    let (report, stop) = result?;
    merge_result(py, report, stop)
}

/// Ranks of tokens; bytes while no merges are known.
#[derive(FromPyObject)]
pub enum Ranks<'py> {
    Narrow(PyReadonlyArray1<'py, u8>),
    Wide(PyReadonlyArray1<'py, u32>),
}

fn words<T: Copy + Into<u32>>(ranks: &[T], offsets: &[i64], counts: &[u64], n_tokens: usize) -> PyResult<Words> {
    check_counts(ranks, offsets, counts)?;
    if ranks.iter().any(|&rank| rank.into() as usize >= n_tokens) {
        return Err(user_error(format!("a pretoken has a rank that is not below the {n_tokens} tokens")));
    }
    let word = |i: usize| ranks[offsets[i] as usize..offsets[i + 1] as usize].iter().map(|&rank| rank.into());
    Words::new(counts, word).map_err(user_error)
}
