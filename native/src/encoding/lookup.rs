//! Level 1: looking pieces up, many at a time, and making those that are not there.

use super::cache::{Short, State, TOKENS};
use super::pieces::{byte_pair, Level1};
use super::queue::{Missed, END, MARK_FIRST, PART};
use super::words::{COUNT, COUNT_SHIFT, FIRST};
use crate::keys::{short_key, SHORT};

/// Pieces without entries that are made together.
const TOGETHER: usize = 16;

/// Words behind the first of them, which are moved when it is made, at which they are made anyway.
const APART: usize = 1 << 12;

/// Puts a piece of the queue down as missed.
#[cold]
#[inline(never)]
fn miss(missed: &mut Vec<(u32, usize)>, i: usize, at: usize) {
    missed.push((i as u32, at));
}

impl Level1 {
    /// Adds a part to the queue: where it ends, and marks.
    #[inline(always)]
    pub(super) fn push(&self, text: &[u8], end: u64, state: &mut State, out: &mut Vec<u32>) {
        if state.queue.push(end) {
            self.look_up(text, state, out);
        }
    }

    /// Adds the words of all pieces that wait.
    #[inline(always)]
    pub(super) fn settle(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) {
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
        let State { queue, short, missed, room, now, .. } = state;
        let unmarked = |end: u64| (if MARKED { end & END } else { end }) as usize;
        // All keys first: their entries are on their way while the next ones are made.
        let (n, first_start) = (std::mem::take(&mut queue.n), queue.start);
        let mut start = first_start;
        let (ends, keys, places) = (&queue.ends[..n], &mut queue.keys[..n], &mut queue.places[..n]);
        let pairs = short.pairs();
        for ((&marked, key), place) in ends.iter().zip(&mut *keys).zip(&mut *places) {
            let end = unmarked(marked);
            let part = if MARKED { ((marked << 1 & 1 << 63) as u128) << 64 } else { 0 };
            let found = if end - start <= SHORT { short_key(text, start, end) | part } else { 0 };
            *key = found;
            *place = Short::place(pairs, found);
            start = end;
        }
        queue.start = start;
        let before = out.len();
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
                None => miss(now, i, before + at),
            }
        }
        out.extend_from_slice(&room[..at]);
        for (i, at) in now.drain(..) {
            let i = i as usize;
            let start = if i == 0 { first_start } else { unmarked(ends[i - 1]) };
            let first = if MARKED && ends[i] & MARK_FIRST != 0 { FIRST } else { 0 };
            missed.push(Missed {
                key: keys[i],
                place: places[i],
                start,
                end: unmarked(ends[i]),
                first,
                at,
                new: false,
            });
        }
        if missed.len() >= TOGETHER || missed.first().is_some_and(|missed| before + at - missed.at > APART) {
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
