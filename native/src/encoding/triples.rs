//! Merges as text.

/// The numbers of `[[a, b, c], [d, e, f]]`, written just so, as Python's json writes triples; None for any other text.
pub fn triples(text: &[u8]) -> Option<Vec<u32>> {
    let mut rest = text.strip_prefix(b"[")?;
    let mut numbers = Vec::with_capacity(text.len() / 8);
    loop {
        for before in [&b"["[..], b", ", b", "] {
            rest = rest.strip_prefix(before)?;
            let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if length == 0 || length > 10 || (length > 1 && rest[0] == b'0') {
                return None;
            }
            let number = rest[..length].iter().fold(0u64, |number, digit| number * 10 + u64::from(digit - b'0'));
            numbers.push(u32::try_from(number).ok()?);
            rest = &rest[length..];
        }
        match rest.strip_prefix(b"]")? {
            b"]" => return Some(numbers),
            more => rest = more.strip_prefix(b", ")?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::triples;

    #[test]
    fn only_triples_as_json_writes_them() {
        assert_eq!(triples(b"[[1, 20, 4294967295]]"), Some(vec![1, 20, u32::MAX]));
        assert_eq!(triples(b"[[0, 2, 3], [4, 5, 6]]"), Some(vec![0, 2, 3, 4, 5, 6]));
        for text in [
            "",
            "[]",
            "[[]]",
            "[[1, 2]]",
            "[[1, 2, 3, 4]]",
            "[[1,2,3]]",
            "[[1, 2, 3],[4, 5, 6]]",
            "[[1, 2, 3]",
            "[[1, 2, 3]] ",
            "[[1, 2, 03]]",
            "[[1, 2, 3.0]]",
            "[[1, -2, 3]]",
            "[[1, 2, 4294967296]]",
            "[[1, 2, 99999999999]]",
            "[[1, 2, ]]",
        ] {
            assert_eq!(triples(text.as_bytes()), None, "{text}");
        }
    }
}
