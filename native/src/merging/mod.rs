//! The merge loop of BPE, for both phases: weighted words in, merges out.
//!
//! One flat array of cells holds all words, a sentinel between them. A token that covers several cells stands in
//! the first of them; the others are dead and tell its length, so that both neighbours are found in O(1).
//! Where a pair occurs is written down once, when its newer member is created: no occurrence can be born later,
//! and those that vanish are noticed when the pair's turn comes. So a merge costs what it touches, and all lists
//! together hold at most three entries per cell. Pairs that are rarer than a threshold are not tracked at all,
//! since counts only fall; when the queue runs dry the threshold is lowered and the cells are counted again.

mod queue;
#[cfg(test)]
mod tests;
mod words;

use std::time::{Duration, Instant};

use rustc_hash::FxBuildHasher;

use crate::interrupt::poll;
use crate::memory;
pub use queue::Tie;
use queue::{key, parts, Candidate, Queue};
pub use words::Words;
use words::{Weights, DEAD, SENTINEL};

type Map<K, V> = hashbrown::HashMap<K, V, FxBuildHasher>;

const UNTRACKED: u32 = u32::MAX;

/// Cells or occurrences after which a merge or a count of pairs may be stopped.
const BLOCK: usize = 1 << 12;

/// Byte strings of tokens by id.
#[derive(Clone, Default)]
pub struct Tokens {
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl Tokens {
    pub fn push(&mut self, bytes: &[u8]) -> u32 {
        memory::reserve(&mut self.data, bytes.len());
        self.data.extend_from_slice(bytes);
        self.ends.push(self.data.len());
        (self.ends.len() - 1) as u32
    }

    pub fn get(&self, id: u32) -> &[u8] {
        let start = if id == 0 { 0 } else { self.ends[id as usize - 1] };
        &self.data[start..self.ends[id as usize]]
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// What a new token may not be.
#[derive(Clone, Debug, Default)]
pub struct Veto {
    pub max_bytes: Option<usize>,
    /// Non-empty parts between spaces (0x20).
    pub max_words: Option<usize>,
    /// Byte strings that no new token may contain.
    pub forbid: Vec<Vec<u8>>,
    /// Byte strings that no new token may be (special tokens).
    pub reserved: Vec<Vec<u8>>,
}

impl Veto {
    fn is_too_long(&self, token: &[u8]) -> bool {
        self.max_bytes.is_some_and(|most| token.len() > most)
    }

    pub fn rejects(&self, token: &[u8]) -> bool {
        let words = || token.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).count();
        self.is_too_long(token)
            || self.max_words.is_some_and(|most| words() > most)
            || self.forbid.iter().any(|part| memchr::memmem::find(token, part).is_some())
            || self.reserved.iter().any(|string| string == token)
    }
}

#[derive(Clone, Copy)]
struct Pair {
    count: u64,
    start: usize, // into the postings
    occurrences: u32,
}

const NOWHERE: Pair = Pair { count: 0, start: 0, occurrences: 0 };

/// Up to so many tokens, pairs are counted in a table of all of them.
const DENSE: usize = 256;

/// The pair to merge next.
struct Selected {
    pair: u64,
    place: Pair,
}

/// A place where a pair was merged: the first cell of the new token and of the token before it, and its neighbours.
struct Occurrence {
    position: u32,
    previous: u32,
    before: u32,
    after: u32,
    weight: u64,
}

/// What a merge finds next to its new token, per neighbouring token.
#[derive(Clone, Copy)]
struct Neighbour {
    count: u64,
    occurrences: u32,
    next: usize, // where the next posting goes
}

const NO_NEIGHBOUR: Neighbour = Neighbour { count: 0, occurrences: 0, next: usize::MAX };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    pub left: u32,
    pub right: u32,
    pub count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Full,
    /// No pair is left with `min_count` or more.
    Exhausted,
    /// The progress callback asked to stop.
    Interrupted,
}

/// What only phase 2 asks of a merge loop.
#[derive(Default)]
pub struct Special<'a> {
    /// Most tokens of the start in a new token.
    pub max_tokens: Option<u32>,
    /// How many tokens of the start each token consists of, where the table holds more than those: by id.
    pub widths: Vec<u32>,
    /// In a row of one token, count the pairs that can be merged at once, not all adjacent ones: (a, a, a) is one.
    pub non_overlapping: bool,
    /// Pairs that were refused before, for good.
    pub refused: Refused,
    /// Asked about every pair that nothing else refuses, with its parts' bytes and its count: whether to refuse it.
    /// None stops the loop.
    pub judge: Option<Judge<'a>>,
}

