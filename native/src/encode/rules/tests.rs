use super::recover_merges;
use crate::runtime::random::Random;

/// `recover_merges` by tiktoken's rule: neighbours with the lowest rank join, looked up by their bytes.
fn recovered_plainly(tokens: &[Vec<u8>]) -> Vec<Option<(u32, u32)>> {
    let ranks: std::collections::HashMap<&[u8], u32> = tokens.iter().map(Vec::as_slice).zip(0..).collect();
    let recovered = tokens.iter().map(|token| {
        let mut parts: Vec<&[u8]> = token.chunks(1).collect();
        while parts.len() > 2 {
            let joined =
                |at: &usize| &token[at_of(token, parts[*at])..at_of(token, parts[at + 1]) + parts[at + 1].len()];
            let places = (0..parts.len() - 1).filter(|at| ranks.contains_key(joined(at)));
            let at = places.min_by_key(|at| ranks[joined(at)])?;
            parts[at] = joined(&at);
            parts.remove(at + 1);
        }
        (parts.len() == 2).then(|| Some((*ranks.get(parts[0])?, *ranks.get(parts[1])?)))?
    });
    recovered.collect()
}

fn at_of(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

#[test]
fn merges_are_recovered_by_the_lowest_rank() {
    let mut random = Random(29);
    let mut several = 0;
    for case in 0..300 {
        let (letters, longest) = [(2, 6), (2, 60), (3, 12), (4, 90)][case % 4];
        let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        for _ in 0..60 {
            // Mostly parts that are tokens, otherwise any letters.
            let new = match random.below(4) {
                0 => (0..2 + random.below(longest)).map(|_| 97 + random.below(letters) as u8).collect(),
                _ => {
                    let mut part = || match random.below(3) {
                        0 => 97 + random.below(letters),
                        _ => 256.min(tokens.len() - 1) + random.below(tokens.len().saturating_sub(256).max(1)),
                    };
                    let (left, right) = (part(), part());
                    let right = if longest > 50 && random.below(2) == 0 { left } else { right };
                    [&tokens[left][..], &tokens[right]].concat()
                }
            };
            if new.len() <= 200 && !tokens.contains(&new) {
                tokens.push(new);
            }
        }
        for i in (1..tokens.len()).step_by(3) {
            tokens.swap(i, random.below(i)); // ranks of bytes among others
        }
        if case % 2 == 0 {
            tokens.retain(|token| token != b"b");
        }
        let recovered = recover_merges(&tokens);
        assert_eq!(recovered, recovered_plainly(&tokens), "{case}");
        several += tokens.iter().zip(&recovered).filter(|(token, parts)| token.len() > 48 && parts.is_some()).count();
    }
    assert!(several > 10, "{several}");
}
