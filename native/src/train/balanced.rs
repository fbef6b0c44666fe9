//! Parity-aware phase 1: the source that is compressed worst chooses the next merge, which applies to all sources.
//!
//! Variant `base` of Foroutan et al., "Parity-Aware Byte-Pair Encoding" (2025). Every source has a merge loop of its own,
//! in which all pairs are tracked, because other sources may merge rare ones.

use std::time::Instant;

use super::merge_loop::{MergeLoop, PROGRESS};
use super::report::{Report, Stop};

/// A source of text.
pub struct Source<'a> {
    /// Its words, whose most frequent pair is merged.
    pub counted: MergeLoop<'a>,
    /// The words by which its compression is measured, if they are others.
    pub measured: Option<MergeLoop<'a>>,
    /// Tokens of the measured words, at first the initial ones.
    pub tokens: u64,
    /// The source with the lowest `size / tokens / ratio` is compressed worst.
    pub size: f64,
    pub ratio: f64,
}

impl Source<'_> {
    /// Divided in this order, as Hugging Face's trainer does, so that both round to the same choice.
    fn compression(&self) -> f64 {
        self.size / self.tokens as f64 / self.ratio
    }

    fn apply(&mut self, left: u32, right: u32) {
        let removed = self.counted.apply(left, right);
        self.tokens -= self.measured.as_mut().map_or(removed, |measured| measured.apply(left, right));
    }
}

/// Merges until there are `total` merges; the report also has the source of each. A source without a pair of at least
/// `min_count` chooses no more. `progress(number of merges so far)` stops the loop by returning false.
pub fn run(
    sources: &mut [Source],
    total: usize,
    min_count: u64,
    mut progress: impl FnMut(usize) -> bool,
) -> (Report, Vec<u32>, Stop) {
    let (mut report, mut chosen) = (Report::default(), Vec::new());
    let mut left: Vec<usize> = (0..sources.len()).collect();
    for source in sources.iter_mut() {
        source.counted.track_all();
        source.measured.iter_mut().for_each(MergeLoop::track_all);
    }
    let (mut stop, mut reported) = (Stop::Full, Instant::now());
    while report.merges.len() < total {
        if reported.elapsed() > PROGRESS {
            reported = Instant::now();
            if !progress(report.merges.len()) {
                stop = Stop::Interrupted;
                break;
            }
        }
        let compression = |&i: &usize| sources[i].compression();
        // The first of several equal ones.
        let Some(worst) = left.iter().copied().reduce(|a, b| if compression(&b) < compression(&a) { b } else { a })
        else {
            stop = Stop::Exhausted;
            break;
        };
        let Some(merge) = sources[worst].counted.best(min_count) else {
            left.retain(|&i| i != worst);
            continue;
        };
        sources.iter_mut().for_each(|source| source.apply(merge.left, merge.right));
        report.merges.push(merge);
        chosen.push(worst as u32);
    }
    for source in sources.iter() {
        report.rejected += source.counted.report.rejected;
        report.too_long += source.counted.report.too_long;
        report.already_tokens += source.counted.report.already_tokens;
    }
    (report, chosen, stop)
}