pub type Refused = hashbrown::HashSet<u64, FxBuildHasher>;

pub type Judge<'a> = &'a mut dyn FnMut(&[u8], &[u8], u64) -> Option<bool>;

#[derive(Clone, Default)]
pub struct Report {
    pub merges: Vec<Merge>,
    pub rejected: u64,
    /// Those of them whose tokens would have had more than `Veto::max_bytes` bytes.
    pub too_long: u64,
    /// Pairs that were not merged because their concatenation is a token already.
    pub already_tokens: u64,
    /// Time spent on finding the best pair; the rest went into merging it.
    pub selecting: Duration,
}

pub struct MergeLoop<'a> {
    cells: Vec<u32>,
    runs: Vec<(u32, u64)>,
    weighted: u64,
    tokens: Tokens,
    known: hashbrown::HashTable<u32>,
    veto: &'a Veto,
    special: Special<'a>,
    min_count: u64,
    threshold: u64,
    pairs: Map<u64, Pair>,
    postings: Vec<u32>,
    queue: Queue,
    left: Vec<Neighbour>,
    right: Vec<Neighbour>,
    occurrences: Vec<Occurrence>,
    pub report: Report,
}

fn hash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

impl<'a> MergeLoop<'a> {
    /// Ids in `words` are those of `tokens`; new tokens get the ids that follow. No count below `min_count` (at
    /// least 1) is merged. Where phase 2 left seams out, `min_count` is the threshold it cut at.
    pub fn new(words: Words, tokens: Tokens, tie: Tie, veto: &'a Veto, min_count: u64) -> Self {
        Self::with(words, tokens, tie, veto, min_count, Special::default())
    }

    /// The same with what phase 2 asks besides.
    pub fn with(
        words: Words,
        tokens: Tokens,
        tie: Tie,
        veto: &'a Veto,
        min_count: u64,
        mut special: Special<'a>,
    ) -> Self {
        let mut known = hashbrown::HashTable::with_capacity(tokens.len() * 2);
        for id in 0..tokens.len() as u32 {
            known.insert_unique(hash(tokens.get(id)), id, |&id| hash(tokens.get(id)));
        }
        if special.max_tokens.is_some() {
            special.widths.resize(tokens.len(), 1);
        }
        Self {
            cells: words.cells,
            runs: words.runs,
            weighted: words.weighted,
            left: vec![NO_NEIGHBOUR; tokens.len()],
            right: vec![NO_NEIGHBOUR; tokens.len()],
            tokens,
            known,
            veto,
            special,
            min_count: min_count.max(1),
            threshold: u64::MAX,
            pairs: Map::default(),
            postings: Vec::new(),
            queue: Queue { heap: Vec::new(), tie },
            occurrences: Vec::new(),
            report: Report::default(),
        }
    }

    /// A count that the last of `total` merges will probably reach. If it does not, lowering the threshold costs one
    /// pass over the cells; a threshold that is far too low costs room for pairs that are never merged.
    fn guess_threshold(&self, total: usize) -> u64 {
        // By Zipf's law count times rank is nearly constant: 1/60 to 1/150 of English text, at 10,000 to 128,000.
        (self.weighted / (128 * total.max(1) as u64)).max(self.min_count)
    }

