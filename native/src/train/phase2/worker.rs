//! One thread's part of a pass over documents.

use std::collections::BTreeMap;

use super::sketch::{is_live, Sketch, BLOCK};
use super::{fragments::Fragments, sample, sample::Sample};
use crate::encode::packed::{FIRST, ID};
use crate::encode::{level2::Level2State, spans::by_firsts, superwords::Superwords};
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
    /// Number of the next piece, to sample one in n.
    pub(super) number: u64,
    runs: Level2State,
    pieces: Vec<u32>,
    /// Scratch space.
    places: Vec<usize>,
}

/// A call of `Trainer::add`.
pub(super) struct Call<'a> {
    pub(super) pass: Pass,
    pub(super) weight: u32,
    pub(super) limits: SpanLimits,
    /// Merges to apply.
    pub(super) seen: Option<&'a Superwords>,
    pub(super) sketch: &'a Sketch,
    /// Bits of `Sketch::live` in a pass over fragments.
    pub(super) live: &'a [u8],
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
    /// Adds packed phase-1 tokens of whole spans to the results of a pass.
    pub(super) fn take(&mut self, packed: &[u32], call: &Call) {
        let Call { pass, weight, limits, seen, .. } = *call;
        if let Pass::Lengths = pass {
            // A document of more tokens would not fit into memory.
            let lengths = &mut self.lengths;
            return by_firsts(packed, |span| *lengths.entry(span.len() as u32).or_default() += u64::from(weight));
        }
        if seen.is_none() && limits.trigger.is_none() && limits.longest.is_none() {
            return self.count(packed, call);
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        by_firsts(packed, |span| {
            limits.pieces(&packed[span], |piece| {
                let start = pieces.len();
                match seen {
                    Some(seen) => seen.apply(piece, &mut self.runs, &mut pieces),
                    None => pieces.extend_from_slice(piece),
                }
                if let Some(first) = pieces.get_mut(start) {
                    *first |= FIRST;
                }
            });
        });
        self.count(&pieces, call);
        self.pieces = pieces;
    }

    /// Counts the tokens, seams or fragments of whole pieces, whose first tokens have `FIRST`.
    fn count(&mut self, pieces: &[u32], call: &Call) {
        let (times, n) = (u64::from(call.weight), pieces.len() as u64);
        let n_pieces = pieces.iter().filter(|&token| token & FIRST != 0).count() as u64;
        let n_seams = n - n_pieces;
        self.statistics.spans += times * n_pieces;
        self.statistics.tokens += times * n;
        self.statistics.seams += times * n_seams;
        match call.pass {
            Pass::Lengths => unreachable!("spans are measured before they are cut"),
            Pass::Seams { sample_every } => {
                pieces.iter().for_each(|&token| self.tokens[(token & ID) as usize] += times);
                call.sketch.add_all(pieces, call.weight, &mut self.places);
                if sample_every > 0 {
                    by_firsts(pieces, |piece| {
                        if self.number % sample_every == 0 {
                            self.sample.add(sample::level(self.number / sample_every), &pieces[piece], times);
                        }
                        self.number = self.number.wrapping_add(1);
                    });
                }
            }
            Pass::Fragments { .. } => {
                let n_live = self.cut(pieces, call.live, times);
                self.statistics.dead_seams += times * (n_seams - n_live);
            }
        }
    }

    /// Counts the fragments between dead seams. They are found without a branch, which would often be mispredicted.
    /// Returns the number of live seams.
    fn cut(&mut self, pieces: &[u32], live: &[u8], times: u64) -> u64 {
        self.places.resize(BLOCK, 0);
        let (mut start, mut n_cuts) = (0, 0);
        for block in (1..pieces.len()).step_by(BLOCK) {
            let mut n = 0;
            for end in block..pieces.len().min(block + BLOCK) {
                let seam = &pieces[end - 1..=end];
                self.places[n] = end;
                n += usize::from((seam[1] & FIRST != 0) | !is_live(live, seam));
            }
            for &end in &self.places[..n] {
                self.fragments.add(pieces, start..end, times);
                start = end;
            }
            n_cuts += n;
        }
        self.fragments.add(pieces, start..pieces.len(), times);
        (pieces.windows(2).len() - n_cuts) as u64
    }
}
