use super::trainer::{MergeRules, Trainer};
use super::worker::{Pass, Spans};
use crate::encode::{definition::Definition, encoder::Encoder, tests::random_merges};
use crate::pretokenize::scanner::Scanner;
use crate::runtime::random::Random;
use crate::text::{batch::Batch, specials::Specials, unit::Unit};
use crate::train::options::{Tie, Veto};
use crate::train::report::Merge;

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
                second_pass_fence: None,
                eligible: None,
            });
            let mut trainer = Trainer::new(encoder, spans, Specials::without_ids(&[]).unwrap(), threads);
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
                    assert!(cut.memory() > 0 || cut.statistics.fragments == 0);
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