    /// Merges until `total` merges are made; `progress(merges so far)` is called each time so much time has gone by,
    /// and stops the loop with false.
    pub fn run(&mut self, total: usize, every: Duration, mut progress: impl FnMut(&[Merge]) -> bool) -> Stop {
        if self.threshold == u64::MAX {
            self.threshold = self.guess_threshold(total);
            self.index();
        }
        let mut reported = Instant::now();
        while self.report.merges.len() < total {
            let began = Instant::now();
            if began - reported > every {
                reported = began;
                if !progress(&self.report.merges) {
                    return Stop::Interrupted;
                }
            }
            let (token, best) = match self.select() {
                Ok(selected) => selected,
                Err(stop) => return stop,
            };
            self.report.selecting += began.elapsed();
            let (left, right) = parts(best.pair);
            let id = self.tokens.push(&token);
            if self.special.max_tokens.is_some() {
                self.special.widths.push(self.width(left, right));
            }
            let tokens = &self.tokens;
            self.known.insert_unique(hash(&token), id, |&id| hash(tokens.get(id)));
            self.left.push(NO_NEIGHBOUR);
            self.right.push(NO_NEIGHBOUR);
            self.merge(left, right, id, best.place);
            self.report.merges.push(Merge { left, right, count: best.place.count });
        }
        Stop::Full
    }

    /// Takes the best pair that may be merged out of the queue, with the bytes of the token that it makes.
    fn select(&mut self) -> Result<(Vec<u8>, Selected), Stop> {
        loop {
            let Some(top) = self.queue.pop(&self.tokens) else {
                if self.threshold == self.min_count {
                    return Err(Stop::Exhausted);
                }
                self.threshold = (self.threshold / 2).max(self.min_count);
                self.index();
                continue;
            };
            let Some(&tracked) = self.pairs.get(&top.pair) else {
                continue;
            };
            let (left, right) = parts(top.pair);
            let mut pair = tracked;
            if self.special.non_overlapping && left == right {
                // Never more than the adjacent ones, which are tracked; and like those it only falls.
                pair.count = self.mergeable_at_once(left, &tracked);
            }
            if pair.count != top.count {
                if pair.count >= self.threshold {
                    let fresh = Candidate { count: pair.count, pair: top.pair };
                    self.queue.push(&self.tokens, fresh);
                } else {
                    self.pairs.remove(&top.pair);
                }
                continue;
            }
            self.pairs.remove(&top.pair);
            if self.special.refused.contains(&top.pair) {
                continue;
            }
            let (first, second) = (self.tokens.get(left), self.tokens.get(right));
            let token = [first, second].concat();
            let too_wide = self.special.max_tokens.is_some_and(|most| self.width(left, right) > most);
            if too_wide || self.veto.rejects(&token) {
                self.report.rejected += 1;
                self.report.too_long += u64::from(self.veto.is_too_long(&token));
            } else if self.known.find(hash(&token), |&id| *self.tokens.get(id) == *token).is_some() {
                self.report.already_tokens += 1;
            } else {
                match self.special.judge.as_mut().map_or(Some(false), |judge| judge(first, second, pair.count)) {
                    None => return Err(Stop::Interrupted),
                    Some(false) => return Ok((token, Selected { pair: top.pair, place: pair })),
                    Some(true) => self.report.rejected += 1,
                }
            }
            // The cells are counted again at a lower threshold, and the pair is still in them.
            self.special.refused.insert(top.pair);
        }
    }

    /// Tokens of the start in the token that a pair makes.
    fn width(&self, left: u32, right: u32) -> u32 {
        self.special.widths[left as usize].saturating_add(self.special.widths[right as usize])
    }

    /// How many pairs of a token and itself one merge would make: in a row of k tokens, k / 2.
    fn mergeable_at_once(&self, token: u32, pair: &Pair) -> u64 {
        let mut weights = Weights::new(&self.runs);
        let (mut count, mut free) = (0, 0);
        for &position in &self.postings[pair.start..pair.start + pair.occurrences as usize] {
            if position < free || self.cells[position as usize] != token {
                continue;
            }
            let second = self.next(position);
            if self.cells[second as usize] == token {
                count += weights.at(position);
                free = self.next(second);
            }
        }
        count
    }

