//! Level 1: looking pieces up, many at a time, and making those that are not there.

use super::cache::{Short, TOKENS};
use super::pieces::{byte_pair, Level1};
use super::queue::{Missed, Queue, END, MARK_FIRST, PART};
use crate::count::keys::{short_key, SHORT};
use crate::encode::packed::{COUNT, COUNT_SHIFT, FIRST};
use crate::encode::state::State;
use crate::runtime::{interrupt::poll, memory};

/// Pieces without entries that are made together.
const TOGETHER: usize = 16;

/// Words behind the first of them, which are moved when it is made, at which they are made anyway.
const APART: usize = 1 << 12;

impl Level1 {
    /// Adds a part to the queue: where it ends, and marks.
    #[inline(always)]
    pub(in crate::encode) fn push(&self, text: &[u8], end: u64, state: &mut State, out: &mut Vec<u32>) {
        if state.queue.push(end) {
            self.look_up(text, state, out);
        }
    }

    /// Adds the words of all pieces that wait.
    #[inline(always)]
    pub(in crate::encode) fn settle(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) {
        self.look_up(text, state, out);
        if !state.missed.is_empty() {
            self.make(text, state, out);
        }
    }

    /// Adds the words of the queue's pieces that have entries; the others are put down as missed.
    #[inline(always)]
    fn look_up(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) {
        if state.queue.marked {
            self.look_up_all::<true>(text, state, out);
        } else {
            self.look_up_all::<false>(text, state, out);
        }
    }

    #[inline(never)]
    fn look_up_all<const MARKED: bool>(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) {
        let State { queue, short, missed, room, .. } = state;
        let unmarked = |end: u64| (if MARKED { end & END } else { end }) as usize;
        // All keys first: their entries are on their way while the next ones are made.
        let Queue { n, start: first_start, ends, keys, places, absent, .. } = queue;
        let (ends, keys, places) = (&ends[..*n], &mut keys[..*n], &mut places[..*n]);
        let pairs = short.pairs();
        let mut start = *first_start;
        for ((&marked, key), place) in ends.iter().zip(&mut *keys).zip(&mut *places) {
            let end = unmarked(marked);
            let part = if MARKED { ((marked << 1 & 1 << 63) as u128) << 64 } else { 0 };
            let found = if end - start <= SHORT { short_key(text, start, end) | part } else { 0 };
            *key = found;
            *place = Short::place(pairs, found);
            start = end;
        }
        let mut at = 0;
        for (i, ((&marked, &key), &place)) in ends.iter().zip(&*keys).zip(&*places).enumerate() {
            let first = if MARKED && marked & MARK_FIRST != 0 { FIRST } else { 0 };
            match Short::get(pairs, place, key) {
                Some(words) => {
                    // All of them, to keep those that count: no branch on their number.
                    let to: &mut [u32; TOKENS] = (&mut room[at..at + TOKENS]).try_into().expect("as many");
                    *to = [words[0] & !COUNT | first, words[1], words[2], words[3]];
                    at += (words[0] >> COUNT_SHIFT & 3) as usize + 1;
                }
                None => put_down(absent, i, at),
            }
        }
        for (i, at) in absent.drain(..) {
            let start = if i == 0 { *first_start } else { unmarked(ends[i - 1]) };
            let first = if MARKED && ends[i] & MARK_FIRST != 0 { FIRST } else { 0 };
            let (key, place, end, at) = (keys[i], places[i], unmarked(ends[i]), out.len() + at);
            missed.push(Missed { key, place, start, end, first, at, new: false });
        }
        poll(start - *first_start);
        (*n, *first_start) = (0, start);
        memory::reserve(out, at);
        out.extend_from_slice(&room[..at]);
        if missed.len() >= TOGETHER || missed.first().is_some_and(|missed| out.len() - missed.at > APART) {
            self.make(text, state, out);
        }
    }

    /// Adds the words of the missed pieces where they belong.
    ///
    /// All that is needed for one of them comes from far away in memory, so one step is taken for all before the next.
    #[inline(never)]
    fn make(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) {
        let State { short, long, missed, lanes, scratch, piece: ids, .. } = state;
        for missed in missed.iter().filter(|missed| missed.key != 0) {
            self.known.prefetch(missed.key & !PART);
        }
        for missed in missed.iter().filter(|missed| missed.key != 0) {
            self.known.prefetch_key(missed.key & !PART);
        }
        lanes.clear();
        for Missed { key, start, end, new, .. } in missed.iter_mut() {
            let bytes = &text[*start..*end];
            let token = if *key == 0 {
                if let Some(words) = long.get(bytes) {
                    lanes.add_merged(words);
                    continue;
                }
                None
            } else {
                let whole = self.whole.as_ref().and_then(|whole| whole.get(*key));
                whole.or_else(|| self.known.get(*key & !PART))
            };
            *new = true;
            if let Some(id) = token {
                lanes.add_merged(&[id]);
            } else if *key != 0 {
                let found = bytes.windows(2).map(|two| self.bytes[byte_pair(two[0], two[1])]);
                lanes.add(bytes.iter().map(|&byte| self.byte_words[byte as usize]), found);
            } else {
                self.merge_bytes(bytes, ids, scratch);
                lanes.add_merged(ids);
            }
        }
        lanes.merge(&self.pairs);

        let mut end = out.len();
        let mut to = end + (0..missed.len()).map(|lane| lanes.get(lane).len()).sum::<usize>();
        memory::reserve(out, to - end);
        out.resize(to, 0);
        for (lane, &Missed { key, place, start, end: stop, first, at, new }) in missed.iter().enumerate().rev() {
            let words = lanes.get(lane);
            if new {
                if !self.words.is_empty() {
                    words.iter_mut().for_each(|id| *id = self.words[*id as usize]);
                }
                if key == 0 {
                    long.insert(&text[start..stop], words);
                } else if words.len() <= TOKENS {
                    short.insert(place, key, words);
                }
            }
            to -= end - at;
            out.copy_within(at..end, to);
            (end, to) = (at, to - words.len());
            out[to..to + words.len()].copy_from_slice(words);
            out[to] |= first;
        }
        missed.clear();
    }
}

/// Out of the way of the loop that calls it: most pieces have entries.
#[cold]
#[inline(never)]
fn put_down(absent: &mut Vec<(usize, usize)>, i: usize, at: usize) {
    absent.push((i, at));
}
