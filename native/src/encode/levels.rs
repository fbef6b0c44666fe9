//! Which merges each of the two levels applies.
//!
//! The first level has the merges of phase 1, the second those of phase 2. But a list may have a phase-1 merge that
//! joins products of phase 2, because merges were moved, swapped or combined from several lists. Such a merge is
//! *late*: it goes to the second level, at its own rank, and so does every merge that joins its product, and so on.
//! Then applying the two levels in turn equals plain merging by rank:
//!
//! 1. Plain merging applies no phase-2 merge while a phase-1 merge can apply. Until a phase-2 merge has applied, no
//!    late merge can: each joins a token that only merges of the second level make (a token has one derivation, see
//!    `keep_live`), and the first of those to apply is not a late one. So plain merging passes through the result of
//!    the first level.
//! 2. From there on, no merge of the first level applies: it would have to join a token made since, and would then be
//!    late. So only the merges of the second level are left, by rank.
//!
//! Which phase-1 tokens meet at the seams that the second level can cross follows from the derivations (`leaves`),
//! whatever the order of the merges. Ordinary lists have no late merges and pay nothing for this.

use super::{
    definition::Definition,
    rules::{effective_rules, superword_rank, Rule},
};

/// Leftmost and rightmost first-level token of each token, by id.
pub(super) type Leaves = (Vec<u32>, Vec<u32>);

pub(super) struct Levels {
    /// In order of rank, like `second`.
    pub(super) first: Vec<Rule>,
    pub(super) second: Vec<Rule>,
    /// None if the second level is empty, or if a token has several derivations, which only two-pass tokenizers allow.
    pub(super) leaves: Option<Leaves>,
}

impl Levels {
    pub(super) fn new(definition: &Definition) -> Self {
        let rules = effective_rules(definition);
        let split = split(definition);
        let before = rules.partition_point(|rule| (rule.rank as usize) < split);
        if before == rules.len() {
            return Self { first: rules, second: Vec::new(), leaves: None };
        }
        let one_pass = definition.second_pass_fence.is_none(); // a two-pass tokenizer never returns to phase 1
        let n = definition.tokens.len();
        let mut in_second = vec![false; rules.len()];
        let (mut made, mut made_in_second, mut made_twice) = (vec![false; n], vec![false; n], false);
        let mut leftmost: Vec<u32> = (0..n as u32).collect();
        let mut rightmost = leftmost.clone();
        for i in parts_first(definition, &rules) {
            let [left, right, new] =
                [rules[i].merge.left, rules[i].merge.right, rules[i].merge.new].map(|id| id as usize);
            made_twice |= std::mem::replace(&mut made[new], true);
            let late = one_pass && (made_in_second[left] || made_in_second[right]);
            if i < before && !late {
                continue;
            }
            (in_second[i], made_in_second[new]) = (true, true);
            leftmost[new] = leftmost[left];
            rightmost[new] = rightmost[right];
        }
        debug_assert!(!(one_pass && made_twice), "`effective_rules` leaves one derivation");
        let mut place = 0..rules.len();
        let (second, first) = rules.into_iter().partition(|_| place.next().is_some_and(|i| in_second[i]));
        Self { first, second, leaves: (!made_twice).then_some((leftmost, rightmost)) }
    }
}

/// The first rank of the second level. Superwords in the first level would make its pieces long. In a one-pass
/// tokenizer any split is exact, so superwords start the second level even if a damaged list has them in phase 1.
fn split(definition: &Definition) -> usize {
    let Definition { merges, phase1, second_pass_fence, .. } = definition;
    if *phase1 < merges.len() && second_pass_fence.is_none() {
        superword_rank(definition).min(*phase1)
    } else {
        *phase1
    }
}