    /// Gives up the loop for what it found, and the pairs that it refused.
    pub fn finish(self) -> (Report, Refused) {
        (self.report, self.special.refused)
    }

    #[inline(always)]
    fn next(&self, position: u32) -> u32 {
        let cell = self.cells[position as usize + 1];
        if cell & DEAD != 0 {
            position + (cell & !DEAD)
        } else {
            position + 1
        }
    }

    /// The first cell of the token before `position`, or the sentinel's.
    #[inline(always)]
    fn previous(&self, position: u32) -> u32 {
        let cell = self.cells[position as usize - 1];
        if cell & DEAD != 0 {
            position - (cell & !DEAD)
        } else {
            position - 1
        }
    }

    /// Counts all pairs of the cells and notes where those occur that reach the threshold.
    fn index(&mut self) {
        self.pairs.clear();
        self.postings.clear();
        self.queue.heap.clear();
        // At the start all tokens are bytes: a table of all pairs is small and needs no hashing.
        if self.tokens.len() <= DENSE {
            let mut places = vec![NOWHERE; DENSE * DENSE];
            self.index_into(&mut places, |places, left, right| &mut places[left as usize * DENSE + right as usize]);
        } else {
            let mut places: Map<u64, Pair> = Map::default();
            self.index_into(&mut places, |places, left, right| places.entry(key(left, right)).or_insert(NOWHERE));
        }
    }

    fn index_into<P>(&mut self, places: &mut P, place: impl Fn(&mut P, u32, u32) -> &mut Pair) {
        let mut found: Vec<u64> = Vec::new();
        self.each_pair(|_, weight, left, right| {
            let pair = place(places, left, right);
            if pair.occurrences == 0 {
                memory::push(&mut found, key(left, right));
            }
            pair.count += weight;
            pair.occurrences += 1;
        });
        let mut start = 0;
        found.retain(|&pair| {
            let (left, right) = parts(pair);
            let place = place(places, left, right);
            if place.count < self.threshold {
                place.start = usize::MAX;
                return false;
            }
            place.start = start;
            start += place.occurrences as usize;
            place.occurrences = 0;
            true
        });
        let mut postings = memory::filled(start, UNTRACKED);
        self.each_pair(|position, _, left, right| {
            let pair = place(places, left, right);
            if pair.start != usize::MAX {
                postings[pair.start + pair.occurrences as usize] = position;
                pair.occurrences += 1;
            }
        });
        self.postings = postings;
        memory::reserve(&mut self.queue.heap, found.len());
        memory::reserve_map(&mut self.pairs, found.len());
        for pair in found {
            let (left, right) = parts(pair);
            let place = *place(places, left, right);
            self.pairs.insert(pair, place);
            self.queue.push(&self.tokens, Candidate { count: place.count, pair });
        }
    }

    /// Calls `pair(position, weight, left, right)` for every adjacent pair, in order.
    fn each_pair(&self, mut pair: impl FnMut(u32, u64, u32, u32)) {
        let mut weights = Weights::new(&self.runs);
        let mut position = 1; // cell 0 is a sentinel
        let mut polled = 0;
        while (position as usize) < self.cells.len() {
            if position >= polled {
                poll(BLOCK);
                polled = position + BLOCK as u32;
            }
            let left = self.cells[position as usize];
            if left == SENTINEL {
                position += 1;
                continue;
            }
            let next = self.next(position);
            let right = self.cells[next as usize];
            if right != SENTINEL {
                pair(position, weights.at(position), left, right);
            }
            position = next;
        }
    }

