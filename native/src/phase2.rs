//! Phase 2 without documents: seams are counted, then the fragments between frequent seams.
//!
//! A phase-2 token that spans the seam of two adjacent tokens occurs at most as often as those two met in the
//! beginning. So if no merge below a count of τ will be made, every seam rarer than τ is a cut. What is left
//! falls into short fragments that repeat, and they are counted as phase 1 counts words. Seams are counted in a
//! hashed sketch that can only over-estimate: too few cuts, never a wrong one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::corpus::Batch;
use crate::counting::{Specials, Unit};
use crate::encoding::{Encoder, Room, State, Superwords};
use crate::fragments::Fragments;
use crate::interrupt::poll;
pub use crate::merging::Judge;
use crate::merging::{Merge, MergeLoop, Refused, Report, Special, Stop, Tie, Veto, Words};
use crate::parallel;

const CHUNK_BYTES: usize = 1 << 17;
/// Counters of the sketch. Its noise is (rare seams / counters), τ a few millionths of all seams: whatever the
/// size of the corpus, the noise stays at some 5 % of τ.
const SKETCH: usize = 1 << 22;
const SATURATED: u32 = u32::MAX / 2;
/// Greatest weight of a document: so many threads as there may be, each adding it at once, stay above SATURATED and
/// below the counter's end.
pub const MAX_WEIGHT: u32 = 1_000_000;
/// Phase-1 tokens after which the sample is large enough, whatever the corpus: some 40 MB of text.
const SAMPLE_TOKENS: u64 = 10_000_000;
const PROGRESS: std::time::Duration = std::time::Duration::from_millis(100);

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
    /// Tokens of the sample.
    pub sampled_tokens: u64,
    /// The same, whatever the weights of their documents.
    pub sampled_cells: u64,
}

/// What one thread gathers in a pass.
#[derive(Default)]
struct Worker {
    fragments: Fragments,
    statistics: Statistics,
    lengths: BTreeMap<usize, u64>,
    /// How often each token occurs, by id.
    tokens: Vec<u64>,
    room: Room,
    merged: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub enum Pass {
    /// Histogram of span lengths.
    Lengths,
    /// Counts seams and tokens; every n-th piece is also kept whole, as a sample (0: none is).
    Seams { sample_every: usize },
    /// Counts fragments between seams that occur at least `threshold` times.
    Fragments { threshold: u32 },
}

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
    sketch: Vec<AtomicU32>,
    workers: Vec<Worker>,
    pub statistics: Statistics,
    documents: usize,
    token_counts: Vec<u64>,
    /// What `merge` found until now, at thresholds that were too high for all of it.
    found: Report,
    refused: Refused,
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
            sketch: (0..SKETCH).map(|_| AtomicU32::new(0)).collect(),
            workers: (0..threads.max(1)).map(|_| Worker::default()).collect(),
            statistics: Statistics::default(),
            documents: 0,
            token_counts: Vec::new(),
            found: Report::default(),
            refused: Refused::default(),
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
        self.sketch.iter_mut().for_each(|counter| *counter.get_mut() = 0);
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
        let mut merging = self.merge_loop(words, rules, 1, Refused::default(), None);
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
        let refused = std::mem::take(&mut self.refused);
        let words = std::mem::take(&mut self.workers[0].fragments).into_words()?;
        let mut merging = self.merge_loop(words, rules, min_count, refused, judge);
        let stop = merging.run(total.saturating_sub(self.found.merges.len()), PROGRESS, progress);
        let (report, refused) = merging.finish();
        self.refused = refused;
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
        refused: Refused,
        judge: Option<Judge<'a>>,
    ) -> MergeLoop<'a> {
        let mut tokens = self.encoder.tokens().clone();
        let mut widths = vec![1u32; tokens.len()];
        for merge in &self.found.merges {
            let token = [tokens.get(merge.left), tokens.get(merge.right)].concat();
            tokens.push(&token);
            widths.push(widths[merge.left as usize].saturating_add(widths[merge.right as usize]));
        }
        let special =
            Special { max_tokens: rules.max_tokens, widths, non_overlapping: rules.non_overlapping, refused, judge };
        MergeLoop::with(words, tokens, rules.tie, rules.veto, min_count, special)
    }
}

impl Statistics {
    fn add(&mut self, other: Self) {
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
    /// What is left of a span: truncated, then cut if it is longer than the trigger.
    fn pieces(&self, span: &[u32], mut piece: impl FnMut(&[u32])) {
        let span = &span[..span.len().min(self.longest.unwrap_or(usize::MAX))];
        if self.trigger.is_some_and(|trigger| span.len() > trigger) {
            span.chunks(self.cap).for_each(piece);
        } else {
            piece(span);
        }
    }
}

impl Worker {
    fn note_length(&mut self, length: usize, weight: u32) {
        *self.lengths.entry(length).or_default() += weight as u64;
    }

