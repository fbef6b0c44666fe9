//! Encoding in two levels: cached phase-1 pieces, then phase-2 merges over runs of phase-1 tokens.
//!
//! A merge (a, b) joins text only where the last byte of a meets the first byte of b. So between two bytes at
//! which no merge of a level can join, that level's merges never cross, and text is cut there into pieces that
//! are short, repeat, and are looked up instead of merged. Likewise for phase 2: it never crosses a seam of
//! phase-1 tokens that is not the (rightmost leaf, leftmost leaf) of one of its merges.
//!
//! Level by level equals plain rank-order merging if no phase-2 merge makes an operand of a phase-1 merge;
//! `Encoder::new` checks that, and otherwise puts all merges on one level.
//!
//! A list may give a token several derivations (files made from tiktoken ranks do). Only one of them ever applies:
//! see `keep_live`. The others are dropped before anything is checked or built.

mod pairs;
mod rules;
#[cfg(test)]
pub mod tests;

use std::sync::Mutex;

use pairs::*;
pub use pairs::{PairTable, RankedMerges};
use rules::*;
pub use rules::{recover_merges, superword_rank};

use crate::counting::Unit;
use crate::documents::Documents;
use crate::keys::{hash_key, prefetch, short_key, SHORT};
use crate::merging::Tokens;
use crate::parallel;
use crate::patterns::Scanner;

const CACHE_ENTRIES: usize = 1 << 17; // 4 MiB of 32-byte entries per thread

const CACHE_TOKENS: usize = 4;

const LONG_ENTRIES: usize = 1 << 14;

const LONG_BYTES: usize = 256;

const CHUNK_BYTES: usize = 1 << 17;

struct Bits(Vec<u64>);

