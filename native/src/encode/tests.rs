use super::{definition::Definition, encoder::Encoder, merge, pairs, preparation};
use super::{level2::Level2State, superwords::Superwords};
use crate::pretokenize::{patterns::NAMED, scanner::Scanner};
use crate::runtime::random::Random;
use crate::vocabulary::{MergeRule, Tokens};

/// Random merges of bytes and earlier products; no string is produced twice.
pub fn random_merges(random: &mut Random, letters: usize, n: usize) -> (Tokens, Vec<MergeRule>) {
    let mut tokens = Tokens::default();
    (0..=255u8).for_each(|byte| {
        tokens.push(&[byte]);
    });
    let mut merges: Vec<MergeRule> = Vec::new();
    let pick = |random: &mut Random, made: usize| {
        let i = random.below(letters + made);
        (if i < letters { 97 + i } else { 256 + i - letters }) as u32
    };
    while merges.len() < n {
        let (left, right) = (pick(random, merges.len()), pick(random, merges.len()));
        let bytes = [tokens.get(left), tokens.get(right)].concat();
        if bytes.len() < 12 && (0..tokens.len() as u32).all(|id| tokens.get(id) != bytes) {
            let new = tokens.push(&bytes);
            merges.push(MergeRule { left, right, new });
        }
    }
    (tokens, merges)
}

pub fn plain(ids: &mut Vec<u32>, merges: &[MergeRule]) {
    loop {
        let best = (1..ids.len())
            .filter_map(|i| {
                let rank = merges.iter().rposition(|m| m.left == ids[i - 1] && m.right == ids[i])?;
                Some((rank, i - 1))
            })
            .min();
        let Some((rank, at)) = best else { return };
        ids[at] = merges[rank].new;
        ids.remove(at + 1);
    }
}

pub fn byte_ids() -> [u32; 256] {
    std::array::from_fn(|i| i as u32)
}

pub fn one_pass(tokens: &Tokens, merges: &[MergeRule], phase1: usize, pattern: &str) -> Definition {
    Definition {
        tokens: tokens.clone(),
        byte_ids: byte_ids(),
        merges: merges.to_vec(),
        phase1,
        scanner: Scanner::new(pattern).unwrap(),
        second_pass_fence: None,
        eligible: None,
    }
}

/// The ids of each text, encoded together.
pub fn encode_all(encoder: &Encoder, texts: &[impl AsRef<[u8]>], threads: usize) -> Vec<Vec<u32>> {
    let documents: Vec<&[u8]> = texts.iter().map(AsRef::as_ref).collect();
    let (ids, offsets) = encoder.encode_batch(&documents, threads, &preparation::NONE).unwrap();
    offsets.windows(2).map(|range| ids[range[0] as usize..range[1] as usize].to_vec()).collect()
}

/// Plain merging of the bytes of each piece.
pub fn plain_ids(scanner: &Scanner, text: &[u8], merges: &[MergeRule]) -> Vec<u32> {
    let mut ids = Vec::new();
    let merge = |start: usize, end: usize| {
        let mut piece: Vec<u32> = text[start..end].iter().map(|&byte| u32::from(byte)).collect();
        plain(&mut piece, merges);
        ids.append(&mut piece);
    };
    scanner.pieces(text, merge).unwrap();
    ids
}

#[test]
fn long_documents_give_the_same_ids_in_parts() {
    let mut random = Random(41);
    for pattern in ["", NAMED[0].1, NAMED[1].1] {
        let (tokens, merges) = random_merges(&mut random, 4, 60);
        let encoder = Encoder::new(one_pass(&tokens, &merges, merges.len() / 2, pattern));
        let mut texts = Vec::new();
        // Many cuts, no cuts, and some.
        for letters in ["abcd ", "abcd", "abcd \n1.é"] {
            let letters: Vec<char> = letters.chars().collect();
            let text: String = (0..700_000).map(|_| letters[random.below(letters.len())]).collect();
            texts.extend(["abc".to_string(), text, String::new()]);
        }
        let documents: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let (parts, part_offsets) = encoder.parts(&documents);
        assert!(parts.len() > texts.len() + 2, "{pattern:?}: {} parts", parts.len());
        assert_eq!(part_offsets.len(), texts.len() + 1);
        let ids = encoder.encode_batch(&documents, 2, &preparation::NONE).unwrap();
        assert_eq!(ids, encoder.encode_batch(&documents, 1, &preparation::NONE).unwrap(), "{pattern:?}");
    }
}

