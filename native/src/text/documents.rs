//! Documents in any layout: a batch, buffers, or separate strings.

use std::borrow::Cow;

use super::batch::Batch;
use crate::runtime::ordered::{OrderedOutput, Output};
use crate::runtime::{interrupt::poll, memory, parallel};

/// Bytes of documents per chunk of a thread's work.
pub const CHUNK_BYTES: usize = 1 << 17;

/// Estimated bytes of text per token, to reserve capacity.
pub const BYTES_PER_TOKEN: usize = 4;

/// Texts by index, and their lengths.
pub trait Documents: Sync {
    /// Cumulative lengths in bytes, from 0; one more than there are documents.
    fn offsets(&self) -> &[i64];

    fn document(&self, i: usize) -> &[u8];

    fn count(&self) -> usize {
        self.offsets().len() - 1
    }
}

impl<D: Documents + ?Sized> Documents for &D {
    fn offsets(&self) -> &[i64] {
        (**self).offsets()
    }

    fn document(&self, i: usize) -> &[u8] {
        (**self).document(i)
    }
}

impl Documents for Batch {
    fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    fn document(&self, i: usize) -> &[u8] {
        self.document(i)
    }
}

/// Document `i`, for unchecked bounds.
pub fn between<'a>(data: &'a [u8], bounds: &[i64], i: usize) -> Result<&'a [u8], String> {
    let bounds = usize::try_from(bounds[0]).ok().zip(usize::try_from(bounds[1]).ok());
    let document = bounds.and_then(|(start, end)| data.get(start..end));
    document.ok_or_else(|| format!("offsets of document {i} do not fit the buffer"))
}

/// Arrow's layout: document i is `data[offsets[i]..offsets[i + 1]]`.
pub struct Buffers<'a> {
    data: Cow<'a, [u8]>,
    offsets: Cow<'a, [i64]>,
}

impl<'a> Buffers<'a> {
    /// Fails if the offsets do not fit the buffer, or a document is not UTF-8.
    pub fn new(data: Cow<'a, [u8]>, offsets: Cow<'a, [i64]>) -> Result<Self, String> {
        if offsets.is_empty() {
            return Err("the offsets are empty; n documents have n + 1".to_string());
        }
        for (i, bounds) in offsets.windows(2).enumerate() {
            let document = between(&data, bounds, i)?;
            poll(document.len());
            if let Err(error) = simdutf8::compat::from_utf8(document) {
                return Err(format!("document {i} of the batch is not UTF-8 at its byte {}", error.valid_up_to()));
            }
        }
        Ok(Self { data, offsets })
    }
}

impl Documents for Buffers<'_> {
    fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    fn document(&self, i: usize) -> &[u8] {
        &self.data[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }
}

/// Separate strings.
pub struct Strings<'a> {
    texts: Vec<&'a [u8]>,
    offsets: Vec<i64>,
}

impl<'a> Strings<'a> {
    pub fn new(texts: Vec<&'a [u8]>) -> Self {
        let mut offsets = memory::with_capacity(texts.len() + 1);
        offsets.push(0);
        let mut end = 0;
        offsets.extend(texts.iter().map(|text| {
            end += text.len() as i64;
            end
        }));
        Self { texts, offsets }
    }
}

impl Documents for Strings<'_> {
    fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    fn document(&self, i: usize) -> &[u8] {
        self.texts[i]
    }
}

/// Runs `work(state, i, document, out)` for each document, on one thread per state. Returns the appended items in the
/// order of the documents, and the offsets of each document. `room`: expected number of items.
pub fn map<S: Send, T: Copy + Send>(
    documents: &(impl Documents + ?Sized),
    states: &mut [S],
    room: usize,
    work: impl Fn(&mut S, usize, &[u8], &mut Vec<T>) -> Result<(), String> + Sync,
) -> Result<(Vec<T>, Vec<i64>), String> {
    let chunks = parallel::chunks(documents.offsets(), CHUNK_BYTES);
    let threads = states.len().min(chunks.len()).max(1);
    let mut output = Output::new(room, documents.count());
    if threads == 1 {
        for i in 0..documents.count() {
            poll(documents.document(i).len());
            work(&mut states[0], i, documents.document(i), &mut output.items)?;
            output.offsets.push(output.items.len() as i64);
        }
    } else {
        let ordered = OrderedOutput::new(output);
        parallel::for_each(&mut states[..threads], chunks.len(), |state, chunk| {
            let mut part = ordered.part();
            for i in chunks[chunk].clone() {
                poll(documents.document(i).len());
                work(state, i, documents.document(i), &mut part.items)?;
                memory::push(&mut part.ends, part.items.len());
            }
            ordered.add(chunk, part);
            Ok::<(), String>(())
        })?;
        output = ordered.output();
    }
    output.items.shrink_to_fit();
    Ok((output.items, output.offsets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_checked() {
        let data = "aéb".as_bytes();
        let new = |offsets: &'static [i64]| Buffers::new(data.into(), offsets.into());
        assert_eq!(new(&[0, 1, 3, 3, 4]).unwrap().document(1), "é".as_bytes());
        for offsets in [&[0, 5][..], &[-1, 1], &[2, 1], &[0, i64::MAX]] {
            assert!(new(offsets).err().unwrap().contains("do not fit the buffer"), "{offsets:?}");
        }
        assert!(new(&[0, 2]).err().unwrap().contains("not UTF-8 at its byte 1"));
        assert!(new(&[]).is_err());
    }

    #[test]
    fn results_come_in_the_order_of_the_documents() {
        let texts: Vec<String> = (0..1000).map(|i| "x".repeat(i % 700)).collect();
        let documents = Strings::new(texts.iter().map(String::as_bytes).collect());
        for threads in [1, 2, 5] {
            let (out, offsets) = map(&documents, &mut vec![(); threads], 0, |(), i, text, out| {
                out.extend(std::iter::repeat_n(i as u32, text.len()));
                Ok(())
            })
            .unwrap();
            assert_eq!(offsets, documents.offsets());
            assert!((0..1000).all(|i| out[offsets[i] as usize..offsets[i + 1] as usize].iter().all(|&x| x == i as u32)));
        }
        let failed = map(&documents, &mut [(), ()], 0, |(), i, _, _: &mut Vec<u8>| Err(i.to_string()));
        assert!(failed.is_err());
    }
}
