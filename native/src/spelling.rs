//! Vocabularies and merges as files have them.

use hashbrown::HashSet;

use crate::merging::Tokens;

/// Bytes of the tokens that merges make, by rank, given those of all others by id (none where nothing has the id).
///
/// None where it is not as plain as that: an operand is made later or never, a token has the id or the bytes of
/// another one, or is longer than `longest`.
pub fn spell(given: &Tokens, merges: &[[u32; 3]], longest: usize) -> Option<Vec<Box<[u8]>>> {
    let n = given.len();
    let mut made: Vec<Option<u32>> = vec![None; n]; // rank of the first merge that makes an id
    let mut tokens: Vec<Box<[u8]>> = Vec::with_capacity(merges.len());
    let mut seen: HashSet<&[u8], rustc_hash::FxBuildHasher> = HashSet::with_capacity_and_hasher(n, Default::default());
    if (0..n as u32).map(|id| given.get(id)).any(|token| !token.is_empty() && !seen.insert(token)) {
        return None;
    }
    for (rank, &[left, right, new]) in merges.iter().enumerate() {
        let bytes = |id: u32| match made.get(id as usize)? {
            Some(rank) => Some(&*tokens[*rank as usize]),
            None => Some(given.get(id)).filter(|token| !token.is_empty()),
        };
        let token: Box<[u8]> = [bytes(left)?, bytes(right)?].concat().into();
        let new = new as usize;
        if token.len() > longest || new >= n {
            return None;
        }
        match made[new] {
            Some(first) if tokens[first as usize] != token => return None,
            Some(_) => {}
            None if !given.get(new as u32).is_empty() => return None,
            None => made[new] = Some(rank as u32),
        }
        tokens.push(token);
    }
    for (rank, &[_, _, new]) in merges.iter().enumerate() {
        if made[new as usize] == Some(rank as u32) && !seen.insert(&tokens[rank]) {
            return None;
        }
    }
    drop(seen);
    Some(tokens)
}

/// Merges as Python's `json` writes a list of lists of three: `[[97, 98, 256], [256, 99, 257]]`.
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

/// The merges at the start of `text`, flat, and where their list ends; None unless they are written exactly as
/// `write_merges` writes them.
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

    fn given(tokens: &[&[u8]]) -> Tokens {
        let mut table = Tokens::default();
        tokens.iter().for_each(|token| {
            table.push(token);
        });
        table
    }

    #[test]
    fn merges_spell_their_parts() {
        let table = given(&[b"a", b"b", b"", b""]);
        let spelled = |merges: &[[u32; 3]]| {
            spell(&table, merges, 4).map(|tokens| tokens.iter().map(|token| token.to_vec()).collect::<Vec<_>>())
        };
        assert_eq!(spelled(&[[0, 1, 2], [2, 0, 3]]), Some(vec![b"ab".to_vec(), b"aba".to_vec()]));
        assert_eq!(spelled(&[[0, 1, 2], [0, 1, 2]]), Some(vec![b"ab".to_vec(), b"ab".to_vec()]));
        for irregular in [
            &[[3, 0, 2], [0, 1, 3]][..],        // used before it is made
            &[[0, 1, 1]],                       // an id that is taken
            &[[0, 1, 2], [1, 0, 2]],            // by other bytes
            &[[0, 1, 2], [0, 1, 3]],            // the same bytes twice
            &[[0, 9, 2]],                       // no such part
            &[[0, 1, 9]],                       // no such id
            &[[0, 0, 2], [2, 2, 3], [3, 0, 2]], // too long, and taken
        ] {
            assert_eq!(spelled(irregular), None, "{irregular:?}");
        }
        assert!(spell(&given(&[b"a", b"a"]), &[], 4).is_none());
        assert!(spell(&given(&[b"a", b"", b""]), &[[0, 0, 1], [1, 0, 2]], 2).is_none());
    }

    #[test]
    fn merges_are_read_as_they_are_written() {
        for merges in [vec![], vec![[0, 1, 2]], vec![[97, 98, 256], [256, u32::MAX, 10]]] {
            let text = write_merges(&merges);
            let behind = text.clone() + ", \"more\": 1";
            let flat: Vec<u32> = merges.concat();
            assert_eq!(read_merges(text.as_bytes()), Some((flat.clone(), text.len())));
            assert_eq!(read_merges(behind.as_bytes()), Some((flat, text.len())));
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
