use super::counter::{Counter, Spill};
use super::counts::Counts;
use crate::pretokenize::{patterns::NAMED, scanner::Scanner};
use crate::text::{batch::Batch, specials::Specials, unit::Unit};

fn scanner() -> Scanner {
    Scanner::new(NAMED[0].1).unwrap()
}

fn count(batches: &[Batch], threads: usize, memory: Option<usize>, name: &str) -> Counts {
    let folder = std::env::temp_dir().join(format!("superbpe-count-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let spill = memory.map(|memory| Spill { memory, folder: folder.clone() });
    let mut counter = Counter::new(scanner(), Unit::Document, &["<|s|>".to_string()], spill, threads).unwrap();
    batches.iter().for_each(|batch| counter.add(batch).unwrap());
    assert_eq!(counter.n_spilled() > 0, memory.is_some(), "what does not fit is spilled");
    let counts = counter.finish().unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "runs are deleted");
    std::fs::remove_dir(folder).unwrap();
    counts
}

#[test]
fn counts_do_not_depend_on_threads_or_memory() {
    let mut batches = vec![Batch::default()];
    let text = "the cat\0 the\0 cat and a very-long-pretoken-indeed-it-is and antidisestablishmentarianism ";
    batches[0].push(text.repeat(50).as_bytes());
    batches[0].push(b"");
    batches[0].push("the the <|s|>the antidisestablishmentarianism".as_bytes());
    let mut state = 1u64;
    for _ in 0..90 {
        let mut batch = Batch::default();
        let mut words = String::new();
        for _ in 0..3000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            words += &format!(" w{:x}", state >> 48);
        }
        batch.push(words.as_bytes());
        batches.push(batch);
    }
    let mut expected = std::collections::BTreeMap::<Vec<u8>, u64>::new();
    let specials = Specials::without_ids(&["<|s|>".to_string()]).unwrap();
    for batch in &batches {
        for i in 0..batch.len() {
            specials
                .between(batch.document(i), |text| {
                    scanner().pieces(text, |s, e| *expected.entry(text[s..e].to_vec()).or_default() += 1)
                })
                .unwrap();
        }
    }
    for (case, (threads, memory)) in [(1, None), (3, None), (1, Some(1 << 19)), (2, Some(1))].into_iter().enumerate() {
        let counts = count(&batches, threads, memory, &case.to_string());
        let found: Vec<_> = (0..counts.counts.len())
            .map(|i| {
                let bytes = &counts.data[counts.offsets[i] as usize..counts.offsets[i + 1] as usize];
                (bytes.to_vec(), counts.counts[i])
            })
            .collect();
        assert_eq!(found, expected.clone().into_iter().collect::<Vec<_>>(), "{threads} {memory:?}");
    }
}

#[test]
fn a_long_document_is_shared_out() {
    let mut text = String::new();
    for i in 0..200_000 {
        text += &format!("w{}\n\n x{} ", i % 1000, i % 7);
    }
    let mut long = Batch::default();
    long.push(text.as_bytes());
    let mut expected = std::collections::BTreeMap::<Vec<u8>, u64>::new();
    scanner()
        .pieces(text.as_bytes(), |s, e| *expected.entry(text.as_bytes()[s..e].to_vec()).or_default() += 1)
        .unwrap();
    let counts = count(&[long], 3, None, "long");
    assert_eq!(counts.counts, expected.into_values().collect::<Vec<_>>());
}

#[test]
fn one_document_that_cannot_be_cut_stays_within_the_limit() {
    let words: String = (0..300_000).map(|i| format!(" {i:x}")).collect();
    let mut long = Batch::default();
    long.push(words.as_bytes());
    let folder = std::env::temp_dir().join(format!("superbpe-count-{}-uncut", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let spill = Spill { memory: 1 << 20, folder: folder.clone() };
    let scanner = Scanner::new(r" ?[0-9a-f]+").unwrap();
    let mut counter = Counter::new(scanner, Unit::Document, &[], Some(spill), 1).unwrap();
    counter.add(&long).unwrap();
    assert!(counter.n_spilled() > 10);
    assert_eq!(counter.finish().unwrap().counts, vec![1; 300_000]);
    std::fs::remove_dir(folder).unwrap();
}

#[test]
fn a_place_that_cannot_be_written_is_an_error() {
    let spill = Spill { memory: 1, folder: "/nonexistent/folder".into() };
    let mut counter = Counter::new(scanner(), Unit::Document, &[], Some(spill), 2).unwrap();
    let mut batch = Batch::default();
    batch.push(b"some text");
    assert!(counter.add(&batch).unwrap_err().contains("/nonexistent/folder"));
}
