//! Phase 2 without documents: seams are counted, then the fragments between frequent seams.
//!
//! A phase-2 token that spans the seam between two adjacent tokens occurs at most as often as these two were adjacent
//! at the start. So if no merge below a count of τ is needed, every seam rarer than τ is a cut. The rest falls into
//! short fragments that repeat, and they are counted like the words of phase 1. Seams are counted in a hashed sketch
//! that never underestimates, so there may be too few cuts, but never a wrong one.

use super::partial::{self, Rows, Table};
use super::sample::{Size, LEVELS};
use super::sketch::{Sketch, MAX_WEIGHT};
use super::worker::{Call, Pass, SpanLimits, Statistics, Worker};
use crate::encode::{encoder::Encoder, state::State, superwords::Superwords};
use crate::runtime::{interrupt::poll, parallel};
use crate::text::{batch::Batch, specials::Specials};
use crate::train::options::{Judge, Phase2Options, RejectedPairs, Tie, Veto};
use crate::train::report::{Merge, Report, Stop};
use crate::train::{cells::Words, merge_loop::MergeLoop};

const CHUNK_BYTES: usize = 1 << 17;

/// Which pairs of the fragments may be merged.
pub struct MergeRules<'a> {
    pub tie: Tie,
    pub veto: &'a Veto,
    /// Maximum number of phase-1 tokens in a new token.
    pub max_tokens: Option<u32>,
    pub non_overlapping: bool,
}

/// Maximum size of the sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleLimits {
    /// Number of phase-1 tokens.
    pub cells: u64,
    /// Like `Trainer::memory`.
    pub memory: usize,
}

pub struct Trainer {
    encoder: Encoder,
    spans: SpanLimits,
    limits: SampleLimits,
    specials: Specials,
    sketch: Sketch,
    /// The threshold of a pass over fragments, and the bits of `Sketch::live`.
    live: Option<(u32, Vec<u8>)>,
    workers: Vec<Worker>,
    pub statistics: Statistics,
    token_counts: Vec<u64>,
    /// Merges found so far, at thresholds that were too high for all of them.
    found: Report,
    rejected_pairs: RejectedPairs,
    /// Number of found merges that passes apply to the text, and those merges.
    applied: usize,
    seen: Option<Superwords>,
}

impl Trainer {
    /// `encoder` has only the phase-1 merges, ids by rank, and the fence of phase 2.
    pub fn new(encoder: Encoder, spans: SpanLimits, limits: SampleLimits, specials: Specials, threads: usize) -> Self {
        Self {
            encoder: encoder.cutting_gaps(),
            spans,
            limits,
            specials,
            sketch: Sketch::new(),
            live: None,
            workers: (0..threads.max(1)).map(|_| Worker::default()).collect(),
            statistics: Statistics::default(),
            token_counts: Vec::new(),
            found: Report::default(),
            rejected_pairs: RejectedPairs::default(),
            applied: 0,
            seen: None,
        }
    }

    /// From now on, passes see the text with all merges found so far applied. Its seams have to be counted again; they
    /// are rarer, so fewer of them reach the same threshold.
    pub fn start_over(&mut self) {
        self.applied = self.found.merges.len();
        let merges = self.found.merges.iter().map(|merge| (merge.left, merge.right));
        self.seen = (self.applied > 0).then(|| Superwords::new(self.encoder.tokens().len(), merges));
        self.sketch.clear();
    }

    /// `start_over` in another process, which has not found the merges itself.
    pub fn apply(&mut self, merges: &[(u32, u32)]) -> Result<(), String> {
        for (new, &(left, right)) in (self.encoder.tokens().len()..).zip(merges) {
            if left.max(right) as usize >= new {
                return Err(format!("merge ({left}, {right}) uses a token that is made later"));
            }
        }
        self.found.merges = merges.iter().map(|&(left, right)| Merge { left, right, count: 0 }).collect();
        self.start_over();
        Ok(())
    }

