//! Level 1: looks pieces up in batches and merges the misses.

use super::cache::{MediumPieces, ShortPieces, TOKENS};
use super::lanes::MOST_TOKENS;
use super::pieces::Level1;
use super::queue::{Miss, Queue, END, MARK_FIRST, MARK_PART, PART};
use crate::count::keys::{short_key, SHORT};
use crate::encode::merge::merge;
use crate::encode::packed::{COUNT, COUNT_SHIFT, FIRST};
use crate::encode::pairs::byte_pair;
use crate::encode::state::State;
use crate::runtime::{interrupt::poll, memory};

/// Misses that are merged together.
const MISSES_PER_BATCH: usize = 32;

/// Flush pending misses once this many tokens follow the first one; they have to be shifted.
const MAX_SHIFTED: usize = 1 << 12;

impl Level1 {
    /// Caches the pieces that become one token. A third to a half of the new pieces of a text are such.
    pub(in crate::encode) fn cache_tokens(&self, short: &mut ShortPieces) {
        for (key, id) in self.token_index.iter().chain(self.whole_tokens.iter().flat_map(|tokens| tokens.iter())) {
            poll(1);
            let place = ShortPieces::place(short.sets(), key);
            short.insert(place, key, &[self.packed.get(id as usize).copied().unwrap_or(id)]);
        }
    }

    /// Queues a piece: its end, with marks.
    #[inline(always)]
    pub(in crate::encode) fn push(&self, text: &[u8], end: u64, state: &mut State, out: &mut Vec<u32>) {
        if state.queue.push(end) {
            self.look_up(text, state, out);
        }
    }

    /// Appends the tokens of all queued pieces.
    #[inline(always)]
    pub(in crate::encode) fn flush(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) {
        self.look_up(text, state, out);
        if !state.misses.is_empty() {
            self.merge_misses(text, state, out);
        }
    }

    /// Appends the tokens of the queued pieces that are cached, and records the others as misses.
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
        let State { queue, short, medium, misses, room, .. } = state;
        let unmarked = |end: u64| (if MARKED { end & END } else { end }) as usize;
        // All keys first, so that their entries are prefetched while the next keys are computed.
        let Queue { n, start: first_start, ends, keys, places, absent, .. } = queue;
        let (ends, keys, places) = (&ends[..*n], &mut keys[..*n], &mut places[..*n]);
        let sets = short.sets();
        let mut start = *first_start;
        for ((&marked, key), place) in ends.iter().zip(&mut *keys).zip(&mut *places) {
            let end = unmarked(marked);
            let part = if MARKED && marked & MARK_PART != 0 { PART } else { 0 };
            if end - start <= SHORT {
                *key = short_key(text, start, end) | part;
                *place = ShortPieces::place(sets, *key);
            } else {
                *key = 0;
                if let Some(key) = MediumPieces::key(text, start, end) {
                    medium.prefetch(key);
                }
            }
            start = end;
        }
        let mut at = 0;
        let start_of = |i: usize| if i == 0 { *first_start } else { unmarked(ends[i - 1]) };
        for (i, ((&marked, &key), &place)) in ends.iter().zip(&*keys).zip(&*places).enumerate() {
            let first = if MARKED && marked & MARK_FIRST != 0 { FIRST } else { 0 };
            if key == 0 {
                let packed = MediumPieces::key(text, start_of(i), unmarked(marked)).and_then(|key| medium.get(key));
                match packed {
                    Some(packed) => {
                        room[at..at + packed.len()].copy_from_slice(packed);
                        room[at] |= first;
                        at += packed.len();
                    }
                    None => note_miss(absent, i, at),
                }
                continue;
            }
            match ShortPieces::get(sets, place, key) {
                Some(packed) => {
                    // Copy all four and advance by their number: no branch on it.
                    let to: &mut [u32; TOKENS] = (&mut room[at..at + TOKENS]).try_into().expect("as many");
                    *to = [packed[0] & !COUNT | first, packed[1], packed[2], packed[3]];
                    at += (packed[0] >> COUNT_SHIFT & 3) as usize + 1;
                }
                None => note_miss(absent, i, at),
            }
        }
        for (i, at) in absent.drain(..) {
            let start = start_of(i);
            let first = if MARKED && ends[i] & MARK_FIRST != 0 { FIRST } else { 0 };
            let (key, place, end, at) = (keys[i], places[i], unmarked(ends[i]), out.len() + at);
            misses.push(Miss { key, place, start, end, first, at, new: false });
        }
        poll(start - *first_start);
        (*n, *first_start) = (0, start);
        memory::reserve(out, at);
        out.extend_from_slice(&room[..at]);
        if misses.len() >= MISSES_PER_BATCH || misses.first().is_some_and(|miss| out.len() - miss.at > MAX_SHIFTED) {
            self.merge_misses(text, state, out);
        }
    }

    /// Inserts the tokens of the missed pieces where they belong.
    #[inline(never)]
    fn merge_misses(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) {
        let State { short, medium, long, misses, lanes, scratch, piece: ids, .. } = state;
        lanes.clear();
        for Miss { key, start, end, new, .. } in misses.iter_mut() {
            let bytes = &text[*start..*end];
            if let Some(packed) = long.get(bytes) {
                lanes.add_merged(packed);
                continue;
            }
            *new = true;
            if let Some(id) = self.whole_tokens.as_ref().filter(|_| *key != 0).and_then(|tokens| tokens.get(*key)) {
                lanes.add_merged(&[id]);
            } else if bytes.len() <= MOST_TOKENS && bytes.is_ascii() {
                let found = bytes.windows(2).map(|two| self.bytes[byte_pair(two[0], two[1])]);
                lanes.add(bytes.iter().map(|&byte| self.packed_bytes[byte as usize]), found);
            } else {
                ids.clear();
                memory::reserve(ids, bytes.len());
                self.characters.each(bytes, &self.packed_bytes, |id| ids.push(id));
                let pair = |left, right| self.pairs.get(left, right);
                if ids.len() <= MOST_TOKENS {
                    lanes.add(ids.iter().copied(), ids.windows(2).map(|two| pair(two[0], two[1])));
                } else {
                    merge(ids, pair, scratch);
                    lanes.add_merged(ids);
                }
            }
        }
        lanes.merge(&self.pairs);

        let mut end = out.len();
        let mut to = end + (0..misses.len()).map(|lane| lanes.get(lane).len()).sum::<usize>();
        memory::reserve(out, to - end);
        out.resize(to, 0);
        for (lane, &Miss { key, place, start, end: stop, first, at, new }) in misses.iter().enumerate().rev() {
            let packed = lanes.get(lane);
            if new {
                if !self.packed.is_empty() {
                    packed.iter_mut().for_each(|id| *id = self.packed[*id as usize]);
                }
                if key != 0 {
                    if packed.len() <= TOKENS {
                        short.insert(place, key, packed);
                    }
                } else if let Some(key) = MediumPieces::key(text, start, stop) {
                    medium.insert(key, packed);
                } else {
                    long.insert(&text[start..stop], packed);
                }
            }
            to -= end - at;
            out.copy_within(at..end, to);
            (end, to) = (at, to - packed.len());
            out[to..to + packed.len()].copy_from_slice(packed);
            out[to] |= first;
        }
        misses.clear();
    }
}

/// Out of line: most pieces are cached.
#[cold]
#[inline(never)]
fn note_miss(absent: &mut Vec<(usize, usize)>, i: usize, at: usize) {
    absent.push((i, at));
}
