//! The meaning of a list of merges: which derivations can apply, and where superwords begin.

use super::merge::{self, Scratch};
use super::pairs::{pair_merge, product, rank, PairTable, NO_MERGE};
use super::{bits::Bits, definition::Definition};
use crate::vocabulary::MergeRule;

const NONE: u32 = u32::MAX;

/// A merge that can apply, and its rank.
pub(super) struct Rule {
    pub(super) rank: u32,
    pub(super) merge: MergeRule,
}

/// The merges that can apply, by rank: the last merge of a repeated pair, and the live derivation of each token.
/// Two-pass tokenizers keep all merges: a merge that is repeated in the other phase is a different merge.
pub(super) fn effective_rules(definition: &Definition) -> Vec<Rule> {
    let rules = definition.merges.iter().enumerate().map(|(rank, &merge)| Rule { rank: rank as u32, merge });
    if definition.second_pass_fence.is_some() {
        return rules.collect();
    }
    let mut pairs = PairTable::new(definition.merges.len());
    definition
        .merges
        .iter()
        .enumerate()
        .for_each(|(rank, m)| pairs.insert(m.left, m.right, pair_merge(rank as u32, m.new)));
    let mut rules: Vec<Rule> = rules.filter(|r| rank(pairs.get(r.merge.left, r.merge.right)) == r.rank).collect();
    keep_live(&mut rules, &pairs, definition);
    rules
}