impl Bits {
    fn new(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    #[inline(always)]
    fn set(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    #[inline(always)]
    fn get(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 != 0
    }
}

/// A merge by ids; its place in the list is its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeRule {
    pub left: u32,
    pub right: u32,
    pub new: u32,
}

/// What defines an encoding (see DESIGN: one-pass and two-pass).
pub struct Definition {
    /// Bytes of every token by id; special tokens too.
    pub tokens: Tokens,
    pub byte_ids: [u32; 256],
    pub merges: Vec<MergeRule>,
    /// Merges of phase 1; the rest are phase 2's.
    pub phase1: usize,
    /// Cuts the text first: the fence of a one-pass tokenizer, the phase-1 pattern of any other.
    pub scanner: Scanner,
    /// Two-pass: phase-2 merges do not cross the ends of this one's pieces.
    pub fence: Option<Scanner>,
    /// Two-pass: phase 2 merges only whole pretokens that are one of these tokens (by id); None for any token.
    pub eligible: Option<Vec<bool>>,
}

/// Tokens in which a regex finds something; those that are no whole characters are never whole pretokens.
pub fn eligible(pattern: &str, tokens: &Tokens) -> Result<Vec<bool>, String> {
    let regex = fancy_regex::Regex::new(pattern)
        .map_err(|error| format!("the eligibility pattern {pattern:?} does not compile: {error}"))?;
    (0..tokens.len() as u32)
        .map(|id| match std::str::from_utf8(tokens.get(id)) {
            Ok(text) => regex.is_match(text).map_err(|error| format!("the pattern {pattern:?} gave up: {error}")),
            Err(_) => Ok(false),
        })
        .collect()
}

/// Phase-2 merges, and the seams that they can cross, in one table: a seam that is no merge has no rank.
struct Level2 {
    pairs: PairTable,
    /// Tokens that stand left or right of some seam; None if the seams are not known.
    sides: Option<(Bits, Bits)>,
}

#[derive(Clone, Copy)]
struct CacheEntry {
    key: u128,
    tokens: [u32; CACHE_TOKENS],
}

/// What one thread needs: a bounded cache of pieces, and room to work.
pub struct State {
    short: Vec<CacheEntry>,
    long: hashbrown::HashMap<Box<[u8]>, Box<[u32]>, rustc_hash::FxBuildHasher>,
    piece: Vec<u32>,
    tokens: Vec<u32>,
    ends: Vec<usize>,
    boundaries: Vec<usize>,
    scratch: Scratch,
}

impl State {
    fn new() -> Self {
        let empty = CacheEntry { key: 0, tokens: [NONE; CACHE_TOKENS] };
        Self {
            short: vec![empty; CACHE_ENTRIES],
            long: Default::default(),
            piece: Vec::new(),
            tokens: Vec::new(),
            ends: Vec::new(),
            boundaries: Vec::new(),
            scratch: Scratch::default(),
        }
    }
}

pub struct Encoder {
    definition: Definition,
    level1: PairTable,
    level2: Option<Level2>,
    /// With `ignore_merges`: the tokens that a piece of the scanner becomes although merges do not make them.
    whole: Option<WholeTokens>,
    /// Byte pairs at which a level-1 merge can join.
    live: Bits,
    /// Cut at dead byte pairs whatever the length: the scanner's pieces are long.
    cut_all: bool,
    /// Whether the merges are on one level although there is a phase 2.
    pub plain: bool,
    states: Mutex<Vec<State>>,
}

impl Encoder {
    pub fn new(definition: Definition) -> Self {
        let n = definition.merges.len();
        let superwords = definition.phase1 < n;
        let two_pass = definition.fence.is_some();
        let rules = effective_rules(&definition);
        let at = rules.partition_point(|rule| (rule.rank as usize) < definition.phase1);
        let leaves = superwords.then(|| leaves(&definition, &rules, at)).flatten();
        let plain = superwords && !two_pass && (leaves.is_none() || feeds_back(&definition, &rules, at));
        let (first, second) = rules.split_at(if plain { rules.len() } else { at });

        let mut level1 = PairTable::new(first.len());
        let mut live = Bits::new(1 << 16);
        for Rule { rank, merge } in first {
            level1.insert(merge.left, merge.right, *rank, merge.new);
            let (left, right) = (definition.tokens.get(merge.left), definition.tokens.get(merge.right));
            if let (Some(&last), Some(&first)) = (left.last(), right.first()) {
                live.set((last as usize) << 8 | first as usize);
            }
        }
        let level2 = (!second.is_empty()).then(|| {
            let mut pairs = PairTable::new(2 * second.len());
            let sides = leaves.map(|(leftmost, rightmost)| {
                let n = definition.tokens.len();
                let (mut left_side, mut right_side) = (Bits::new(n), Bits::new(n));
                for Rule { merge, .. } in second {
                    let (left, right) = (rightmost[merge.left as usize], leftmost[merge.right as usize]);
                    left_side.set(left as usize);
                    right_side.set(right as usize);
                    pairs.insert(left, right, NONE, SEAM);
                }
                (left_side, right_side)
            });
            for Rule { rank, merge } in second {
                pairs.insert(merge.left, merge.right, *rank, merge.new);
            }
            Level2 { pairs, sides }
        });
        Self {
            cut_all: superwords && !two_pass,
            level1,
            level2,
            whole: None,
            live,
            plain,
            definition,
            states: Mutex::new(Vec::new()),
        }
    }

    /// HF's `ignore_merges`: a whole piece of the scanner that is one of the tokens `ids` becomes it at once.
    /// For one-pass tokenizers.
    pub fn ignoring_merges(mut self, ids: &[u32]) -> Self {
        // Merges give most tokens anyway; only the others need a look before merging.
        let made = self.tokens_in_tokens();
        let not_made: Vec<u32> = ids.iter().copied().filter(|&id| made[id as usize] > 1).collect();
        if !not_made.is_empty() {
            self.whole = Some(WholeTokens::new(&self.definition.tokens, &not_made));
        }
        self
    }

