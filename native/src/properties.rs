//! Properties of generated and changed input: nothing panics, and results equal those of the naive reference.
//!
//! FUZZ_CASES sets the number of cases, which are then new in each run. Failures are kept in `proptest-regressions`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, Index};
use proptest::test_runner::RngSeed;
use serde_json::Value;

use crate::count::counter::{Counter, Spill};
use crate::encode::encoder::Encoder;
use crate::encode::stream::text::TextStream;
use crate::encode::tests::{encode_all, one_pass, plain_ids};
use crate::pretokenize::tests::{by_regex, cut, scalar_cut, ALPHABET, ASCII};
use crate::pretokenize::{patterns::NAMED, scanner::Scanner};
use crate::text::batch::Batch;
use crate::text::read::{input::Input, reader::Reader, settings::Format, tests::settings};
use crate::text::unit::Unit;
use crate::train::options::{Phase2Options, Tie, Veto};
use crate::train::report::Stop;
use crate::train::tests::{fast, naive};
use crate::vocabulary::{MergeRule, Tokens};

fn config(cases: u32) -> ProptestConfig {
    let more = std::env::var("FUZZ_CASES").ok().map(|cases| cases.parse().expect("FUZZ_CASES is a number"));
    let rng_seed = if more.is_some() { RngSeed::Random } else { RngSeed::Fixed(1) };
    ProptestConfig { cases: more.unwrap_or(cases), rng_seed, ..ProptestConfig::default() }
}

/// Any text, mostly of the characters that patterns distinguish.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => select(ASCII).prop_map(String::from),
        3 => select(ALPHABET).prop_map(String::from),
        1 => any::<char>().prop_map(String::from),
        1 => (select(ALPHABET), 1..70usize).prop_map(|(part, n)| part.repeat(n)),
    ];
    vec(part, 0..40).prop_map(|parts| parts.concat())
}

/// Bytes of a few letters, in which merges meet.
fn letters() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![5 => b'a'..=b'c', 1 => Just(b' ')], 0..50)
}

/// Replaces, removes or repeats bytes of a file.
fn changed(content: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop_oneof![any::<u8>(), select(b"\"{}[],:\\ 0-9eN".to_vec())];
    vec((any::<Index>(), bytes, 0..4usize, 0..3usize), 0..4).prop_map(move |changes| {
        let mut content = content.as_bytes().to_vec();
        for (at, byte, n_removed, n_added) in changes {
            let start = at.index(content.len() + 1);
            let end = (start + n_removed).min(content.len());
            content.splice(start..end, std::iter::repeat_n(byte, n_added));
        }
        content
    })
}

/// Merges of bytes and earlier products; no string is produced twice.
fn rules() -> impl Strategy<Value = (Tokens, Vec<MergeRule>)> {
    vec((any::<Index>(), any::<Index>()), 0..25).prop_map(|pairs| {
        let mut tokens = Tokens::default();
        (0..=255u8).for_each(|byte| {
            tokens.push(&[byte]);
        });
        let mut known: Vec<u32> = b"abc ".iter().map(|&byte| u32::from(byte)).collect();
        let mut rules = Vec::new();
        for (left, right) in pairs {
            let (left, right) = (*left.get(&known), *right.get(&known));
            let bytes = [tokens.get(left), tokens.get(right)].concat();
            if bytes.len() < 12 && known.iter().all(|&id| tokens.get(id) != bytes) {
                let new = tokens.push(&bytes);
                known.push(new);
                rules.push(MergeRule { left, right, new });
            }
        }
        (tokens, rules)
    })
}

static SCANNERS: LazyLock<Vec<(&str, Scanner, Scanner)>> = LazyLock::new(|| {
    let named = NAMED.iter().filter(|(name, _, _)| *name != "none");
    named.map(|(name, pattern, _)| (*name, Scanner::new(pattern).unwrap(), by_regex(pattern))).collect()
});

const LINES: &str = concat!(
    r#"{"text": "one\u00e9\ud83d\ude00", "n": [1.5e3, null]}"#,
    "\n\n",
    r#"{"id": {"text": 1}, "text": "two\n\"three\""}"#,
    "\r\n",
    r#"{"text": null}"#,
    "\n",
    r#"{"text": "日本語 🙂", "text2": "x"}"#,
);
static FILES: AtomicUsize = AtomicUsize::new(0);