/// Drops the derivations that never apply.
///
/// Merging inside a stretch of text does not depend on its surroundings as long as no merge crosses its ends: if the
/// lowest rank of the text is inside, it is the lowest inside. So wherever adjacent tokens c and d spell t, merging the
/// bytes of t alone passes through c, d as well. As merging is deterministic, it passes through no other two tokens.
pub(super) fn keep_live(rules: &mut Vec<Rule>, pairs: &PairTable, definition: &Definition) {
    let n = definition.tokens.len();
    let (mut once, mut several) = (Bits::new(n), Bits::new(n));
    let mut any = false;
    for Rule { merge, .. } in rules.iter() {
        if once.get(merge.new as usize) {
            several.set(merge.new as usize);
            any = true;
        }
        once.set(merge.new as usize);
    }
    if !any {
        return;
    }
    let mut live: hashbrown::HashMap<u32, (u32, u32), rustc_hash::FxBuildHasher> = Default::default();
    let (mut ids, mut scratch) = (Vec::new(), Scratch::default());
    rules.retain(|Rule { merge, .. }| {
        if !several.get(merge.new as usize) {
            return true;
        }
        let last = *live.entry(merge.new).or_insert_with(|| {
            // Merge without the last step. The last step joins all bytes of the token, so nothing follows it.
            let pair = |left: u32, right: u32| match pairs.get(left, right) {
                found if product(found) == merge.new => NO_MERGE,
                found => found,
            };
            ids.clear();
            let bytes = definition.tokens.get(merge.new);
            ids.extend(bytes.iter().map(|&byte| definition.byte_ids[byte as usize]));
            merge::merge(&mut ids, pair, &mut scratch);
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
pub fn superword_rank(definition: &Definition) -> usize {
    let merges = &definition.merges;
    change(merges.iter().map(|merge| holds_a_start(definition.tokens.get(merge.new)))).unwrap_or(merges.len())
}

/// Whether a space follows something other than white space.
fn holds_a_start(token: &[u8]) -> bool {
    token.windows(2).any(|pair| pair[1] == b' ' && !pair[0].is_ascii_whitespace())
}

/// Minimum share of superwords among later merges. In plain BPE, tokens with an inner space are rarer: odd white space,
/// or spaces after punctuation.
const SUPERWORDS: f64 = 0.05;

/// Change point of a sequence of booleans from a lower to a higher rate: the most likely position, with one rate on
/// either side.
fn change(answers: impl ExactSizeIterator<Item = bool> + Clone) -> Option<usize> {
    let n = answers.len() as f64;
    let all = answers.clone().filter(|&yes| yes).count() as f64;
    let surprise = |yes: f64, of: f64| {
        let term = |k: f64| if k > 0.0 { -k * (k / of).ln() } else { 0.0 };
        term(yes) + term(of - yes)
    };
    let (mut best, mut place, mut before) = (surprise(all, n), None, 0.0);
    for (i, yes) in answers.enumerate() {
        let (i_before, i_after) = (i as f64, n - i as f64);
        let (rate_before, rate_after) = (before / i_before.max(1.0), (all - before) / i_after);
        if yes && rate_after >= SUPERWORDS && rate_after > rate_before {
            let found = surprise(before, i_before) + surprise(all - before, i_after);
            if found < best || i == 0 {
                (best, place) = (found, Some(i));
            }
        }
        before += yes as u8 as f64;
    }
    place
}

/// The merges that are equivalent to tiktoken's rule: any two neighbours that spell a token are merged, the token of
/// the lowest rank first. By the argument of `keep_live`, each token is only ever made of the two parts into which its
/// own bytes are merged.
///
/// `tokens`: bytes by rank. Returns the ranks of the two parts of each token, or None for single bytes and for tokens
/// that merging never produces.
///
/// The token that two parts spell is looked up by a fingerprint that is computed from theirs: comparing bytes would
/// take time quadratic in the length of a token.
pub fn recover_merges(tokens: &[Vec<u8>]) -> Vec<Option<(u32, u32)>> {
    let n = tokens.len() as u32;
    let mut fingerprints: Vec<Fingerprint> = tokens.iter().map(|token| Fingerprint::of(token)).collect();
    let ranks: hashbrown::HashMap<[u64; 2], u32, rustc_hash::FxBuildHasher> =
        fingerprints.iter().zip(0..).map(|(print, rank)| (print.value, rank)).collect();
    // Bytes that are not tokens get numbers after the ranks.
    let byte_ranks: Vec<u32> = (0..=255)
        .map(|byte| {
            let print = Fingerprint::of(&[byte]);
            ranks.get(&print.value).copied().unwrap_or_else(|| {
                fingerprints.push(print);
                fingerprints.len() as u32 - 1
            })
        })
        .collect();
    let (mut parts, mut scratch) = (Vec::new(), Scratch::default());
    tokens
        .iter()
        .zip(0..)
        .map(|(token, rank)| {
            // Merge without the last step, as in `keep_live`.
            let pair = |left: u32, right: u32| {
                let both = fingerprints[left as usize].followed_by(&fingerprints[right as usize]);
                match ranks.get(&both) {
                    Some(&new) if new != rank => pair_merge(new, new),
                    _ => NO_MERGE,
                }
            };
            parts.clear();
            parts.extend(token.iter().map(|&byte| byte_ranks[byte as usize]));
            merge::merge(&mut parts, pair, &mut scratch);
            match parts[..] {
                [left, right] if left < n && right < n => Some((left, right)),
                _ => None,
            }
        })
        .collect()
}

/// Two polynomial hashes of a byte string modulo 2^61 - 1. For random points, two strings of up to 2^n bytes collide
/// with probability 2^(2n - 122).
struct Fingerprint {
    value: [u64; 2],
    /// The points to the power of the string's length.
    shift: [u64; 2],
}

impl Fingerprint {
    const MODULUS: u64 = (1 << 61) - 1;
    const POINTS: [u64; 2] = [0x19FA_56DD_2AC0_D1B5, 0x0B3C_96F6_E73B_A4E1];

    fn of(bytes: &[u8]) -> Self {
        let mut print = Self { value: [0; 2], shift: [1; 2] };
        for &byte in bytes {
            let last = Self { value: [byte as u64 + 1; 2], shift: Self::POINTS };
            print.value = print.followed_by(&last);
            print.shift = std::array::from_fn(|i| Self::times(print.shift[i], Self::POINTS[i]));
        }
        print
    }

    /// The hashes of the concatenation.
    fn followed_by(&self, next: &Self) -> [u64; 2] {
        std::array::from_fn(|i| (Self::times(self.value[i], next.shift[i]) + next.value[i]) % Self::MODULUS)
    }

    fn times(a: u64, b: u64) -> u64 {
        (a as u128 * b as u128 % Self::MODULUS as u128) as u64
    }
}

#[cfg(test)]
mod tests;