/// Indices into `rules` such that the rules for a rule's parts come first: by rank if possible.
fn parts_first(definition: &Definition, rules: &[Rule]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rules.len()).collect();
    let mut made = vec![false; definition.tokens.len()];
    definition.byte_ids.iter().for_each(|&id| made[id as usize] = true);
    let in_order = rules.iter().all(|Rule { merge, .. }| {
        made[merge.new as usize] = true;
        made[merge.left as usize] && made[merge.right as usize]
    });
    if !in_order {
        // A token's parts are shorter than it is.
        order.sort_by_key(|&i| definition.tokens.get(rules[i].merge.new).len());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::encoder::Encoder;
    use crate::encode::tests::{encode_all, one_pass, plain, plain_ids, random_merges};
    use crate::pretokenize::scanner::Scanner;
    use crate::runtime::random::Random;
    use crate::vocabulary::MergeRule;
    use crate::vocabulary::Tokens;

    /// Moves, swaps and repeats merges across the transition, or shuffles all.
    fn damage(random: &mut Random, how: usize, merges: &mut Vec<MergeRule>, phase1: usize) {
        let n = merges.len();
        for _ in 0..1 + random.below(3) {
            let (a, b) = (random.below(phase1), phase1 + random.below(n - phase1));
            match how {
                0 => merges[a..=b].rotate_left(1),  // phase 1's to phase 2
                1 => merges[a..=b].rotate_right(1), // phase 2's to phase 1
                2 => merges.swap(a, b),
                3 => merges.push(merges[a]), // the last rank counts
                _ => (1..n).for_each(|i| merges.swap(i, random.below(i + 1))),
            }
        }
    }

    /// Late merges by definition: repeatedly, every merge that joins a product of the second level.
    fn late(rules: &[Rule], phase1: usize) -> Vec<u32> {
        let mut second: Vec<&Rule> = rules.iter().filter(|rule| rule.rank as usize >= phase1).collect();
        let first = second.len();
        loop {
            let found = rules.iter().find(|rule| {
                let joins = |made: &&Rule| [rule.merge.left, rule.merge.right].contains(&made.merge.new);
                second.iter().all(|other| other.rank != rule.rank) && second.iter().any(joins)
            });
            match found {
                Some(rule) => second.push(rule),
                None => return second[first..].iter().map(|rule| rule.rank).collect(),
            }
        }
    }

    #[test]
    fn damaged_lists_equal_plain_merging() {
        let mut random = Random(31);
        let (mut damaged, mut on_first, mut on_second) = (0, 0, 0);
        for case in 0..1000 {
            let letters = 2 + random.below(3);
            let (tokens, mut merges) = random_merges(&mut random, letters, 25);
            let phase1 = 1 + random.below(24);
            damage(&mut random, case % 5, &mut merges, phase1);
            let pattern = ["", "d", "b+"][case % 3];
            let definition = one_pass(&tokens, &merges, phase1, pattern);

            let levels = Levels::new(&definition);
            let rules = effective_rules(&definition);
            let mut late = late(&rules, phase1);
            late.sort_unstable();
            let of_second: Vec<u32> = levels.second.iter().map(|rule| rule.rank).collect();
            assert!(of_second.starts_with(&late), "{merges:?}");
            assert!(of_second[late.len()..].iter().all(|&rank| rank as usize >= phase1));
            assert!(levels.first.is_sorted_by_key(|rule| rule.rank) && of_second.is_sorted());
            assert_eq!(levels.first.len() + levels.second.len(), rules.len());
            assert!(levels.second.is_empty() || levels.leaves.is_some());
            damaged += usize::from(!late.is_empty());
            if !late.is_empty() && case % 5 != 4 {
                on_first += levels.first.len();
                on_second += late.len();
            }

            let long = if case % 10 == 0 { 400 } else { 40 };
            let texts: Vec<Vec<u8>> =
                (0..12).map(|_| (0..random.below(long)).map(|_| 97 + random.below(letters) as u8).collect()).collect();
            let encoder = Encoder::new(definition);
            for (text, found) in texts.iter().zip(encode_all(&encoder, &texts, 2)) {
                let expected = plain_ids(&encoder.definition().scanner, text, &merges);
                assert_eq!(found, expected, "case {case}: {phase1} of {merges:?}, {text:?}");
            }
        }
        // Most phase-1 merges stay on the first level.
        assert!(damaged > 400 && on_first > 2 * on_second, "{damaged} damaged, {on_first} : {on_second}");
    }

    #[test]
    fn superwords_in_phase_1_begin_the_second_level() {
        let mut tokens = Tokens::default();
        (0..=255u8).for_each(|byte| {
            tokens.push(&[byte]);
        });
        let mut merges = Vec::new();
        let mut add = |left: &[u8], right: &[u8]| {
            let id = |part: &[u8]| (0..tokens.len() as u32).rev().find(|&id| tokens.get(id) == part).unwrap();
            let (left, right, bytes) = (id(left), id(right), [left, right].concat());
            merges.push(MergeRule { left, right, new: tokens.push(&bytes) });
        };
        (b'a'..=b'z').for_each(|letter| add(b" ", &[letter]));
        (b'a'..=b'z').for_each(|letter| add(&[letter], b" a"));
        let levels = Levels::new(&one_pass(&tokens, &merges, 40, ""));
        assert_eq!((levels.first.len(), levels.second.len()), (26, 26));
        merges.rotate_left(1); // " a" comes last
        let levels = Levels::new(&one_pass(&tokens, &merges, 30, ""));
        assert_eq!((levels.first.len(), levels.second.len()), (25, 27));
        assert_eq!(levels.second.last().unwrap().rank, 51);
        // In a two-pass tokenizer the second level is phase 2, and no merge is late.
        let two_pass =
            Definition { second_pass_fence: Some(Scanner::new("").unwrap()), ..one_pass(&tokens, &merges, 30, "") };
        let levels = Levels::new(&two_pass);
        assert_eq!((levels.first.len(), levels.second.len()), (30, 22));
    }

    #[test]
    fn long_tokens_have_one_derivation_too() {
        // aa, aaaa, ... of 2,048 letters; the longest again, of unequal parts that never meet.
        let mut tokens = Tokens::default();
        (0..=255u8).for_each(|byte| {
            tokens.push(&[byte]);
        });
        let mut merges = vec![MergeRule { left: 97, right: 97, new: tokens.push(b"aa") }];
        for power in 2..=11 {
            let part = merges[merges.len() - 1].new;
            merges.push(MergeRule { left: part, right: part, new: tokens.push(&b"a".repeat(1 << power)) });
        }
        let longest = merges[merges.len() - 1].new;
        let unequal = tokens.push(&b"a".repeat(1536));
        merges.push(MergeRule { left: merges[9].left, right: merges[8].left, new: unequal });
        merges.push(MergeRule { left: unequal, right: merges[9].left, new: longest });
        for phase1 in [2, 11, 12] {
            let definition = one_pass(&tokens, &merges, phase1, "");
            assert!(effective_rules(&definition).iter().all(|rule| rule.rank != 12));
            let encoder = Encoder::new(definition);
            for length in [1535, 1536, 2047, 2048, 2049, 3584] {
                let mut expected = vec![97; length];
                plain(&mut expected, &merges);
                assert_eq!(encode_all(&encoder, &[vec![b'a'; length]], 1), [expected]);
            }
        }
    }
}