    /// One bit per counter of the sketch: whether seams of this counter occur at least `threshold` times.
    pub fn live_seams(&self, threshold: u32) -> Vec<u8> {
        self.sketch.live(threshold)
    }

    /// Replaces the seams by those of another process. Afterwards, 1 is the threshold of `live_seams`.
    pub fn set_live_seams(&mut self, bits: &[u8]) -> Result<(), String> {
        self.sketch.set_live(bits)
    }

    /// Discards the results of earlier passes except seams and merges.
    pub fn begin_pass(&mut self) {
        self.workers.iter_mut().for_each(|worker| *worker = Worker::default());
        self.live = None;
        self.statistics = Statistics::default();
    }

    /// Truncates spans to this many phase-1 tokens.
    pub fn set_longest(&mut self, longest: usize) {
        self.spans.longest = Some(longest);
    }

    /// A document of weight w counts as w equal documents, also in the statistics. At most `MAX_WEIGHT`.
    pub fn add(&mut self, batch: &Batch, pass: Pass, weight: u32) -> Result<(), String> {
        if !(1..=MAX_WEIGHT).contains(&weight) {
            return Err(format!("a document has the weight {weight}; use 1 to {MAX_WEIGHT}"));
        }
        let documents = batch.documents();
        let chunks = parallel::chunks(documents.iter().map(|document| document.len()), CHUNK_BYTES);
        if let Pass::Fragments { threshold } = pass {
            if self.live.as_ref().is_none_or(|(known, _)| *known != threshold) {
                self.live = Some((threshold, self.sketch.live(threshold)));
            }
        }
        let call = Call {
            pass,
            weight,
            limits: self.spans,
            seen: self.seen.as_ref(),
            sketch: &self.sketch,
            live: self.live.as_ref().map_or(&[], |(_, live)| live),
        };
        let (encoder, specials) = (&self.encoder, &self.specials);
        let threads = self.workers.len();
        if matches!(pass, Pass::Seams { .. }) {
            let n = encoder.tokens().len() + self.applied;
            self.workers.iter_mut().for_each(|worker| worker.tokens.resize(n, 0));
        }
        encoder.with_states(threads, |states| {
            let mut pairs: Vec<(&mut State, &mut Worker)> =
                states.iter_mut().map(Box::as_mut).zip(&mut self.workers).collect();
            parallel::for_each(&mut pairs, chunks.len(), |(state, worker), i| {
                for &text in &documents[chunks[i].clone()] {
                    poll(text.len());
                    let every = if let Pass::Seams { sample_every } = pass { sample_every } else { 0 };
                    worker.number = if every > 0 { xxhash_rust::xxh3::xxh3_64(text) } else { 0 };
                    worker.statistics.documents += weight as u64;
                    worker.statistics.bytes += weight as u64 * text.len() as u64;
                    specials.between(text, |text| {
                        encoder.spans(text, call.limits.unit, state, &mut |packed| worker.take(packed, &call))
                    })?;
                }
                Ok::<(), String>(())
            })
        })?;
        self.settle();
        Ok(())
    }

    /// Ends a call that adds to the workers: their counts are complete, and their sample is not too large.
    fn settle(&mut self) {
        for worker in &mut self.workers {
            worker.fragments.settle();
            worker.sample.settle();
        }
        let too_large = |workers: &[Worker]| {
            workers.iter().map(|worker| worker.sample.cells()).sum::<u64>() > self.limits.cells
                || workers.iter().map(|worker| worker.sample.memory()).sum::<usize>() > self.limits.memory
        };
        while too_large(&self.workers) {
            let lowest = self.workers.iter().map(|worker| worker.sample.lowest).max().unwrap_or(0);
            self.workers.iter_mut().for_each(|worker| worker.sample.raise(lowest + 1));
        }
    }

    /// Bytes of the fragments so far, and of a merge loop over them. With one thread, it depends neither on the order
    /// of documents nor on batches.
    pub fn memory(&self) -> usize {
        self.workers.iter().map(|worker| worker.fragments.memory()).sum()
    }

