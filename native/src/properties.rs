//! Properties of generated input: nothing panics, and results equal those of regexes and of plain merging. Training,
//! counting and files have theirs in Python, against the reference.
//!
//! FUZZ_CASES sets the number of cases, which are then new in each run. Failures are kept in `proptest-regressions`.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, Index};
use proptest::test_runner::RngSeed;

use crate::encode::encoder::Encoder;
use crate::encode::stream::text::TextStream;
use crate::encode::tests::{encode_all, one_pass, plain_ids};
use crate::pretokenize::tests::{by_regex, cut, scalar_cut, ALPHABET, ASCII};
use crate::pretokenize::{patterns::NAMED, scanner::Scanner};
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
}
