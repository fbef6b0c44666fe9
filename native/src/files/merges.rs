//! Vocabularies and merges in files.

use hashbrown::HashSet;
use rustc_hash::FxHashMap;

use crate::vocabulary::Tokens;

/// Ids and bytes of the tokens that merges produce. `tokens`: bytes of all other tokens by id, empty for unused ids.
/// Imported lists may use a token before the merge that produces it: those merges are postponed.
///
/// None if some merge cannot be spelled: an operand is never produced, a token has the id or the bytes of another one
/// or is longer than `longest` bytes, or the products have more than `most` bytes in total.
pub fn spell(tokens: &Tokens, merges: &[[u32; 3]], longest: usize, most: usize) -> Option<Vec<(u32, Box<[u8]>)>> {
    let n = tokens.len();
    let mut left_over = most;
    let mut place: Vec<Option<u32>> = vec![None; n]; // index into `made`, by id
    let mut made: Vec<(u32, Box<[u8]>)> = Vec::with_capacity(merges.len());
    let mut waiting: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
    let mut ready = Vec::new();
    for first in 0..merges.len() {
        ready.push(first);
        while let Some(rank) = ready.pop() {
            let [left, right, new] = merges[rank];
            if [left, right, new].into_iter().any(|id| id as usize >= n) {
                return None;
            }
            let bytes = |id: u32| match place[id as usize] {
                Some(place) => &*made[place as usize].1,
                None => tokens.get(id),
            };
            if let Some(missing) = [left, right].into_iter().find(|&id| bytes(id).is_empty()) {
                waiting.entry(missing).or_default().push(rank);
                continue;
            }
            let (left, right, before) = (bytes(left), bytes(right), bytes(new));
            if left.len() + right.len() > longest {
                return None;
            }
            if !before.is_empty() {
                if before.strip_prefix(left) != Some(right) {
                    return None;
                }
            } else {
                left_over = left_over.checked_sub(left.len() + right.len())?;
                let token = [left, right].concat().into();
                place[new as usize] = Some(made.len() as u32);
                made.push((new, token));
                ready.extend(waiting.remove(&new).into_iter().flatten());
            }
        }
    }
    let mut seen: HashSet<&[u8], rustc_hash::FxBuildHasher> = HashSet::with_capacity_and_hasher(n, Default::default());
    let others = (0..n as u32).map(|id| tokens.get(id)).filter(|token| !token.is_empty());
    let distinct = others.chain(made.iter().map(|(_, token)| &**token)).all(|token| seen.insert(token));
    drop(seen);
    (distinct && waiting.is_empty()).then_some(made)
}

/// Merges in the format of Python's `json` for a list of lists of three: `[[97, 98, 256], [256, 99, 257]]`.
pub fn write_merges(merges: &[[u32; 3]]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(24 * merges.len() + 2);
    text.push('[');
    for (rank, [left, right, new]) in merges.iter().enumerate() {
        let comma = if rank == 0 { "" } else { ", " };
        write!(text, "{comma}[{left}, {right}, {new}]").expect("writing to a string");
    }
    text.push(']');
    text
}

/// Parses the merges at the start of `text` into a flat list. Returns it and its length in bytes; None unless the
/// format is exactly that of `write_merges`.
pub fn read_merges(text: &[u8]) -> Option<(Vec<u32>, usize)> {
    let mut at = 0;
    let take = |at: &mut usize, expected: &[u8]| {
        let found = text[*at..].starts_with(expected);
        *at += if found { expected.len() } else { 0 };
        found
    };
    let number = |at: &mut usize| {
        let digits = text[*at..].iter().take(11).take_while(|byte| byte.is_ascii_digit()).count();
        let canonical = digits == 1 || digits > 1 && text[*at] != b'0';
        let value = text[*at..*at + digits].iter().fold(0u64, |value, digit| value * 10 + (digit - b'0') as u64);
        *at += digits;
        u32::try_from(value).ok().filter(|_| canonical)
    };
    if !take(&mut at, b"[") {
        return None;
    }
    let mut merges = Vec::new();
    while !take(&mut at, b"]") {
        if !merges.is_empty() && !take(&mut at, b", ") {
            return None;
        }
        for before in [&b"["[..], b", ", b", "] {
            if !take(&mut at, before) {
                return None;
            }
            merges.push(number(&mut at)?);
        }
        if !take(&mut at, b"]") {
            return None;
        }
    }
    Some((merges, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(tokens: &[&[u8]]) -> Tokens {
        let mut table = Tokens::default();
        tokens.iter().for_each(|token| {
            table.push(token);
        });
        table
    }

    #[test]
    fn merges_spell_their_parts() {
        let table = tokens(&[b"a", b"b", b"", b""]);
        let spelled = |merges: &[[u32; 3]]| {
            spell(&table, merges, 4, 5)
                .map(|made| made.iter().map(|(id, token)| (*id, token.to_vec())).collect::<Vec<_>>())
        };
        assert_eq!(spelled(&[[0, 1, 2], [2, 0, 3]]), Some(vec![(2, b"ab".to_vec()), (3, b"aba".to_vec())]));
        assert_eq!(spelled(&[[0, 1, 2], [0, 1, 2]]), Some(vec![(2, b"ab".to_vec())]));
        assert_eq!(spelled(&[[2, 0, 3], [0, 1, 2]]), Some(vec![(2, b"ab".to_vec()), (3, b"aba".to_vec())]));
        for irregular in [
            &[[3, 0, 2], [2, 1, 3]][..],        // never made
            &[[0, 1, 1]],                       // an id that is taken
            &[[0, 1, 2], [1, 0, 2]],            // by other bytes
            &[[0, 1, 2], [0, 1, 3]],            // the same bytes twice
            &[[0, 9, 2]],                       // no such part
            &[[0, 1, 9]],                       // no such id
            &[[0, 0, 2], [2, 2, 3], [3, 0, 2]], // too long, and taken
        ] {
            assert_eq!(spelled(irregular), None, "{irregular:?}");
        }
        assert!(spell(&tokens(&[b"a", b"a"]), &[], 4, 5).is_none());
        for (longest, most, fits) in [(3, 5, true), (2, 5, false), (3, 4, false)] {
            let made = spell(&tokens(&[b"a", b"", b""]), &[[0, 0, 1], [1, 0, 2], [0, 0, 1]], longest, most);
            assert_eq!(made.is_some(), fits, "{longest} {most}");
        }
    }

    #[test]
    fn merges_are_read_as_they_are_written() {
        for merges in [vec![], vec![[0, 1, 2]], vec![[97, 98, 256], [256, u32::MAX, 10]]] {
            let text = write_merges(&merges);
            let longer = text.clone() + ", \"more\": 1";
            let flat: Vec<u32> = merges.concat();
            assert_eq!(read_merges(text.as_bytes()), Some((flat.clone(), text.len())));
            assert_eq!(read_merges(longer.as_bytes()), Some((flat, text.len())));
        }
        for other in ["", "[", "[[1, 2]]", "[[1,2,3]]", "[[01, 2, 3]]", "[[1, 2, 3.0]]", "[[1, 2, -3]]", "[[1, 2, 3],]"]
        {
            assert_eq!(read_merges(other.as_bytes()), None, "{other}");
        }
        assert_eq!(read_merges(b"[[1, 2, 4294967296]]"), None);
        assert_eq!(read_merges(b"[[1, 2, 99999999999999999999999]]"), None);
        assert_eq!(read_merges(b"[[1, 2, ]]"), None);
    }
}
