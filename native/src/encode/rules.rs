//! The meaning of a list of merges: which derivations can apply, and where superwords begin.

use super::definition::Definition;
use super::merge::{self, Scratch};
use super::pairs::{pair_merge, product, rank, Pairs, NO_MERGE};
use crate::vocabulary::MergeRule;

const NONE: u32 = u32::MAX;

/// A merge and its rank.
pub(super) struct Rule {
    pub(super) rank: u32,
    pub(super) merge: MergeRule,
}

/// The merges that count, by rank: the last merge of a repeated pair, and of several derivations of a token the live one.
/// Two-pass tokenizers keep all merges: a merge that is repeated in the other phase is a different merge.
pub(super) fn effective_rules(definition: &Definition) -> Vec<Rule> {
    let rules = definition.merges.iter().enumerate().map(|(rank, &merge)| Rule { rank: rank as u32, merge });
    if definition.second_pass_fence.is_some() {
        return rules.collect();
    }
    let ranked = (0..).zip(&definition.merges);
    let pairs: Pairs = ranked.map(|(rank, merge)| ((merge.left, merge.right), pair_merge(rank, merge.new))).collect();
    let mut rules: Vec<Rule> = rules.filter(|r| rank(pairs[&(r.merge.left, r.merge.right)]) == r.rank).collect();
    keep_live(&mut rules, &pairs, definition);
    rules
}

/// Of the derivations of a token, keeps the one that applies.
///
/// Merging inside a stretch of text does not depend on its surroundings as long as no merge crosses its ends: if the
/// lowest rank of the text is inside, it is the lowest inside. So wherever adjacent tokens c and d spell t, merging the
/// bytes of t alone passes through c, d as well. As merging is deterministic, it passes through no other two tokens.
fn keep_live(rules: &mut Vec<Rule>, pairs: &Pairs, definition: &Definition) {
    let mut derivations = vec![0u32; definition.tokens.len()];
    rules.iter().for_each(|rule| derivations[rule.merge.new as usize] += 1);
    let mut live: hashbrown::HashMap<u32, (u32, u32), rustc_hash::FxBuildHasher> = Default::default();
    let (mut ids, mut scratch) = (Vec::new(), Scratch::default());
    rules.retain(|Rule { merge, .. }| {
        if derivations[merge.new as usize] == 1 {
            return true;
        }
        let last = *live.entry(merge.new).or_insert_with(|| {
            // Merge without the last step. The last step joins all bytes of the token, so nothing follows it.
            let pair = |left: u32, right: u32| match pairs.get(&(left, right)) {
                Some(&found) if product(found) != merge.new => found,
                _ => NO_MERGE,
            };
            ids.clear();
            let bytes = definition.tokens.get(merge.new);
            ids.extend(bytes.iter().map(|&byte| definition.byte_ids[byte as usize]));
            merge::merge_sequence(&mut ids, pair, &mut scratch);
            match ids[..] {
                [left, right] => (left, right),
                _ => (NONE, NONE),
            }
        });
        last == (merge.left, merge.right)
    });
}

/// The rank at which a second level pays off: from there on, merges produce tokens with a word start inside, like
/// superwords, much more often than before. The number of merges if there is no such rank, as with every pattern that
/// cuts at word starts. Ids do not depend on it (see `levels`).
///
/// The change is where the number of such tokens so far falls most below its mean (CUSUM).
pub fn superword_rank(definition: &Definition) -> usize {
    let holds: Vec<bool> =
        definition.merges.iter().map(|merge| holds_a_start(definition.tokens.get(merge.new))).collect();
    let (n, all) = (holds.len() as i64, holds.iter().filter(|&&holds| holds).count() as i64);
    let (mut sum, mut least, mut change) = (0, 0, 0);
    for (rank, &holds) in holds.iter().enumerate() {
        if holds && sum < least {
            (least, change) = (sum, rank);
        }
        sum += if holds { n - all } else { -all };
    }
    let after = holds[change..].iter().filter(|&&holds| holds).count() as f64;
    if after > 0.0 && after >= SUPERWORDS * holds[change..].len() as f64 {
        change + holds[change..].iter().position(|&holds| holds).expect("there is one")
    } else {
        holds.len()
    }
}

/// Whether a space follows something other than white space.
fn holds_a_start(token: &[u8]) -> bool {
    token.windows(2).any(|pair| pair[1] == b' ' && !pair[0].is_ascii_whitespace())
}

/// Minimum share of superwords among later merges. In plain BPE, tokens with an inner space are rarer: odd white space,
/// or spaces after punctuation.
const SUPERWORDS: f64 = 0.05;

/// The merges that are equivalent to tiktoken's rule: any two neighbours that spell a token are merged, the token of
/// the lowest rank first. By the argument of `keep_live`, each token is only ever made of the two parts into which its
/// own bytes are merged.
///
/// `tokens`: bytes by rank. Returns the ranks of the two parts of each token, or None for single bytes and for tokens
/// that merging never produces.
pub fn recover_merges(tokens: &[Vec<u8>]) -> Vec<Option<(u32, u32)>> {
    let n = tokens.len() as u32;
    let ranks: hashbrown::HashMap<&[u8], u32, rustc_hash::FxBuildHasher> =
        tokens.iter().map(Vec::as_slice).zip(0..).collect();
    // Bytes that are not tokens get numbers after the ranks.
    let bytes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
    let number = |byte: u8| ranks.get(&[byte][..]).copied().unwrap_or(n + u32::from(byte));
    let spelled = |part: u32| tokens.get(part as usize).map_or_else(|| &bytes[(part - n) as usize][..], Vec::as_slice);
    let (mut parts, mut scratch) = (Vec::new(), Scratch::default());
    tokens
        .iter()
        .zip(0..)
        .map(|(token, rank)| {
            // Merge without the last step, as in `keep_live`.
            let pair = |left: u32, right: u32| match ranks.get(&[spelled(left), spelled(right)].concat()[..]) {
                Some(&new) if new != rank => pair_merge(new, new),
                _ => NO_MERGE,
            };
            parts.clear();
            parts.extend(token.iter().map(|&byte| number(byte)));
            merge::merge_sequence(&mut parts, pair, &mut scratch);
            match parts[..] {
                [left, right] if left < n && right < n => Some((left, right)),
                _ => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