fn documents(content: &[u8], batch_bytes: usize) -> Result<Vec<String>, String> {
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("superbpe-property-{}-{number}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    let settings = crate::text::read::settings::Settings { batch_bytes, ..settings() };
    let batches: Result<Vec<_>, _> =
        Reader::start(vec![Input { path: path.clone(), format: Format::JsonLines, feed: None }], settings, 1, true)
            .unwrap()
            .collect();
    std::fs::remove_file(path).unwrap();
    let texts =
        |batch: &Batch| (0..batch.len()).map(|i| String::from_utf8(batch.document(i).to_vec()).unwrap()).collect();
    Ok(batches?.iter().flat_map(|batch| -> Vec<String> { texts(batch) }).filter(|text| !text.is_empty()).collect())
}

/// Texts of JSON lines; None if one of them is not an object with a text.
fn parsed(content: &[u8]) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    for line in content.split(|&byte| byte == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace)) {
        let value: Value = serde_json::from_slice(line).ok()?;
        match value.as_object()?.get("text")? {
            Value::Null => {}
            text => texts.push(text.as_str()?.to_string()),
        }
    }
    texts.retain(|text| !text.is_empty());
    Some(texts)
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn scanners_cut_any_text_like_their_regexes(text in text(), which in any::<Index>()) {
        let (name, fast, slow) = which.get(&SCANNERS);
        prop_assert_eq!(cut(fast, text.as_bytes()), cut(slow, text.as_bytes()), "{}", name);
    }

    #[test]
    fn windows_cut_any_bytes_like_scalar_scanners(text in text(), junk in vec((any::<Index>(), any::<u8>()), 0..5)) {
        let mut text = text.into_bytes();
        for (at, byte) in junk {
            text.insert(at.index(text.len() + 1), byte);
        }
        for (name, _, kind) in NAMED {
            prop_assert_eq!(cut(&Scanner::Named(*kind), &text), scalar_cut(*kind, &text), "{}", name);
        }
    }

    #[test]
    fn ids_equal_plain_merging(
        (tokens, merges) in rules(),
        phase1 in any::<Index>(),
        texts in vec(letters(), 0..6),
        pattern in select(vec!["", "b", NAMED[0].1]),
        threads in 1..3usize,
        parts in vec(any::<Index>(), 0..4),
    ) {
        let encoder = Encoder::new(one_pass(&tokens, &merges, phase1.index(merges.len() + 1), pattern));
        for (text, ids) in texts.iter().zip(encode_all(&encoder, &texts, threads)) {
            let expected = plain_ids(&encoder.definition().scanner, text, &merges);
            prop_assert_eq!(&ids, &expected);
            let mut ends: Vec<usize> = parts.iter().map(|at| at.index(text.len() + 1)).collect();
            ends.sort_unstable();
            let (mut stream, mut streamed, mut start) = (TextStream::default(), Vec::new(), 0);
            encoder
                .with_state(|state| {
                    for &end in ends.iter().chain([&text.len()]) {
                        stream.push(&text[start..end], &encoder, 1 << 20, state, &mut streamed)?;
                        start = end;
                    }
                    stream.finish(&encoder, state, &mut streamed)
                })
                .unwrap();
            prop_assert_eq!(streamed, expected);
        }
    }

    #[test]
    fn merges_equal_the_definition(
        words in vec((letters(), 1..1000u64), 0..8),
        tie in select(vec![Tie::LowestIds, Tie::LexicographicGreatest, Tie::LexicographicSmallest]),
        min_count in 0..4u64,
        non_overlapping in any::<bool>(),
        max_bytes in proptest::option::of(2..8usize),
        max_words in proptest::option::of(1..3usize),
        max_tokens in proptest::option::of(2..6u32),
        forbid in vec(letters().prop_map(|part| part[..part.len().min(2)].to_vec()), 0..2),
        reserved in vec(letters().prop_map(|part| part[..part.len().min(3)].to_vec()), 0..2),
    ) {
        let words: Vec<(Vec<u32>, u64)> =
            words.into_iter().map(|(word, n)| (word.into_iter().map(u32::from).collect(), n)).collect();
        let veto = Veto { max_bytes, max_words, forbid, reserved };
        let options = Phase2Options { non_overlapping, max_tokens, ..Phase2Options::default() };
        let (found, stop) = fast(&words, 20, tie, &veto, min_count, options);
        prop_assert_eq!(stop == Stop::Full, found.len() == 20);
        prop_assert_eq!(found, naive(&words, 20, tie, &veto, min_count, non_overlapping, max_tokens));
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn counts_equal_a_map(
        texts in vec(text(), 1..5), which in any::<Index>(), threads in 1..4usize, spilled in any::<bool>()
    ) {
        let (name, pattern, _) = which.get(NAMED);
        let folder = std::env::temp_dir()
            .join(format!("superbpe-property-{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir_all(&folder).unwrap();
        let spill = spilled.then(|| Spill { memory: 1, folder: folder.clone() });
        let mut counter = Counter::new(Scanner::new(pattern).unwrap(), Unit::Document, &[], spill, threads).unwrap();
        let mut expected = BTreeMap::<Vec<u8>, u64>::new();
        for text in &texts {
            let mut batch = Batch::default();
            batch.push(text.as_bytes());
            counter.add(&batch).unwrap();
            for ends in cut(&Scanner::new(pattern).unwrap(), text.as_bytes()).windows(2) {
                *expected.entry(text.as_bytes()[ends[0]..ends[1]].to_vec()).or_default() += 1;
            }
        }
        let counts = counter.finish().unwrap();
        std::fs::remove_dir(folder).unwrap();
        let pieces = counts.offsets.windows(2).map(|ends| counts.data[ends[0] as usize..ends[1] as usize].to_vec());
        prop_assert_eq!(pieces.zip(counts.counts.iter().copied()).collect::<BTreeMap<_, _>>(), expected, "{}", name);
    }

    #[test]
    fn changed_lines_are_errors_or_read_as_they_are(content in changed(LINES), batch_bytes in 1..100usize) {
        let found = documents(&content, batch_bytes).ok();
        prop_assert_eq!(&found, &documents(&content, 1 << 20).ok());
        if let Some(expected) = parsed(&content) {
            prop_assert_eq!(found, Some(expected));
        }
    }
}
