use super::trainer::{MergeRules, SampleLimits, Trainer};
use super::worker::{Pass, SpanLimits};
use crate::encode::encoder::Encoder;
use crate::encode::tests::{one_pass, random_merges};
use crate::runtime::random::Random;
use crate::text::{batch::Batch, specials::Specials, unit::Unit};
use crate::train::options::{Tie, Veto};
use crate::train::report::Merge;
use crate::vocabulary::{MergeRule, Tokens};

const UNLIMITED: SampleLimits = SampleLimits { cells: u64::MAX, memory: usize::MAX };

fn new_trainer(
    tokens: &Tokens,
    merges: &[MergeRule],
    spans: SpanLimits,
    limits: SampleLimits,
    threads: usize,
) -> Trainer {
    let encoder = Encoder::new(one_pass(tokens, merges, merges.len(), " b"));
    Trainer::new(encoder, spans, limits, Specials::without_ids(&[]).unwrap(), threads)
}

fn random_batches(random: &mut Random, n: usize) -> Vec<Batch> {
    let mut batches: Vec<Batch> = (0..n).map(|_| Batch::default()).collect();
    for _ in 0..60 {
        let length = random.below(60);
        let text: Vec<u8> = (0..length).map(|_| b"abcd \n"[random.below(6)]).collect();
        batches[random.below(n)].push(&text);
    }
    batches
}

#[test]
fn any_threshold_and_thread_count_gives_the_same_merges() {
    let mut random = Random(11);
    for case in 0..60 {
        let (tokens, merges) = random_merges(&mut random, 4, 6);
        let batch = random_batches(&mut random, 1).remove(0);
        let veto = Veto {
            max_words: (case % 3 == 0).then_some(2),
            max_bytes: (case % 4 == 0).then_some(6),
            ..Veto::default()
        };
        let spans = SpanLimits {
            unit: if case % 2 == 0 { Unit::Line } else { Unit::Document },
            trigger: (case % 5 == 0).then_some(8),
            cap: 4,
            longest: (case % 7 == 0).then_some(20),
        };
        let trainer = |threads, sample_every| {
            let mut trainer = new_trainer(&tokens, &merges, spans, UNLIMITED, threads);
            trainer.add(&batch, Pass::Seams { sample_every }, 1).unwrap();
            trainer.end_pass();
            trainer
        };
        // The sample contains everything, and nothing is cut.
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
                    assert_eq!(cut.statistics.bytes, batch.data.len() as u64);
                    cut.merge(30, &rules, threshold as u64, None, |_| true).unwrap().0.merges.clone()
                };
                assert_eq!(found(&mut cut, threshold), expected, "case {case}, threshold {threshold}");
                cut.start_over();
                cut.begin_pass();
                cut.add(&batch, Pass::Seams { sample_every: 0 }, 1).unwrap();
                cut.end_pass();
                // The threshold was too high: continuing at a lower one gives the result of the lower one alone.
                assert_eq!(found(&mut cut, 1), whole.merges, "case {case}, from threshold {threshold} on");
            }
        }
    }
}