    /// Hands on the piece with the merges that it is to have seen.
    #[inline(always)]
    fn merging(&mut self, piece: &[u32], seen: Option<&Superwords>, gather: impl FnOnce(&mut Self, &[u32])) {
        let Some(seen) = seen else { return gather(self, piece) };
        let mut merged = std::mem::take(&mut self.merged);
        merged.clear();
        seen.apply(piece, &mut self.room, &mut merged);
        gather(self, &merged);
        self.merged = merged;
    }

    fn gather(&mut self, piece: &[u32], pass: Pass, sampled: bool, weight: u32, sketch: &[AtomicU32]) {
        let times = weight as u64;
        self.statistics.spans += times;
        self.statistics.tokens += times * piece.len() as u64;
        self.statistics.seams += times * piece.len().saturating_sub(1) as u64;
        match pass {
            Pass::Lengths => unreachable!("spans are measured before they are cut"),
            Pass::Seams { .. } => {
                piece.iter().for_each(|&token| self.tokens[token as usize] += times);
                for seam in piece.windows(2) {
                    let counter = &sketch[slot(seam[0], seam[1])];
                    if counter.load(Ordering::Relaxed) < SATURATED {
                        counter.fetch_add(weight, Ordering::Relaxed);
                    }
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
                    if sketch[slot(piece[at - 1], piece[at])].load(Ordering::Relaxed) < threshold {
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

#[inline(always)]
fn slot(left: u32, right: u32) -> usize {
    let pair = (left as u64) << 32 | right as u64;
    let mixed = (pair ^ (pair >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 40) as usize & (SKETCH - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::{tests::*, Definition};
    use crate::patterns::Scanner;

    #[test]
    fn any_threshold_and_thread_count_gives_the_same_merges() {
        let mut random = Random(11);
        for case in 0..60 {
            let (tokens, merges) = random_merges(&mut random, 4, 6);
            let mut batch = Batch::default();
            for _ in 0..60 {
                let length = random.below(60);
                let text: Vec<u8> = (0..length).map(|_| b"abcd \n"[random.below(6)]).collect();
                batch.push(&text);
            }
            let veto = Veto {
                max_words: (case % 3 == 0).then_some(2),
                max_bytes: (case % 4 == 0).then_some(6),
                ..Veto::default()
            };
            let spans = Spans {
                unit: if case % 2 == 0 { Unit::Line } else { Unit::Document },
                trigger: (case % 5 == 0).then_some(8),
                cap: 4,
                longest: (case % 7 == 0).then_some(20),
            };
            let trainer = |threads, sample_every| {
                let encoder = Encoder::new(Definition {
                    tokens: tokens.clone(),
                    byte_ids: std::array::from_fn(|i| i as u32),
                    merges: merges.clone(),
                    phase1: merges.len(),
                    scanner: Scanner::new(" b").unwrap(),
                    fence: None,
                    eligible: None,
                });
                let mut trainer = Trainer::new(encoder, spans, Specials::new(&[]).unwrap(), threads);
                trainer.add(&batch, Pass::Seams { sample_every }, 1).unwrap();
                trainer.end_pass();
                trainer
            };
            // The sample is everything: nothing is cut.
            let rules = MergeRules {
                tie: Tie::LowestIds,
                veto: &veto,
                max_tokens: (case % 3 == 1).then_some(3),
                non_overlapping: case % 2 == 1,
            };
            let (whole, _) = trainer(1, 1).merge_sample(30, &rules, |_| true).unwrap();
            for threads in [1, 3] {
                for threshold in [1, 2, 5, 20] {
                    let expected: Vec<Merge> =
                        whole.merges.iter().copied().take_while(|merge| merge.count >= threshold as u64).collect();
                    let mut cut = trainer(threads, 1000);
                    let found = |cut: &mut Trainer, threshold| {
                        cut.begin_pass();
                        cut.add(&batch, Pass::Fragments { threshold }, 1).unwrap();
                        cut.end_pass();
                        assert!(cut.memory() > 0 || cut.statistics.fragments == 0);
                        assert_eq!(cut.statistics.bytes, batch.data.len() as u64);
                        cut.merge(30, &rules, threshold as u64, None, |_| true).unwrap().0.merges.clone()
                    };
                    assert_eq!(found(&mut cut, threshold), expected, "case {case}, threshold {threshold}");
                    cut.start_over();
                    cut.begin_pass();
                    cut.add(&batch, Pass::Seams { sample_every: 0 }, 1).unwrap();
                    cut.end_pass();
                    // Too high: going on at a lower one gives what the lower one gives alone.
                    assert_eq!(found(&mut cut, 1), whole.merges, "case {case}, from threshold {threshold} on");
                }
            }
        }
    }
}