/// Adds other derivations of tokens, repeats pairs, and shuffles some.
fn disturb(random: &mut Random, tokens: &Tokens, merges: &mut Vec<MergeRule>) {
    for _ in 0..8 {
        let rule = merges[random.below(merges.len())];
        let bytes = tokens.get(rule.new);
        let at = 1 + random.below(bytes.len() - 1);
        let id = |part: &[u8]| (0..tokens.len() as u32).find(|&id| tokens.get(id) == part);
        let rule = match (id(&bytes[..at]), id(&bytes[at..])) {
            (Some(left), Some(right)) => MergeRule { left, right, new: rule.new },
            _ => rule,
        };
        merges.insert(random.below(merges.len() + 1), rule);
    }
    if random.below(2) == 0 {
        let (a, b) = (random.below(merges.len()), random.below(merges.len()));
        merges.swap(a, b);
    }
}

/// Merges of pairs that occur in a text once the merges before them are applied; no string is produced twice.
fn merges_in(text: &[u8], random: &mut Random, n: usize) -> (Tokens, Vec<MergeRule>) {
    let mut tokens = Tokens::default();
    (0..=255u8).for_each(|byte| {
        tokens.push(&[byte]);
    });
    let mut ids: Vec<u32> = text.iter().map(|&byte| byte as u32).collect();
    let mut merges: Vec<MergeRule> = Vec::new();
    for _ in 0..n {
        let at = random.below(ids.len() - 1);
        let bytes = [tokens.get(ids[at]), tokens.get(ids[at + 1])].concat();
        if bytes.len() < 14 && (0..tokens.len() as u32).all(|id| tokens.get(id) != bytes) {
            merges.push(MergeRule { left: ids[at], right: ids[at + 1], new: tokens.push(&bytes) });
            plain(&mut ids, &merges[merges.len() - 1..]);
        }
    }
    (tokens, merges)
}

#[test]
fn merges_across_characters_equal_plain_merging() {
    const CHARACTERS: [&str; 12] = ["の", "は", "を", "漢", "字", "д", "е", "ж", "a", "é", "🦊", "🦋"];
    let mut random = Random(17);
    let (mut seams, mut from_characters) = (0, 0);
    for case in 0..500 {
        let most = 2 + random.below(5);
        let letters: Vec<&str> = (0..most).map(|_| CHARACTERS[random.below(CHARACTERS.len())]).collect();
        let text = |random: &mut Random, n: usize| -> Vec<u8> {
            (0..n).flat_map(|_| letters[random.below(letters.len())].as_bytes()).copied().collect()
        };
        let n = random.below(60);
        let (tokens, mut merges) = merges_in(&text(&mut random, 100), &mut random, n);
        if case % 3 == 0 && !merges.is_empty() {
            disturb(&mut random, &tokens, &mut merges);
        }
        let encoder = Encoder::new(one_pass(&tokens, &merges, random.below(merges.len() + 1), ""));
        let texts: Vec<Vec<u8>> = (0..12)
            .map(|i| {
                let n = 1 + random.below(40);
                let mut text = text(&mut random, n);
                let start = if i % 4 == 0 { random.below(text.len()) } else { 0 }; // may be inside a character
                for _ in 0..if i % 4 == 1 { 5 } else { 0 } {
                    let (a, b) = (random.below(text.len()), random.below(text.len()));
                    text.swap(a, b); // not UTF-8
                }
                text[start..].to_vec()
            })
            .collect();
        for (text, ids) in texts.iter().zip(encode_all(&encoder, &texts, 2)) {
            let mut expected: Vec<u32> = text.iter().map(|&byte| byte as u32).collect();
            plain(&mut expected, &merges);
            assert_eq!(ids, expected, "{merges:?}");
            encoder.level1.seams.each_uncrossed(text, 0..text.len(), |_| seams += 1);
            encoder.level1.characters.each(text, &byte_ids(), |id| from_characters += (id > 255) as usize);
        }
    }
    assert!(seams > 5000 && from_characters > 5000, "{seams} seams, {from_characters} characters");
}

/// Windows of ASCII, and text that is cut piece by piece.
#[test]
fn fenced_superwords_equal_plain_merging() {
    const ASCII: [&str; 14] = ["the", " of", " a", "int", " x", "1", "2345", "!", " ();", "\n", "  ", "\t", "/", "->"];
    const OTHERS: [&str; 4] = ["é", "…", "の", "\u{a0}"];
    let mut random = Random(29);
    for (name, pattern, _) in NAMED.iter().filter(|(name, _, _)| name.ends_with("-fence")) {
        let mut superwords = 0;
        for case in 0..24 {
            let text = |random: &mut Random, n: usize| -> String {
                let others = [usize::MAX, 100, 3][case % 3];
                let word = |i| if i % others == others - 1 { &OTHERS[..] } else { &ASCII[..] };
                (0..n).map(|i| random.of(word(i))).collect()
            };
            let (tokens, mut merges) = merges_in(text(&mut random, 60).as_bytes(), &mut random, 60);
            if case % 4 == 0 {
                disturb(&mut random, &tokens, &mut merges);
            }
            let phase1 = random.below(merges.len() / 2);
            let encoder = Encoder::new(one_pass(&tokens, &merges, phase1, pattern));
            let text = text(&mut random, 1500);
            let expected = plain_ids(&encoder.definition().scanner, text.as_bytes(), &merges);
            superwords += expected.iter().filter(|&&id| id as usize >= 256 + phase1).count();
            assert!(expected.len() > 1 << 10, "level 2 works several times");
            assert_eq!(encode_all(&encoder, &[&text], 2), [expected], "{name} on {text:?}");
        }
        assert!(superwords > 1000, "{name}: {superwords}");
    }
}