    /// Counts of the last pass, to be added in another process.
    pub fn rows(&self, table: Table) -> Rows {
        let (worker, mut rows) = (&self.workers[0], Rows::default());
        match table {
            Table::Lengths => worker.lengths.iter().for_each(|(&length, &n)| rows.push(&[length], &[], n)),
            Table::Tokens => {
                let counted = self.token_counts.iter().zip(0..).filter(|(n, _)| **n > 0);
                counted.for_each(|(&n, id)| rows.push(&[id], &[], n));
            }
            Table::Seams => rows = self.sketch.rows(),
            Table::Sample => {
                worker.sample.levels().for_each(|(i, level)| level.pieces.append_to(&mut rows, &[i as u32]));
            }
            Table::Fragments => worker.fragments.append_to(&mut rows, &[]),
        }
        rows
    }

    /// Adds counts of another process.
    pub fn add_rows<'a>(&mut self, table: Table, rows: impl Iterator<Item = (&'a [u32], u64)>) -> Result<(), String> {
        let n = self.encoder.tokens().len() + self.applied;
        let worker = &mut self.workers[0];
        if table == Table::Tokens {
            worker.tokens.resize(n, 0);
        }
        let known = |ids: &[u32]| ids.iter().all(|&id| (id as usize) < n);
        for (key, count) in rows {
            poll(key.len());
            let fits = match (table, key) {
                (Table::Lengths, &[length]) => {
                    partial::add(worker.lengths.entry(length).or_default(), count)?;
                    true
                }
                (Table::Tokens, &[id]) if known(key) => {
                    partial::add(&mut worker.tokens[id as usize], count)?;
                    true
                }
                (Table::Seams, &[counter]) => self.sketch.add_count(counter, count),
                (Table::Sample, &[level, ref ids @ ..]) if (level as usize) < LEVELS && known(ids) => {
                    worker.sample.add_checked(level as usize, ids, count)?;
                    true
                }
                (Table::Fragments, ids) if known(ids) => {
                    worker.fragments.add_checked(ids, count)?;
                    true
                }
                _ => false,
            };
            if !fits {
                return Err(format!("{key:?} is not a key of the table {table:?}"));
            }
        }
        self.settle();
        Ok(())
    }

    /// Adds a sum over the documents of another process, by name (`Statistics::sums`).
    pub fn add_statistic(&mut self, name: &str, count: u64) -> Result<(), String> {
        let mut sums = self.workers[0].statistics.sums().into_iter();
        let (_, sum) = sums.find(|(known, _)| *known == name).ok_or_else(|| format!("{name:?} is not a statistic"))?;
        partial::add(sum, count)
    }

    /// The lowest level of the sample that was kept, and the sizes of the levels from there on.
    pub fn sample_sizes(&self) -> (usize, Vec<Size>) {
        let sample = &self.workers[0].sample;
        (sample.lowest, sample.levels().map(|(_, level)| level.size).collect())
    }

    /// Adds the sizes of another process's sample. Its pieces are added as rows.
    pub fn add_sample_sizes(&mut self, lowest: usize, sizes: &[Size]) -> Result<(), String> {
        self.workers[0].sample.add_sizes(lowest, sizes)?;
        self.settle();
        Ok(())
    }

    /// Ends a pass and sums the results of the threads.
    pub fn end_pass(&mut self) {
        let mut workers = std::mem::take(&mut self.workers).into_iter();
        let mut total = workers.next().expect("at least one thread");
        let threads = workers.len() + 1;
        if self.live.is_some() {
            self.encoder.drop_states(); // most memory is needed from here to the merge loop
        }
        for worker in workers {
            total.fragments.merge(worker.fragments);
            total.sample.merge(worker.sample);
            total.statistics.add(worker.statistics);
            total.tokens.iter_mut().zip(worker.tokens).for_each(|(sum, count)| *sum += count);
            for (length, n) in worker.lengths {
                *total.lengths.entry(length).or_default() += n;
            }
        }
        total.statistics.fragments = total.fragments.len() as u64;
        total.statistics.cells = total.fragments.n_tokens() as u64;
        total.statistics.sampled_tokens = total.sample.tokens();
        self.statistics = total.statistics;
        if !total.tokens.is_empty() {
            self.token_counts = std::mem::take(&mut total.tokens);
        }
        self.workers = std::iter::once(total).chain((1..threads).map(|_| Worker::default())).collect();
    }

    /// The smallest length that at least `quantile` of the spans do not exceed.
    pub fn length_quantile(&self, quantile: f64) -> usize {
        let lengths = &self.workers[0].lengths;
        let wanted = (lengths.values().sum::<u64>() as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        let at_quantile = lengths.iter().find(|(_, n)| {
            seen += *n;
            seen >= wanted
        });
        at_quantile.map_or(1, |(&length, _)| length.max(1) as usize)
    }

    /// Count of each phase-1 token, by id, after a pass over the seams.
    pub fn token_counts(&self) -> &[u64] {
        &self.token_counts
    }

    /// Merges the sample, to estimate how frequent merges are.
    pub fn merge_sample(
        &self,
        total: usize,
        rules: &MergeRules,
        progress: impl FnMut(usize) -> bool,
    ) -> Result<(Report, Stop), String> {
        let words = Words::new(|take| self.workers[0].sample.levels().for_each(|(_, level)| level.pieces.each(take)))?;
        let mut merging = self.merge_loop(words, rules, 1, RejectedPairs::default(), None);
        let stop = merging.run(total, progress);
        Ok((merging.finish().0, stop))
    }

    /// Continues from the merges found so far, which the fragments must have applied (`start_over`), until there are
    /// `total`, or no pair of the fragments has a count of `min_count`, which must be at least the threshold they were
    /// cut at. Consumes the fragments. `progress` gets the new merges.
    pub fn merge<'a>(
        &mut self,
        total: usize,
        rules: &MergeRules<'a>,
        min_count: u64,
        judge: Option<Judge<'a>>,
        progress: impl FnMut(usize) -> bool,
    ) -> Result<(&Report, Stop), String> {
        assert_eq!(self.applied, self.found.merges.len(), "the fragments have seen all merges");
        let rejected_pairs = std::mem::take(&mut self.rejected_pairs);
        let fragments = std::mem::take(&mut self.workers[0].fragments);
        let words = Words::new(|take| fragments.each(take))?;
        drop(fragments);
        let mut merging = self.merge_loop(words, rules, min_count, rejected_pairs, judge);
        let stop = merging.run(total.saturating_sub(self.found.merges.len()), progress);
        let (report, rejected_pairs) = merging.finish();
        self.rejected_pairs = rejected_pairs;
        self.found.merges.extend(report.merges);
        self.found.rejected += report.rejected;
        self.found.too_long += report.too_long;
        self.found.already_tokens += report.already_tokens;
        Ok((&self.found, stop))
    }

    fn merge_loop<'a>(
        &self,
        words: Words,
        rules: &MergeRules<'a>,
        min_count: u64,
        rejected_pairs: RejectedPairs,
        judge: Option<Judge<'a>>,
    ) -> MergeLoop<'a> {
        let mut tokens = self.encoder.tokens().clone();
        let mut widths = vec![1u32; tokens.len()];
        for merge in &self.found.merges {
            let token = [tokens.get(merge.left), tokens.get(merge.right)].concat();
            tokens.push(&token);
            widths.push(widths[merge.left as usize].saturating_add(widths[merge.right as usize]));
        }
        let options = Phase2Options {
            max_tokens: rules.max_tokens,
            widths,
            non_overlapping: rules.non_overlapping,
            rejected_pairs,
            judge,
        };
        MergeLoop::with_phase2(words, tokens, rules.tie, rules.veto, min_count, options)
    }
}
