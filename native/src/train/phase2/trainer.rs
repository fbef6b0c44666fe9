//! Phase 2 without documents: seams are counted, then the fragments between frequent seams.
//!
//! A phase-2 token that spans the seam of two adjacent tokens occurs at most as often as those two met in the
//! beginning. So if no merge below a count of τ will be made, every seam rarer than τ is a cut. What is left
//! falls into short fragments that repeat, and they are counted as phase 1 counts words. Seams are counted in a
//! hashed sketch that can only over-estimate: too few cuts, never a wrong one.

use super::sketch::{Sketch, MAX_WEIGHT};
use super::worker::{Pass, Spans, Statistics, Worker};
use crate::encode::{encoder::Encoder, state::State, superwords::Superwords};
use crate::runtime::{interrupt::poll, parallel};
use crate::text::{batch::Batch, specials::Specials};
use crate::train::options::{Judge, Phase2Options, RejectedPairs, Tie, Veto};
use crate::train::report::{Merge, Report, Stop};
use crate::train::{cells::Words, merge_loop::MergeLoop};

const CHUNK_BYTES: usize = 1 << 17;
/// Phase-1 tokens after which the sample is large enough, whatever the corpus: some 40 MB of text.
const SAMPLE_TOKENS: u64 = 10_000_000;
const PROGRESS: std::time::Duration = std::time::Duration::from_millis(100);

/// Which merges are made of the fragments.
pub struct MergeRules<'a> {
    pub tie: Tie,
    pub veto: &'a Veto,
    /// Most phase-1 tokens of a new one.
    pub max_tokens: Option<u32>,
    pub non_overlapping: bool,
}

pub struct Trainer {
    encoder: Encoder,
    spans: Spans,
    specials: Specials,
    sketch: Sketch,
    workers: Vec<Worker>,
    pub statistics: Statistics,
    documents: usize,
    token_counts: Vec<u64>,
    /// What `merge` found until now, at thresholds that were too high for all of it.
    found: Report,
    rejected_pairs: RejectedPairs,
    /// How many of those merges the passes apply to the text, and these.
    applied: usize,
    seen: Option<Superwords>,
}

impl Trainer {
    /// `encoder` has the phase-1 merges alone, ids by rank, and the fence of phase 2.
    pub fn new(encoder: Encoder, spans: Spans, specials: Specials, threads: usize) -> Self {
        Self {
            encoder,
            spans,
            specials,
            sketch: Sketch::new(),
            workers: (0..threads.max(1)).map(|_| Worker::default()).collect(),
            statistics: Statistics::default(),
            documents: 0,
            token_counts: Vec::new(),
            found: Report::default(),
            rejected_pairs: RejectedPairs::default(),
            applied: 0,
            seen: None,
        }
    }

    /// From now on passes see the text with all the merges that were found until now; seams are to be counted anew.
    /// The seams of that text are rarer, so that fewer of them live at the same threshold.
    pub fn start_over(&mut self) {
        self.applied = self.found.merges.len();
        let merges = self.found.merges.iter().map(|merge| (merge.left, merge.right));
        self.seen = (self.applied > 0).then(|| Superwords::new(self.encoder.tokens().len(), merges));
        self.sketch.clear();
    }

    /// Forgets what passes have gathered but the seams and merges, so that another pass can begin.
    pub fn begin_pass(&mut self) {
        self.workers.iter_mut().for_each(|worker| *worker = Worker::default());
        self.statistics = Statistics::default();
        self.documents = 0;
    }

    pub fn set_longest(&mut self, longest: usize) {
        self.spans.longest = Some(longest);
    }

    /// Every document counts as `weight` equal ones, in the statistics too; at most `MAX_WEIGHT`.
    pub fn add(&mut self, batch: &Batch, pass: Pass, weight: u32) -> Result<(), String> {
        if !(1..=MAX_WEIGHT).contains(&weight) {
            return Err(format!("a document has the weight {weight}; use 1 to {MAX_WEIGHT}"));
        }
        let chunks = parallel::chunks(&batch.offsets, CHUNK_BYTES);
        let (encoder, spans, specials, seen) = (&self.encoder, self.spans, &self.specials, self.seen.as_ref());
        let (sketch, base) = (&self.sketch, self.documents);
        // Looked at between batches only, so that threads do not decide what is sampled.
        let sampling = self.workers.iter().map(|worker| worker.statistics.sampled_cells).sum::<u64>() < SAMPLE_TOKENS;
        let threads = self.workers.len();
        if matches!(pass, Pass::Seams { .. }) {
            let n = encoder.tokens().len() + self.applied;
            self.workers.iter_mut().for_each(|worker| worker.tokens.resize(n, 0));
        }
        encoder.with_states(threads, |states| {
            let mut pairs: Vec<(&mut State, &mut Worker)> =
                states.iter_mut().map(Box::as_mut).zip(&mut self.workers).collect();
            parallel::for_each(&mut pairs, chunks.len(), |(state, worker), i| {
                for document in chunks[i].clone() {
                    let text = batch.document(document);
                    poll(text.len());
                    let every = match pass {
                        Pass::Seams { sample_every } if sampling => sample_every,
                        _ => 0,
                    };
                    let mut number = base + document;
                    worker.statistics.documents += weight as u64;
                    worker.statistics.bytes += weight as u64 * text.len() as u64;
                    specials.between(text, |text| {
                        encoder.spans(text, spans.unit, state, |span| match pass {
                            Pass::Lengths => worker.note_length(span.len(), weight),
                            _ => spans.pieces(span, |piece| {
                                // By its number in the document, so that threads do not decide.
                                let sampled = every > 0 && number % every == 0;
                                number += 1;
                                worker.merging(piece, seen, |worker, piece| {
                                    worker.gather(piece, pass, sampled, weight, sketch);
                                });
                            }),
                        })
                    })?;
                }
                Ok::<(), String>(())
            })
        })?;
        self.documents += batch.len();
        Ok(())
    }