    /// Ranks of the merges that can apply: see `effective_rules`.
    pub fn live_merges(&self) -> Vec<u32> {
        effective_rules(&self.definition).iter().map(|rule| rule.rank).collect()
    }

    /// By id: how many tokens the merges make of the token's own bytes (1 if they make the token).
    #[inline(never)]
    pub fn tokens_in_tokens(&self) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut merged = Vec::new();
        self.with_states(1, |states| {
            let state = &mut states[0];
            let mut scratch = std::mem::take(&mut state.scratch);
            let counts = (0..self.tokens().len() as u32)
                .map(|id| {
                    let bytes = self.tokens().get(id);
                    ids.clear();
                    merged.clear();
                    if bytes.is_empty() {
                        return 0;
                    }
                    self.cut(bytes, 0, bytes.len(), &mut state.cache_parts(), &mut ids);
                    match &self.level2 {
                        None => ids.len() as u32,
                        Some(level2) => {
                            level2.merge(&ids, &mut scratch, &mut merged);
                            merged.len() as u32
                        }
                    }
                })
                .collect();
            state.scratch = scratch;
            counts
        })
    }

    pub(crate) fn definition(&self) -> &Definition {
        &self.definition
    }

    pub fn tokens(&self) -> &Tokens {
        &self.definition.tokens
    }

    /// Runs `work` with a state per thread; states (and so caches) are kept for the next call.
    pub fn with_states<R>(&self, threads: usize, work: impl FnOnce(&mut [State]) -> R) -> R {
        let mut states = {
            let mut pool = self.states.lock().expect("no panic while held");
            let keep = pool.len().saturating_sub(threads);
            pool.split_off(keep)
        };
        states.resize_with(threads.max(1), State::new);
        let result = work(&mut states);
        self.states.lock().expect("no panic while held").append(&mut states);
        result
    }

    /// Ids of one text, appended to `out`.
    pub fn encode(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) -> Result<(), String> {
        match (&self.level2, &self.whole) {
            (None, None) => self.definition.scanner.pieces(text, |start, end| {
                self.cut(text, start, end, &mut state.cache_parts(), out);
            }),
            (level2, Some(whole)) => self.encode_whole(text, whole, level2.as_ref(), state, out),
            (Some(level2), None) => {
                let mut scratch = std::mem::take(&mut state.scratch);
                let result = self.spans(text, Unit::Document, state, |span| level2.merge(span, &mut scratch, out));
                state.scratch = scratch;
                result
            }
        }
    }

    /// `encode` of a one-pass tokenizer, where some pieces become a token that merges do not make.
    #[inline(never)]
    fn encode_whole(
        &self,
        text: &[u8],
        whole: &WholeTokens,
        level2: Option<&Level2>,
        state: &mut State,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        let (mut tokens, mut scratch) = (std::mem::take(&mut state.tokens), std::mem::take(&mut state.scratch));
        let result = self.definition.scanner.pieces(text, |start, end| {
            if let Some(id) = whole.get(&text[start..end]) {
                return out.push(id);
            }
            let Some(level2) = level2 else {
                return self.cut(text, start, end, &mut state.cache_parts(), out);
            };
            tokens.clear();
            self.cut(text, start, end, &mut state.cache_parts(), &mut tokens);
            level2.merge(&tokens, &mut scratch, out);
        });
        (state.tokens, state.scratch) = (tokens, scratch);
        result
    }

