use super::partial::Table;
use super::sample::Size;
use super::trainer::{MergeRules, SampleLimits, Trainer};
use super::worker::{Pass, Spans};
use crate::encode::encoder::Encoder;
use crate::encode::tests::{one_pass, random_merges};
use crate::runtime::random::Random;
use crate::text::{batch::Batch, specials::Specials, unit::Unit};
use crate::train::options::{Tie, Veto};
use crate::train::report::Merge;
use crate::vocabulary::{MergeRule, Tokens};

const UNLIMITED: SampleLimits = SampleLimits { cells: u64::MAX, memory: usize::MAX };

fn new_trainer(tokens: &Tokens, merges: &[MergeRule], spans: Spans, limits: SampleLimits, threads: usize) -> Trainer {
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

/// Counts batches, each with its weight: its number plus 1.
fn pass<'a>(trainer: &mut Trainer, pass: Pass, batches: impl IntoIterator<Item = (u32, &'a Batch)>) {
    trainer.begin_pass();
    batches.into_iter().for_each(|(i, batch)| trainer.add(batch, pass, i + 1).unwrap());
    trainer.end_pass();
}

#[test]
fn parts_add_up_to_the_whole() {
    let mut random = Random(5);
    for case in 0..40 {
        let (tokens, merges) = random_merges(&mut random, 4, 6);
        let n_parts = [1, 2, 3, 7][case % 4];
        let batches = random_batches(&mut random, n_parts);
        let spans = Spans { unit: Unit::Line, trigger: None, cap: 4, longest: (case % 3 == 0).then_some(20) };
        let limits = match case % 5 {
            0 => SampleLimits { cells: 100, memory: usize::MAX },
            1 => SampleLimits { cells: u64::MAX, memory: 3000 },
            _ => UNLIMITED,
        };
        let trainer = || new_trainer(&tokens, &merges, spans, limits, 1);
        let (mut whole, mut sum) = (trainer(), trainer());
        let mut parts: Vec<Trainer> = batches.iter().map(|_| trainer()).collect();
        let threshold = [1, 3, 20][case % 3];
        for stage in 0..2 {
            let seams = Pass::Seams { sample_every: [1, 2][case % 2] };
            for (kind, tables) in [
                (Pass::Lengths, &[Table::Lengths][..]),
                (seams, &[Table::Seams, Table::Tokens, Table::Sample]),
                (Pass::Fragments { threshold }, &[Table::Fragments]),
            ] {
                let of_part = match kind {
                    Pass::Fragments { .. } => Pass::Fragments { threshold: 1 },
                    other => other,
                };
                pass(&mut whole, kind, (0..).zip(&batches));
                sum.begin_pass();
                for (i, part) in parts.iter_mut().enumerate().rev() {
                    pass(part, of_part, [(i as u32, &batches[i])]);
                    for (name, count) in part.statistics.sums() {
                        sum.add_statistic(name, *count).unwrap();
                    }
                    let (lowest, sizes) = part.sample_sizes();
                    sum.add_sample_sizes(lowest, &sizes).unwrap();
                    for &table in tables {
                        sum.add_rows(table, part.rows(table).iter()).unwrap();
                    }
                }
                sum.end_pass();
                let about = format!("case {case}, stage {stage}, {kind:?}");
                assert_eq!(format!("{:?}", sum.statistics), format!("{:?}", whole.statistics), "{about}");
                assert_eq!(sum.memory(), whole.memory(), "{about}");
                assert_eq!(sum.sample_sizes(), whole.sample_sizes(), "{about}");
                tables.iter().for_each(|&table| assert_eq!(sum.rows(table), whole.rows(table), "{about}, {table:?}"));
                if matches!(kind, Pass::Seams { .. }) {
                    let live = sum.live_seams(threshold);
                    parts.iter_mut().for_each(|part| part.set_live_seams(&live).unwrap());
                }
            }
            let veto = Veto::default();
            let rules = MergeRules { tie: Tie::LowestIds, veto: &veto, max_tokens: None, non_overlapping: false };
            let merged = [&mut whole, &mut sum].map(|trainer| {
                trainer.merge(10 * (stage + 1), &rules, threshold.into(), None, |_| true).unwrap().0.merges.clone()
            });
            assert_eq!(merged[0], merged[1]);
            let pairs: Vec<(u32, u32)> = merged[0].iter().map(|merge| (merge.left, merge.right)).collect();
            whole.start_over();
            sum.start_over();
            parts.iter_mut().for_each(|part| part.apply(&pairs).unwrap());
        }
    }
}

#[test]
fn rows_that_do_not_fit_are_errors() {
    let (tokens, merges) = random_merges(&mut Random(1), 4, 6);
    let spans = Spans { unit: Unit::Line, trigger: None, cap: 4, longest: None };
    let mut trainer = new_trainer(&tokens, &merges, spans, UNLIMITED, 1);
    let n = tokens.len() as u32;
    for (table, key) in [
        (Table::Lengths, &[][..]),
        (Table::Tokens, &[n]),
        (Table::Seams, &[1 << 22]),
        (Table::Sample, &[65, 1]),
        (Table::Sample, &[0, n]),
        (Table::Fragments, &[1, n]),
    ] {
        assert!(trainer.add_rows(table, [(key, 1)].into_iter()).unwrap_err().contains("is not a key"), "{table:?}");
    }
    for (table, key) in [(Table::Lengths, &[3][..]), (Table::Tokens, &[1]), (Table::Fragments, &[1, 2])] {
        trainer.add_rows(table, [(key, u64::MAX)].into_iter()).unwrap();
        assert!(trainer.add_rows(table, [(key, 1)].into_iter()).unwrap_err().contains("does not fit 64 bits"));
    }
    assert!(trainer.apply(&[(0, 1), (n + 1, 0)]).is_err());
    assert!(trainer.add_statistic("cells", 1).is_err());
    assert!(trainer.add_sample_sizes(65, &[Size::default()]).is_err());
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
        let spans = Spans {
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
