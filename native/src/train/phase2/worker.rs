//! One thread's part of a pass over documents.

use std::collections::BTreeMap;

use super::sketch::{is_live, Pending, Sketch};
use super::{fragments::Fragments, sample::Sample};
use crate::encode::{level2::Level2State, superwords::Superwords};
use crate::text::unit::Unit;

#[derive(Clone, Copy, Debug)]
pub struct SpanLimits {
    pub unit: Unit,
    /// Spans of more than `trigger` phase-1 tokens are cut every `cap` tokens.
    pub trigger: Option<usize>,
    pub cap: usize,
    /// Spans are truncated to this many phase-1 tokens.
    pub longest: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    pub documents: u64,
    pub bytes: u64,
    pub tokens: u64,
    pub spans: u64,
    pub seams: u64,
    pub dead_seams: u64,
    pub fragments: u64,
    pub cells: u64,
    /// Number of tokens in the sample, times the weights of their documents.
    pub sampled_tokens: u64,
}

/// Results of one thread in a pass.
#[derive(Default)]
pub(super) struct Worker {
    pub(super) fragments: Fragments,
    pub(super) sample: Sample,
    pub(super) statistics: Statistics,
    pub(super) lengths: BTreeMap<u32, u64>,
    /// Counts of tokens by id.
    pub(super) tokens: Vec<u64>,
    pub(super) seams: Pending,
    runs: Level2State,
    merged: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub enum Pass {
    /// Histogram of span lengths.
    Lengths,
    /// Counts seams and tokens. One in n pieces is also added to a sample (0: no sample).
    Seams { sample_every: u64 },
    /// Counts fragments between seams that occur at least `threshold` times.
    Fragments { threshold: u32 },
}

impl Statistics {
    /// The numbers that are sums over the documents, by name.
    pub fn sums(&mut self) -> [(&'static str, &mut u64); 6] {
        [
            ("documents", &mut self.documents),
            ("bytes", &mut self.bytes),
            ("tokens", &mut self.tokens),
            ("spans", &mut self.spans),
            ("seams", &mut self.seams),
            ("dead_seams", &mut self.dead_seams),
        ]
    }

    pub(super) fn add(&mut self, mut other: Self) {
        self.sums().into_iter().zip(other.sums()).for_each(|((_, sum), (_, count))| *sum += *count);
    }
}

impl SpanLimits {
    /// The pieces of a span: truncated, then cut if it is longer than the trigger.
    pub(super) fn pieces(&self, span: &[u32], mut piece: impl FnMut(&[u32])) {
        let span = &span[..span.len().min(self.longest.unwrap_or(usize::MAX))];
        if self.trigger.is_some_and(|trigger| span.len() > trigger) {
            span.chunks(self.cap).for_each(piece);
        } else {
            piece(span);
        }
    }
}

impl Worker {
    pub(super) fn note_length(&mut self, length: usize, weight: u32) {
        // A document of more tokens would not fit into memory.
        *self.lengths.entry(length as u32).or_default() += weight as u64;
    }

    /// Calls `gather` with the piece after applying the merges found so far.
    #[inline(always)]
    pub(super) fn merging(&mut self, piece: &[u32], seen: Option<&Superwords>, gather: impl FnOnce(&mut Self, &[u32])) {
        let Some(seen) = seen else { return gather(self, piece) };
        let mut merged = std::mem::take(&mut self.merged);
        merged.clear();
        seen.apply(piece, &mut self.runs, &mut merged);
        gather(self, &merged);
        self.merged = merged;
    }

    /// `live`: bits of `Sketch::live` in a pass over fragments.
    pub(super) fn gather(
        &mut self,
        piece: &[u32],
        pass: Pass,
        level: Option<usize>,
        weight: u32,
        sketch: &Sketch,
        live: &[u8],
    ) {
        let times = weight as u64;
        self.statistics.spans += times;
        self.statistics.tokens += times * piece.len() as u64;
        self.statistics.seams += times * piece.len().saturating_sub(1) as u64;
        match pass {
            Pass::Lengths => unreachable!("spans are measured before they are cut"),
            Pass::Seams { .. } => {
                piece.iter().for_each(|&token| self.tokens[token as usize] += times);
                piece.windows(2).for_each(|seam| self.seams.add(seam, weight, sketch));
                if let Some(level) = level {
                    self.sample.add(level, piece, times);
                }
            }
            Pass::Fragments { .. } => {
                let mut start = 0;
                for at in 1..piece.len() {
                    if !is_live(live, &piece[at - 1..=at]) {
                        self.statistics.dead_seams += times;
                        self.fragments.add(&piece[start..at], times);
                        start = at;
                    }
                }
                self.fragments.add(&piece[start..], times);
            }
        }
    }
}