    /// Ids of all documents of a batch, and where each document's begin and end.
    pub fn encode_batch(
        &self,
        batch: &(impl Documents + ?Sized),
        threads: usize,
    ) -> Result<(Vec<u32>, Vec<i64>), String> {
        let chunks = parallel::chunks(batch.offsets(), CHUNK_BYTES);
        let results: Vec<Mutex<(Vec<u32>, Vec<usize>)>> = chunks.iter().map(|_| Mutex::default()).collect();
        let threads = threads.min(chunks.len()).max(1);
        self.with_states(threads, |states| {
            parallel::for_each(states, chunks.len(), |state, i| {
                let bytes = batch.offsets()[chunks[i].end] - batch.offsets()[chunks[i].start];
                let mut ids = Vec::with_capacity(bytes as usize / 3);
                let mut ends = Vec::with_capacity(chunks[i].len());
                for document in chunks[i].clone() {
                    self.encode(batch.document(document), state, &mut ids)?;
                    ends.push(ids.len());
                }
                *results[i].lock().expect("no panic while held") = (ids, ends);
                Ok::<(), String>(())
            })
        })?;
        let mut all = Vec::new();
        let mut offsets = Vec::with_capacity(batch.count() + 1);
        offsets.push(0);
        for result in results {
            let (ids, ends) = result.into_inner().expect("no panic while held");
            offsets.extend(ends.into_iter().map(|end| (all.len() + end) as i64));
            if all.is_empty() {
                all = ids;
            } else {
                all.extend_from_slice(&ids);
            }
        }
        Ok((all, offsets))
    }

    /// Calls `span` with the phase-1 tokens of each stretch of text within which phase 2 may merge.
    /// `unit` adds boundaries that training has and encoding has not.
    pub fn spans(
        &self,
        text: &[u8],
        unit: Unit,
        state: &mut State,
        mut span: impl FnMut(&[u32]),
    ) -> Result<(), String> {
        let Definition { scanner, fence, tokens: table, eligible, .. } = &self.definition;
        let mut tokens = std::mem::take(&mut state.tokens);
        let result = match fence {
            None => unit.split(text, |text| {
                scanner.pieces(text, |start, end| {
                    tokens.clear();
                    self.cut(text, start, end, &mut state.cache_parts(), &mut tokens);
                    span(&tokens);
                })
            }),
            Some(fence) => {
                tokens.clear();
                state.ends.clear();
                state.boundaries.clear();
                let (mut ends, mut boundaries) =
                    (std::mem::take(&mut state.ends), std::mem::take(&mut state.boundaries));
                let mut at = 0;
                let result = scanner
                    .pieces(text, |start, end| {
                        let first = tokens.len();
                        self.cut(text, start, end, &mut state.cache_parts(), &mut tokens);
                        ends.extend(tokens[first..].iter().map(|&token| {
                            at += table.get(token).len();
                            at
                        }));
                        let whole = tokens.len() == first + 1;
                        if eligible.as_ref().is_some_and(|eligible| !(whole && eligible[tokens[first] as usize])) {
                            boundaries.push(start);
                            boundaries.extend_from_slice(&ends[first..]);
                        }
                    })
                    .and_then(|()| {
                        let mut start = 0;
                        unit.split(text, |line| {
                            fence.pieces(line, |_, end| boundaries.push(start + end))?;
                            start += line.len();
                            Ok(())
                        })
                    });
                if eligible.is_some() {
                    boundaries.sort(); // two sorted rows, one behind the other: linear
                }
                if result.is_ok() {
                    between_closed_seams(&tokens, &ends, &boundaries, &mut span);
                }
                (state.ends, state.boundaries) = (ends, boundaries);
                result
            }
        };
        state.tokens = tokens;
        result
    }