    /// Bytes of the fragments that the pass has gathered so far, and of a merge loop over them.
    pub fn memory(&self) -> usize {
        self.workers.iter().map(|worker| worker.fragments.memory()).sum()
    }

    /// Ends a pass: adds up what the threads gathered.
    pub fn end_pass(&mut self) {
        let mut workers = std::mem::take(&mut self.workers).into_iter();
        let mut total = workers.next().expect("at least one thread");
        let threads = workers.len() + 1;
        for worker in workers {
            total.fragments.merge(worker.fragments);
            total.statistics.add(worker.statistics);
            total.tokens.iter_mut().zip(worker.tokens).for_each(|(sum, count)| *sum += count);
            for (length, n) in worker.lengths {
                *total.lengths.entry(length).or_default() += n;
            }
        }
        total.statistics.fragments = total.fragments.len() as u64;
        total.statistics.cells = total.fragments.n_tokens() as u64;
        self.statistics = total.statistics;
        if !total.tokens.is_empty() {
            self.token_counts = std::mem::take(&mut total.tokens);
        }
        self.workers = std::iter::once(total).chain((1..threads).map(|_| Worker::default())).collect();
    }

    /// Smallest length that at least `quantile` of the spans do not exceed.
    pub fn length_quantile(&self, quantile: f64) -> usize {
        let lengths = &self.workers[0].lengths;
        let wanted = (lengths.values().sum::<u64>() as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        let at_quantile = lengths.iter().find(|(_, n)| {
            seen += *n;
            seen >= wanted
        });
        at_quantile.map_or(1, |(&length, _)| length.max(1))
    }

    /// How often each phase-1 token occurs in the pieces, by id, after a pass over the seams.
    pub fn token_counts(&self) -> &[u64] {
        &self.token_counts
    }

    /// Merges the sample, to see how frequent merges are in it.
    pub fn merge_sample(
        &self,
        total: usize,
        rules: &MergeRules,
        progress: impl FnMut(&[Merge]) -> bool,
    ) -> Result<(Report, Stop), String> {
        let words = self.workers[0].fragments.words()?;
        let mut merging = self.merge_loop(words, rules, 1, RejectedPairs::default(), None);
        let stop = merging.run(total, PROGRESS, progress);
        Ok((merging.finish().0, stop))
    }

    /// Goes on from the merges found so far, which the fragments must have seen (`start_over`), until there are
    /// `total`, or none of the fragments' pairs is left with `min_count`, which must be at least the threshold they
    /// were cut at. The fragments are used up. `progress` gets the new merges.
    pub fn merge<'a>(
        &mut self,
        total: usize,
        rules: &MergeRules<'a>,
        min_count: u64,
        judge: Option<Judge<'a>>,
        progress: impl FnMut(&[Merge]) -> bool,
    ) -> Result<(&Report, Stop), String> {
        assert_eq!(self.applied, self.found.merges.len(), "the fragments have seen all merges");
        let rejected_pairs = std::mem::take(&mut self.rejected_pairs);
        let words = std::mem::take(&mut self.workers[0].fragments).into_words()?;
        let mut merging = self.merge_loop(words, rules, min_count, rejected_pairs, judge);
        let stop = merging.run(total.saturating_sub(self.found.merges.len()), PROGRESS, progress);
        let (report, rejected_pairs) = merging.finish();
        self.rejected_pairs = rejected_pairs;
        self.found.merges.extend(report.merges);
        self.found.rejected += report.rejected;
        self.found.too_long += report.too_long;
        self.found.already_tokens += report.already_tokens;
        self.found.selecting += report.selecting;
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
