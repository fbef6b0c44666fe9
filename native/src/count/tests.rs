use super::counter::{Counter, Spill};
use crate::pretokenize::scanner::Scanner;
use crate::text::{batch::Batch, unit::Unit};

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