    /// Phase-1 tokens of a piece of the scanner.
    #[inline(always)]
    fn cut(&self, text: &[u8], start: usize, end: usize, cache: &mut CacheParts, out: &mut Vec<u32>) {
        if !self.cut_all && end - start <= SHORT {
            return self.lookup(text, start, end, cache, out);
        }
        // Where to cut is unpredictable: a mask without branches first, then its bits.
        let mut first = start;
        let mut block = start + 1;
        while block < end {
            let stop = end.min(block + 64);
            let mut cuts = 0u64;
            for (i, pair) in text[block - 1..stop].windows(2).enumerate() {
                let dead = !self.live.get((pair[0] as usize) << 8 | pair[1] as usize);
                cuts |= (dead as u64) << i;
            }
            if self.cut_all {
                // The cache is larger than what the processor keeps near: ask for all entries of the block at once.
                let (mut begin, mut rest) = (first, cuts);
                while rest != 0 {
                    let at = block + rest.trailing_zeros() as usize;
                    if at - begin <= SHORT {
                        let key = short_key(text, begin, at);
                        prefetch(cache.short, hash_key(key) as usize & (CACHE_ENTRIES - 1));
                    }
                    begin = at;
                    rest &= rest - 1;
                }
            }
            while cuts != 0 {
                let at = block + cuts.trailing_zeros() as usize;
                self.lookup(text, first, at, cache, out);
                first = at;
                cuts &= cuts - 1;
            }
            block = stop;
        }
        self.lookup(text, first, end, cache, out);
    }

    #[inline(always)]
    fn lookup(&self, text: &[u8], start: usize, end: usize, cache: &mut CacheParts, out: &mut Vec<u32>) {
        if end - start == 1 {
            return out.push(self.definition.byte_ids[text[start] as usize]);
        }
        if end - start > SHORT {
            return self.long(&text[start..end], cache, out);
        }
        let key = short_key(text, start, end);
        let entry = &mut cache.short[hash_key(key) as usize & (CACHE_ENTRIES - 1)];
        if entry.key != key {
            self.merge_bytes(&text[start..end], cache.piece, cache.scratch);
            if cache.piece.len() > CACHE_TOKENS {
                return out.extend_from_slice(cache.piece);
            }
            entry.key = key;
            entry.tokens = [NONE; CACHE_TOKENS];
            entry.tokens[..cache.piece.len()].copy_from_slice(cache.piece);
        }
        // Copy all, keep those that are there: no branch on their number.
        out.extend_from_slice(&entry.tokens);
        let missing = entry.tokens.iter().filter(|&&token| token == NONE).count();
        out.truncate(out.len() - missing);
    }

    #[inline(never)]
    fn long(&self, bytes: &[u8], cache: &mut CacheParts, out: &mut Vec<u32>) {
        if let Some(tokens) = cache.long.get(bytes) {
            return out.extend_from_slice(tokens);
        }
        self.merge_bytes(bytes, cache.piece, cache.scratch);
        out.extend_from_slice(cache.piece);
        if bytes.len() <= LONG_BYTES {
            if cache.long.len() >= LONG_ENTRIES {
                cache.long.clear();
            }
            cache.long.insert(bytes.into(), cache.piece.as_slice().into());
        }
    }

    #[inline(never)]
    fn merge_bytes(&self, bytes: &[u8], ids: &mut Vec<u32>, scratch: &mut Scratch) {
        ids.clear();
        ids.extend(bytes.iter().map(|&byte| self.definition.byte_ids[byte as usize]));
        merge(ids, &self.level1, scratch);
    }
}

/// The parts of a state that a piece needs, apart from the token buffers.
struct CacheParts<'a> {
    short: &'a mut Vec<CacheEntry>,
    long: &'a mut hashbrown::HashMap<Box<[u8]>, Box<[u32]>, rustc_hash::FxBuildHasher>,
    piece: &'a mut Vec<u32>,
    scratch: &'a mut Scratch,
}

impl State {
    #[inline(always)]
    fn cache_parts(&mut self) -> CacheParts<'_> {
        CacheParts { short: &mut self.short, long: &mut self.long, piece: &mut self.piece, scratch: &mut self.scratch }
    }
}

