//! Phase 1.

use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::calls::{detached, user_error};
use super::merges::{merge_result, veto, Progress};
use super::{arrays, counting::check_counts, vocabulary::table};
use crate::train::options::Tie;
use crate::train::{balanced, cells::Words, merge_loop::MergeLoop};

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
    tokens: &Bound<'py, PyList>,
    n_merges: usize,
    tie_break: &str,
    min_count: u64,
    max_token_bytes: Option<usize>,
    forbid: Vec<String>,
    special_tokens: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let veto = veto(max_token_bytes, None, forbid, special_tokens)?;
    let tokens = table(tokens)?;
    let words = words((ranks, offsets, counts), tokens.len())?;
    let tie = Tie::parse(tie_break).map_err(user_error)?;
    let mut progress = Progress::new(progress);
    let result = detached(py, || {
        let mut merging = MergeLoop::new(words, tokens, tie, &veto, min_count);
        let stop = merging.run(n_merges, |n| progress.report(n));
        Ok((merging.report, stop))
    });
    if let Some(error) = progress.error {
        return Err(error);
    }
    let (report, stop) = result?;
    merge_result(py, report, stop)
}

/// `train_bpe` in which the source that is compressed worst chooses the next merge (`crate::train::balanced`): the one
/// with the lowest `size / tokens / ratio`. `costs` has tokens, size and ratio of each source; its tokens before the
/// first merge are those of `measured`, or of its own words if that is None. The result also has each merge's `source`.
#[pyfunction]
#[pyo3(signature = (sources, measured, costs, tokens, n_merges, *, tie_break, min_count, max_token_bytes, forbid, special_tokens, progress))]
#[allow(clippy::too_many_arguments)] // keywords of one call
pub fn train_balanced<'py>(
    py: Python<'py>,
    sources: Vec<Segments<'py>>,
    measured: Option<Vec<Segments<'py>>>,
    costs: Vec<(u64, f64, f64)>,
    tokens: &Bound<'py, PyList>,
    n_merges: usize,
    tie_break: &str,
    min_count: u64,
    max_token_bytes: Option<usize>,
    forbid: Vec<String>,
    special_tokens: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let veto = veto(max_token_bytes, None, forbid, special_tokens)?;
    let tie = Tie::parse(tie_break).map_err(user_error)?;
    let tokens = table(tokens)?;
    let in_words = |segments: Vec<Segments<'py>>| -> PyResult<Vec<Words>> {
        segments.into_iter().map(|segments| words(segments, tokens.len())).collect()
    };
    let n_sources = sources.len();
    let (sources, measured) = (in_words(sources)?, measured.map(in_words).transpose()?);
    if costs.len() != n_sources || measured.as_ref().is_some_and(|measured| measured.len() != n_sources) {
        return Err(user_error(format!("there are {n_sources} sources; each needs a cost and measured words")));
    }
    let mut progress = Progress::new(progress);
    let result = detached(py, || {
        let merging = |words| MergeLoop::new(words, tokens.clone(), tie, &veto, 1);
        let mut measured = measured.map(Vec::into_iter);
        let mut balanced: Vec<balanced::Source> = sources
            .into_iter()
            .zip(costs)
            .map(|(words, (tokens, size, ratio))| balanced::Source {
                counted: merging(words),
                measured: measured.as_mut().and_then(Iterator::next).map(merging),
                tokens,
                size,
                ratio,
            })
            .collect();
        Ok(balanced::run(&mut balanced, n_merges, min_count, |n| progress.report(n)))
    });
    if let Some(error) = progress.error {
        return Err(error);
    }
    let (report, chosen, stop) = result?;
    let result = merge_result(py, report, stop)?;
    result.set_item("source", chosen.into_pyarray(py))?;
    Ok(result)
}

/// Pretokens as ranks of tokens, concatenated, their offsets, and their counts.
type Segments<'py> = (Ranks<'py>, PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, u64>);

fn words((ranks, offsets, counts): Segments, n_tokens: usize) -> PyResult<Words> {
    let (offsets, counts) = (arrays::to_vec(&offsets)?, arrays::to_vec(&counts)?);
    match ranks {
        Ranks::Narrow(ranks) => words_of(&arrays::slice(&ranks)?, &offsets, &counts, n_tokens),
        Ranks::Wide(ranks) => words_of(&arrays::slice(&ranks)?, &offsets, &counts, n_tokens),
    }
}

/// Ranks of tokens; bytes while no merges are known.
#[derive(FromPyObject)]
pub enum Ranks<'py> {
    Narrow(PyReadonlyArray1<'py, u8>),
    Wide(PyReadonlyArray1<'py, u32>),
}

fn words_of<T: Copy + Into<u32>>(ranks: &[T], offsets: &[i64], counts: &[u64], n_tokens: usize) -> PyResult<Words> {
    check_counts(ranks, offsets, counts)?;
    if ranks.iter().any(|&rank| rank.into() as usize >= n_tokens) {
        return Err(user_error(format!("a pretoken has a rank that is not below the {n_tokens} tokens")));
    }
    Words::new(|take| {
        for (bounds, &count) in offsets.windows(2).zip(counts) {
            let word = &ranks[bounds[0] as usize..bounds[1] as usize];
            take(count, word.len(), &|ids| ids.iter_mut().zip(word).for_each(|(id, &rank)| *id = rank.into()));
        }
    })
    .map_err(user_error)
}
