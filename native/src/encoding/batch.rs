//! Many documents at once, on several threads.

use std::ops::Range;
use std::sync::Mutex;

use super::cache::State;
use super::encoder::Encoder;
use super::memory::{on_huge_pages, room_on_huge_pages};
use crate::documents::{Documents, Strings};
use crate::parallel;

const CHUNK_BYTES: usize = 1 << 17;

/// Longer documents are cut for several threads.
const LONG_BYTES: usize = 4 * CHUNK_BYTES;

/// A document that has no cut up to here is not cut any more.
const SEARCHED_BYTES: usize = 8 * CHUNK_BYTES;

/// Bytes of text for which room for a token is taken in advance.
const BYTES_PER_TOKEN: usize = 4;

/// What a thread made of its chunks, in the order in which it took them.
struct Made {
    ids: Vec<u32>,
    /// For each document: one more than the place of its last id in `ids`.
    ends: Vec<usize>,
    chunks: Vec<Chunk>,
}

struct Chunk {
    number: usize,
    ids: Range<usize>,
    documents: Range<usize>,
}

impl Encoder {
    /// Ids of all documents of a batch, and where each document's begin and end.
    pub fn encode_batch(
        &self,
        batch: &(impl Documents + ?Sized),
        threads: usize,
    ) -> Result<(Vec<u32>, Vec<i64>), String> {
        if threads > 1 && batch.offsets().windows(2).any(|ends| ends[1] - ends[0] > LONG_BYTES as i64) {
            let (parts, last_parts) = self.parts(batch);
            let (ids, offsets) = self.encode_apart(&parts, threads)?;
            return Ok((ids, last_parts.iter().map(|&part| offsets[part]).collect()));
        }
        self.encode_apart(batch, threads)
    }

    /// The documents, long ones in parts that give their ids; and by document the number of parts up to its last, from
    /// 0 in front of the first.
    pub(super) fn parts<'a>(&self, batch: &'a (impl Documents + ?Sized)) -> (Strings<'a>, Vec<usize>) {
        let (mut parts, mut last_parts) = (Vec::new(), vec![0]);
        for number in 0..batch.count() {
            let mut rest = batch.document(number);
            while rest.len() > LONG_BYTES {
                let places = CHUNK_BYTES..SEARCHED_BYTES.min(rest.len() - CHUNK_BYTES);
                let Some(cut) = self.cuts().first(&self.definition, rest, places) else { break };
                let (part, behind) = rest.split_at(cut);
                parts.push(part);
                rest = behind;
            }
            parts.push(rest);
            last_parts.push(parts.len());
        }
        (Strings::new(parts), last_parts)
    }

    /// `encode_batch`, each document on one thread.
    fn encode_apart(&self, batch: &(impl Documents + ?Sized), threads: usize) -> Result<(Vec<u32>, Vec<i64>), String> {
        let offsets = batch.offsets();
        let chunks = parallel::chunks(offsets, CHUNK_BYTES);
        let threads = threads.min(chunks.len()).max(1);
        let n_bytes = offsets[offsets.len() - 1] - offsets[0];
        let room = n_bytes as usize / BYTES_PER_TOKEN / threads;
        let mut made: Vec<Made> = (0..threads)
            .map(|_| Made { ids: room_on_huge_pages(room), ends: Vec::new(), chunks: Vec::new() })
            .collect();
        self.with_states(threads, |states| {
            let mut workers: Vec<(&mut State, &mut Made)> = states.iter_mut().map(Box::as_mut).zip(&mut made).collect();
            parallel::for_each(&mut workers, chunks.len(), |(state, made), number| {
                let (first_id, first_end) = (made.ids.len(), made.ends.len());
                for document in chunks[number].clone() {
                    self.encode(batch.document(document), state, &mut made.ids)?;
                    made.ends.push(made.ids.len());
                }
                let (ids, documents) = (first_id..made.ids.len(), first_end..made.ends.len());
                made.chunks.push(Chunk { number, ids, documents });
                Ok::<(), String>(())
            })
        })?;
        Ok(in_order(made, chunks.len()))
    }
}

/// The ids of all chunks one behind the other, and the offsets of documents in them.
fn in_order(mut made: Vec<Made>, n_chunks: usize) -> (Vec<u32>, Vec<i64>) {
    let mut places: Vec<Option<(usize, &Chunk)>> = vec![None; n_chunks];
    for (thread, made) in made.iter().enumerate() {
        made.chunks.iter().for_each(|chunk| places[chunk.number] = Some((thread, chunk)));
    }
    let places: Vec<(usize, &Chunk)> = places.into_iter().map(|place| place.expect("every chunk is made")).collect();
    let mut offsets = Vec::with_capacity(made.iter().map(|made| made.ends.len()).sum::<usize>() + 1);
    offsets.push(0);
    let mut start = 0;
    for &(thread, chunk) in &places {
        let ends = &made[thread].ends[chunk.documents.clone()];
        offsets.extend(ends.iter().map(|end| (start + end - chunk.ids.start) as i64));
        start += chunk.ids.len();
    }
    if made.len() == 1 {
        let mut ids = made.pop().expect("one thread").ids; // took the chunks in order
        ids.shrink_to_fit();
        return (ids, offsets);
    }
    let mut ids = on_huge_pages(start, 0);
    let mut parts = Vec::with_capacity(n_chunks);
    let mut rest = &mut ids[..];
    for &(thread, chunk) in &places {
        let (part, behind) = rest.split_at_mut(chunk.ids.len());
        parts.push(Mutex::new((part, &made[thread].ids[chunk.ids.clone()])));
        rest = behind;
    }
    let copied = parallel::for_each(&mut vec![(); made.len()], parts.len(), |(), i| {
        let (to, from) = &mut *parts[i].lock().expect("no panic while held");
        to.copy_from_slice(from);
        Ok::<(), std::convert::Infallible>(())
    });
    copied.unwrap_or_else(|never| match never {});
    drop(parts);
    (ids, offsets)
}