/// Runs that begin and end anywhere in a block of level 2, fill it, or are longer.
#[test]
fn runs_of_any_length_equal_plain_merging() {
    const LETTERS: usize = 4; // the other ids up to `N_PHASE1` are in no merge
    const N_PHASE1: usize = 8;
    let mut random = Random(31);
    for case in 0..200 {
        let merges: Vec<MergeRule> = (N_PHASE1..N_PHASE1 + 12)
            .map(|new| {
                let part = |random: &mut Random| {
                    let i = random.below(LETTERS + new - N_PHASE1);
                    (if i < LETTERS { i } else { i - LETTERS + N_PHASE1 }) as u32
                };
                MergeRule { left: part(&mut random), right: part(&mut random), new: new as u32 }
            })
            .collect();
        let superwords = Superwords::new(N_PHASE1, merges.iter().map(|merge| (merge.left, merge.right)));
        let mut ids = Vec::new();
        for _ in 0..4 {
            let most = [3, 66, 150][random.below(3)];
            ids.extend((0..random.below(most)).map(|_| (LETTERS + random.below(N_PHASE1 - LETTERS)) as u32));
            let letters = 1 + random.below(LETTERS);
            ids.extend((0..random.below(most)).map(|_| random.below(letters) as u32));
        }
        let (mut expected, mut found) = (ids.clone(), Vec::new());
        plain(&mut expected, &merges);
        superwords.apply(&ids, &mut Level2State::default(), &mut found);
        assert_eq!(found, expected, "case {case}: {merges:?} on {ids:?}");
    }
}

#[test]
fn long_runs_equal_plain_merging_whatever_the_order_of_merges() {
    let mut random = Random(17);
    for case in 0..200 {
        let letters = 1 + random.below(3);
        let (tokens, mut merges) = random_merges(&mut random, letters, if letters == 1 { 5 } else { 20 });
        if case % 2 == 0 {
            disturb(&mut random, &tokens, &mut merges);
            for _ in 0..6 {
                let (a, b) = (random.below(merges.len()), random.below(merges.len()));
                merges.swap(a, b);
            }
        }
        let ranked = (0..).zip(&merges);
        let table: pairs::Pairs =
            ranked.map(|(rank, merge)| ((merge.left, merge.right), pairs::pair_merge(rank, merge.new))).collect();
        let pair = |left, right| table.get(&(left, right)).copied().unwrap_or(pairs::NO_MERGE);
        let mut scratch = merge::Scratch::default();
        for _ in 0..4 {
            let length = 2 + random.below(250);
            // Level2State, in which positions overlap.
            let mut text: Vec<u32> = Vec::new();
            while text.len() < length {
                let letter = 97 + random.below(letters) as u32;
                text.extend(std::iter::repeat_n(letter, 1 + random.below(if case % 3 == 0 { 40 } else { 3 })));
            }
            let (mut found, mut expected) = (text.clone(), text);
            merge::merge_by_rank_lists(&mut found, pair, &mut scratch);
            plain(&mut expected, &merges);
            assert_eq!(found, expected, "{merges:?}");
        }
    }
}

#[test]
fn pieces_that_recur_before_they_are_cached_equal_plain_merging() {
    let mut random = Random(21);
    for case in 0..60 {
        let (tokens, merges) = random_merges(&mut random, 3, 30);
        let encoder = Encoder::new(one_pass(
            &tokens,
            &merges,
            if case % 2 == 0 { merges.len() } else { random.below(merges.len()) },
            "d|[^d]+",
        ));
        // A few words of each length class of the caches, new in every text.
        let texts: Vec<Vec<u8>> = (0..20)
            .map(|_| {
                let mut word = |i: usize| -> Vec<u8> {
                    let length = 1 + random.below([15, 31, 60][i % 3]);
                    (0..length).map(|_| 97 + random.below(3) as u8).collect()
                };
                let words: Vec<Vec<u8>> = (0..6).map(&mut word).collect();
                (0..50).map(|_| words[random.below(words.len())].clone()).collect::<Vec<_>>().join(&b'd')
            })
            .collect();
        for (text, found) in texts.iter().zip(encode_all(&encoder, &texts, 2)) {
            let expected = plain_ids(&encoder.definition().scanner, text, &merges);
            assert_eq!(found, expected, "case {case}: {merges:?} on {text:?}");
        }
    }
}