impl Level2 {
    #[inline(always)]
    fn merge(&self, tokens: &[u32], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let Some((left_side, right_side)) = &self.sides else {
            scratch.run.clear();
            scratch.run.extend_from_slice(tokens);
            let mut run = std::mem::take(&mut scratch.run);
            merge(&mut run, &self.pairs, scratch);
            out.extend_from_slice(&run);
            scratch.run = run;
            return;
        };
        let mut start = 0;
        scratch.ranks.clear();
        for at in 1..tokens.len() {
            let (left, right) = (tokens[at - 1], tokens[at]);
            if left_side.get(left as usize) && right_side.get(right as usize) {
                let found = self.pairs.get(left, right);
                if found.1 != NONE {
                    scratch.ranks.push(found);
                    continue;
                }
            }
            self.merge_run(&tokens[start..at], scratch, out);
            start = at;
        }
        self.merge_run(&tokens[start..], scratch, out);
    }

    /// Merges a run whose pairs are looked up already, in `scratch.ranks`, which it empties.
    #[inline(always)]
    fn merge_run(&self, run: &[u32], scratch: &mut Scratch, out: &mut Vec<u32>) {
        match *run {
            [] => {}
            [token] => out.push(token),
            [_, _] => match scratch.ranks[0] {
                (NONE, _) => out.extend_from_slice(run),
                (_, new) => out.push(new),
            },
            _ => {
                let mut ids = std::mem::take(&mut scratch.run);
                ids.clear();
                ids.extend_from_slice(run);
                if ids.len() > SCAN {
                    merge_with_heap(&mut ids, &self.pairs, scratch);
                } else {
                    merge_ranked(&mut ids, &mut scratch.ranks, &self.pairs);
                }
                out.extend_from_slice(&ids);
                scratch.run = ids;
            }
        }
        scratch.ranks.clear();
    }
}

/// Emits the tokens between seams at which phase 2 must not merge: a boundary lies at them, or inside a token
/// on either side.
pub(crate) fn between_closed_seams(
    tokens: &[u32],
    ends: &[usize],
    boundaries: &[usize],
    span: &mut impl FnMut(&[u32]),
) {
    let mut boundary = boundaries.iter().copied().peekable();
    let (mut start, mut inside_before) = (0, false);
    let mut at_end_before = false;
    let mut token_start = 0;
    for (i, &end) in ends.iter().enumerate() {
        while boundary.next_if(|&b| b <= token_start).is_some() {}
        let inside = boundary.peek().is_some_and(|&b| b < end);
        if i > 0 && (at_end_before || inside_before || inside) {
            span(&tokens[start..i]);
            start = i;
        }
        while boundary.next_if(|&b| b < end).is_some() {}
        at_end_before = boundary.peek() == Some(&end);
        inside_before = inside;
        token_start = end;
    }
    if start < tokens.len() {
        span(&tokens[start..]);
    }
}

/// Tokens that are found by a whole piece's bytes.
struct WholeTokens {
    ids: hashbrown::HashMap<Box<[u8]>, u32, rustc_hash::FxBuildHasher>,
    /// By a hash of the first two bytes: the lengths that occur, all from 63 on as one. Few tokens are in the table,
    /// so that this answers for nearly every piece.
    lengths: Vec<u64>,
}

impl WholeTokens {
    fn new(tokens: &Tokens, ids: &[u32]) -> Self {
        let mut whole = Self { ids: Default::default(), lengths: vec![0; 1 << 12] };
        for &id in ids {
            let bytes = tokens.get(id);
            whole.lengths[Self::slot(bytes)] |= 1 << bytes.len().min(63);
            whole.ids.insert(bytes.into(), id);
        }
        whole
    }

    #[inline(always)]
    fn slot(bytes: &[u8]) -> usize {
        ((bytes[0] as usize) << 4 ^ bytes[1] as usize) & 0xFFF
    }

    #[inline(always)]
    fn get(&self, piece: &[u8]) -> Option<u32> {
        if piece.len() < 2 || self.lengths[Self::slot(piece)] >> piece.len().min(63) & 1 == 0 {
            return None;
        }
        self.ids.get(piece).copied()
    }
}
