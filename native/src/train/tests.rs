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
    let stop = merging.run(n, |_| true);
    (merging.report.merges, stop)
}
