//! One thread's part of a pass over documents.

use std::collections::BTreeMap;

use super::{fragments::Fragments, sketch::Sketch};
use crate::encode::superwords::{SuperwordScratch, Superwords};
use crate::text::unit::Unit;

#[derive(Clone, Copy, Debug)]
pub struct Spans {
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
    /// Number of tokens in the sample, without weights.
    pub sampled_cells: u64,
}

/// Results of one thread in a pass.
#[derive(Default)]
pub(super) struct Worker {
    pub(super) fragments: Fragments,
    pub(super) statistics: Statistics,
    pub(super) lengths: BTreeMap<usize, u64>,
    /// Counts of tokens by id.
    pub(super) tokens: Vec<u64>,
    scratch: SuperwordScratch,
    merged: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub enum Pass {
    /// Histogram of span lengths.
    Lengths,
    /// Counts seams and tokens. Every n-th piece is also added to a sample (0: no sample).
    Seams { sample_every: usize },
    /// Counts fragments between seams that occur at least `threshold` times.
    Fragments { threshold: u32 },
}

impl Statistics {
    pub(super) fn add(&mut self, other: Self) {
        self.documents += other.documents;
        self.bytes += other.bytes;
        self.tokens += other.tokens;
        self.spans += other.spans;
        self.seams += other.seams;
        self.dead_seams += other.dead_seams;
        self.sampled_cells += other.sampled_cells;
        self.sampled_tokens += other.sampled_tokens;
    }
}

impl Spans {
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
        *self.lengths.entry(length).or_default() += weight as u64;
    }

    /// Calls `gather` with the piece after applying the merges found so far.
    #[inline(always)]
    pub(super) fn merging(&mut self, piece: &[u32], seen: Option<&Superwords>, gather: impl FnOnce(&mut Self, &[u32])) {
        let Some(seen) = seen else { return gather(self, piece) };
        let mut merged = std::mem::take(&mut self.merged);
        merged.clear();
        seen.apply(piece, &mut self.scratch, &mut merged);
        gather(self, &merged);
        self.merged = merged;
    }

    pub(super) fn gather(&mut self, piece: &[u32], pass: Pass, sampled: bool, weight: u32, sketch: &Sketch) {
        let times = weight as u64;
        self.statistics.spans += times;
        self.statistics.tokens += times * piece.len() as u64;
        self.statistics.seams += times * piece.len().saturating_sub(1) as u64;
        match pass {
            Pass::Lengths => unreachable!("spans are measured before they are cut"),
            Pass::Seams { .. } => {
                piece.iter().for_each(|&token| self.tokens[token as usize] += times);
                for seam in piece.windows(2) {
                    sketch.add(seam, weight);
                }
                if sampled {
                    self.statistics.sampled_tokens += times * piece.len() as u64;
                    self.statistics.sampled_cells += piece.len() as u64;
                    self.fragments.add(piece, times);
                }
            }
            Pass::Fragments { threshold } => {
                let mut start = 0;
                for at in 1..piece.len() {
                    if sketch.get(&piece[at - 1..=at]) < threshold {
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
