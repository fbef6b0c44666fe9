use std::time::Duration;

use super::options::{Phase2Options, Tie, Veto};
use super::report::{Merge, Stop};
use super::{cells::Words, merge_loop::MergeLoop};
use crate::vocabulary::Tokens;

fn bytes() -> Tokens {
    let mut tokens = Tokens::default();
    (0..=255u8).for_each(|byte| {
        tokens.push(&[byte]);
    });
    tokens
}

/// The algorithm by its definition: count everything, merge, repeat.
pub fn naive(
    words: &[(Vec<u32>, u64)],
    n: usize,
    tie: Tie,
    veto: &Veto,
    min_count: u64,
    non_overlapping: bool,
    max_tokens: Option<u32>,
) -> Vec<Merge> {
    let mut words = words.to_vec();
    let mut tokens = bytes();
    let mut dropped = std::collections::HashSet::new();
    let mut merges = Vec::new();
    while merges.len() < n {
        let mut counts = std::collections::HashMap::<(u32, u32), u64>::new();
        for (word, weight) in &words {
            let mut row = 0; // pairs of one token and itself, in a row
            for pair in word.windows(2) {
                row = if pair[0] == pair[1] { row + 1 } else { 0 };
                if !non_overlapping || row % 2 == 1 || row == 0 {
                    *counts.entry((pair[0], pair[1])).or_default() += weight;
                }
            }
        }
        counts.retain(|pair, count| !dropped.contains(pair) && *count >= min_count.max(1));
        let text = |&(l, r): &(u32, u32)| (tokens.get(l).to_vec(), tokens.get(r).to_vec());
        let best = counts.iter().max_by(|(p, c), (q, d)| {
            c.cmp(d).then_with(|| match tie {
                Tie::LowestIds => q.cmp(p),
                Tie::LexicographicGreatest => text(p).cmp(&text(q)),
                Tie::LexicographicSmallest => text(q).cmp(&text(p)),
            })
        });
        let Some((&(left, right), &count)) = best else { break };
        let token = [tokens.get(left), tokens.get(right)].concat();
        // The initial tokens here are bytes.
        let too_wide = max_tokens.is_some_and(|most| token.len() > most as usize);
        if too_wide || veto.rejects(&token) || (0..tokens.len() as u32).any(|id| tokens.get(id) == token) {
            dropped.insert((left, right));
            continue;
        }
        let new = tokens.push(&token);
        for (word, _) in &mut words {
            let mut merged = Vec::new();
            let mut i = 0;
            while i < word.len() {
                if i + 1 < word.len() && word[i] == left && word[i + 1] == right {
                    merged.push(new);
                    i += 2;
                } else {
                    merged.push(word[i]);
                    i += 1;
                }
            }
            *word = merged;
        }
        merges.push(Merge { left, right, count });
    }
    merges
}

pub fn fast<'a>(
    words: &[(Vec<u32>, u64)],
    n: usize,
    tie: Tie,
    veto: &'a Veto,
    min_count: u64,
    phase2: Phase2Options<'a>,
) -> (Vec<Merge>, Stop) {
    let weights: Vec<u64> = words.iter().map(|(_, weight)| *weight).collect();
    let cells = Words::new(&weights, |i| words[i].0.iter().copied()).unwrap();
    let mut merging = MergeLoop::with_phase2(cells, bytes(), tie, veto, min_count, phase2);
    let stop = merging.run(n, Duration::MAX, |_| true);
    (merging.report.merges, stop)
}

#[test]
fn equal_to_the_definition_on_generated_corpora() {
    let mut state = 1u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % n
    };
    for case in 0..3000 {
        let letters = 1 + below(4);
        let scale = [1, 3, 1000][case % 3];
        let words: Vec<(Vec<u32>, u64)> = (0..1 + below(8))
            .map(|_| {
                let word = (0..below(14)).map(|_| 97 + below(letters) as u32).collect();
                (word, (1 + below(4)) * scale)
            })
            .collect();
        let tie = [Tie::LowestIds, Tie::LexicographicGreatest, Tie::LexicographicSmallest][below(3) as usize];
        let veto = Veto {
            max_bytes: (below(3) == 0).then(|| 2 + below(4) as usize),
            forbid: if below(4) == 0 { vec![b"aba".to_vec()] } else { vec![] },
            reserved: if below(4) == 0 { vec![b"ab".to_vec()] } else { vec![] },
            max_words: None,
        };
        let min_count = below(4);
        let non_overlapping = below(2) == 0;
        let max_tokens = (below(4) == 0).then(|| 2 + below(4) as u32);
        let options = Phase2Options { non_overlapping, max_tokens, ..Phase2Options::default() };
        let (merges, stop) = fast(&words, 12, tie, &veto, min_count, options);
        let expected = naive(&words, 12, tie, &veto, min_count, non_overlapping, max_tokens);
        assert_eq!(merges, expected, "{case}: {words:?} {tie:?} {veto:?} {non_overlapping} {max_tokens:?}");
        assert_eq!(stop == Stop::Full, merges.len() == 12);
    }
}

#[test]
fn vetoes() {
    let veto = Veto { max_words: Some(2), forbid: vec![b": ".to_vec()], ..Veto::default() };
    assert!(!veto.rejects(b" of  the"));
    assert!(veto.rejects(b"a b c"));
    assert!(veto.rejects(b"x: y"));
}