    fn merge(&mut self, left: u32, right: u32, new: u32, pair: Pair) {
        // Replace, left to right, and note what stands on either side.
        self.occurrences.clear();
        let mut weights = Weights::new(&self.runs);
        for i in pair.start..pair.start + pair.occurrences as usize {
            if i % BLOCK == 0 {
                poll(BLOCK);
            }
            if let Some(&ahead) = self.postings.get(i + 12) {
                crate::keys::prefetch(&self.cells, ahead as usize);
            }
            let position = self.postings[i];
            if self.cells[position as usize] != left {
                continue;
            }
            let middle = self.next(position);
            if self.cells[middle as usize] != right {
                continue;
            }
            // The token covers the cells from `position` up to `end`.
            let end = self.next(middle);
            let length = end - position;
            let previous = self.previous(position);
            let before = self.cells[previous as usize];
            if before == new {
                // The one before was just made, and took this one's left part for what follows it.
                self.occurrences.last_mut().expect("the new token before").after = new;
            }
            let after = self.cells[end as usize];
            self.cells[position as usize] = new;
            self.cells[middle as usize] = DEAD;
            self.cells[position as usize + 1] = DEAD | length;
            self.cells[end as usize - 1] = DEAD | length;
            let occurrence = Occurrence { position, previous, before, after, weight: weights.at(position) };
            memory::push(&mut self.occurrences, occurrence);
        }

        // How often each neighbour occurs. A pair of two new tokens is seen from its left one.
        let mut touched_left = Vec::new();
        let mut touched_right = Vec::new();
        for block in self.occurrences.chunks(BLOCK) {
            poll(block.len());
            for occurrence in block {
                if occurrence.after != SENTINEL {
                    let neighbour = &mut self.right[occurrence.after as usize];
                    if neighbour.occurrences == 0 {
                        touched_right.push(occurrence.after);
                    }
                    neighbour.count += occurrence.weight;
                    neighbour.occurrences += 1;
                }
                if occurrence.before != SENTINEL && occurrence.before != new {
                    let neighbour = &mut self.left[occurrence.before as usize];
                    if neighbour.occurrences == 0 {
                        touched_left.push(occurrence.before);
                    }
                    neighbour.count += occurrence.weight;
                    neighbour.occurrences += 1;
                }
            }
        }
        for &after in &touched_right {
            // Between two new tokens stood (right, left).
            let old = if after == new { left } else { after };
            let Neighbour { count, occurrences, .. } = self.right[after as usize];
            self.fell(key(right, old), count);
            self.right[after as usize].next = self.born(key(new, after), count, occurrences);
        }
        for &before in &touched_left {
            let Neighbour { count, occurrences, .. } = self.left[before as usize];
            self.fell(key(before, left), count);
            self.left[before as usize].next = self.born(key(before, new), count, occurrences);
        }

        // Write down where the new pairs are.
        for block in self.occurrences.chunks(BLOCK) {
            poll(block.len());
            for occurrence in block {
                if occurrence.after != SENTINEL {
                    note(&mut self.right[occurrence.after as usize], &mut self.postings, occurrence.position);
                }
                if occurrence.before != SENTINEL && occurrence.before != new {
                    note(&mut self.left[occurrence.before as usize], &mut self.postings, occurrence.previous);
                }
            }
        }
        for after in touched_right {
            self.right[after as usize] = NO_NEIGHBOUR;
        }
        for before in touched_left {
            self.left[before as usize] = NO_NEIGHBOUR;
        }
    }

    fn fell(&mut self, pair: u64, count: u64) {
        if let Some(pair) = self.pairs.get_mut(&pair) {
            pair.count -= count;
        }
    }

    /// Tracks a new pair if it is frequent enough; returns where its postings start, or usize::MAX.
    fn born(&mut self, pair: u64, count: u64, occurrences: u32) -> usize {
        if count < self.threshold {
            return usize::MAX;
        }
        let start = self.postings.len();
        memory::reserve(&mut self.postings, occurrences as usize);
        self.postings.resize(start + occurrences as usize, UNTRACKED);
        self.pairs.insert(pair, Pair { count, start, occurrences });
        self.queue.push(&self.tokens, Candidate { count, pair });
        start
    }
}

#[inline(always)]
fn note(neighbour: &mut Neighbour, postings: &mut [u32], position: u32) {
    if neighbour.next != usize::MAX {
        postings[neighbour.next] = position;
        neighbour.next += 1;
    }
}
