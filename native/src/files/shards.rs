//! Encoded documents in the format of token files.

use crate::runtime::interrupt::poll;
use crate::text::documents::BYTES_PER_TOKEN;

/// Ids copied and measured at a time, while they are in the L1 cache.
const PART: usize = 1 << 11;

/// Lengths from here on are looked up in the full table.
const LONG: u8 = u8::MAX;

/// Lengths of tokens in bytes, by id. Most are short, so a table of bytes stays in the L1 cache.
struct Lengths<'a> {
    short: Vec<u8>,
    all: &'a [u32],
}

impl<'a> Lengths<'a> {
    fn new(all: &'a [u32]) -> Self {
        Self { short: all.iter().map(|&length| length.min(u32::from(LONG)) as u8).collect(), all }
    }

    #[inline]
    fn get(&self, id: u32) -> Option<u32> {
        match self.short.get(id as usize) {
            Some(&LONG) => Some(self.all[id as usize]),
            length => length.map(|&length| u32::from(length)),
        }
    }
}

/// Consecutive documents, each preceded by the mark.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenStream {
    pub ids: Vec<u32>,
    /// By document: its end in `ids`.
    pub ends: Vec<i64>,
    /// By document: the number of bytes that its tokens spell.
    pub spelled: Vec<i64>,
    /// The first document that contains the mark among its own ids.
    pub marked: Option<usize>,
}

impl TokenStream {
    /// Encodes the documents; `encode(text, ids)` appends the ids of one. `lengths`: bytes of a token by id.
    ///
    /// Fails if an id has no length.
    pub fn of(
        documents: &[&[u8]],
        lengths: &[u32],
        mark: u32,
        ids: &mut Vec<u32>,
        mut encode: impl FnMut(&[u8], &mut Vec<u32>) -> Result<(), String>,
    ) -> Result<Self, String> {
        let (lengths, count) = (Lengths::new(lengths), documents.len());
        let n_bytes = documents.iter().map(|document| document.len()).sum::<usize>();
        let mut stream = Self {
            ids: Vec::with_capacity(n_bytes / BYTES_PER_TOKEN + count),
            ends: Vec::with_capacity(count),
            spelled: Vec::with_capacity(count),
            marked: None,
        };
        for document in documents {
            ids.clear();
            encode(document, ids)?;
            stream.push(ids, &lengths, mark)?;
        }
        Ok(stream)
    }

    fn push(&mut self, ids: &[u32], lengths: &Lengths, mark: u32) -> Result<(), String> {
        self.ids.push(mark);
        let mut bytes = 0;
        for part in ids.chunks(PART) {
            poll(part.len());
            self.ids.extend_from_slice(part);
            for &id in part {
                bytes += i64::from(lengths.get(id).ok_or_else(|| format!("the id {id} has no length"))?);
            }
            if self.marked.is_none() && part.contains(&mark) {
                self.marked = Some(self.ends.len());
            }
        }
        self.ends.push(self.ids.len() as i64);
        self.spelled.push(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte is an id.
    fn stream(texts: &[&[u8]], lengths: &[u32], mark: u32) -> Result<TokenStream, String> {
        TokenStream::of(texts, lengths, mark, &mut vec![7], |text, ids| {
            ids.extend(text.iter().map(|&byte| u32::from(byte)));
            Ok(())
        })
    }

    #[test]
    fn long_documents_are_measured_whole() {
        let text = [vec![1; 3 * PART], vec![3], vec![0; 5]].concat();
        let found = stream(&[&text], &[1, 2, 5, 0], 3).unwrap();
        assert_eq!(
            (found.ends, found.spelled, found.marked),
            (vec![text.len() as i64 + 1], vec![6 * PART as i64 + 5], Some(0))
        );
        assert!(found.ids[1..].iter().map(|&id| id as u8).eq(text));
    }
}
