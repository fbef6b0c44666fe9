//! The encoder: both levels on the scanner's pieces.

use std::convert::Infallible;

use super::{definition::Definition, level2::Level2, levels::Levels, rules::effective_rules, state::State};
use crate::count::keys::SHORT;
use crate::encode::{level1::pieces::Level1, level1::whole_tokens::WholeTokens, stream::cuts::Cuts};
use crate::runtime::lock_free::{Once, Pool};
use crate::runtime::{interrupt::poll, memory};
use crate::text::unit::Unit;
use crate::vocabulary::{Tokens, MOST_IDS, MOST_MERGES};

/// Sets of the piece cache per thread, 64 bytes each: at most 8 MiB. Small vocabularies need fewer.
const CACHE_PAIRS: std::ops::RangeInclusive<usize> = 1 << 6..=1 << 17;

/// Level-1 tokens gathered before level 2 merges them.
pub(super) const GATHERED: usize = 1 << 10;

/// States kept between calls.
const KEPT_STATES: usize = 256;

pub struct Encoder {
    pub(super) definition: Definition,
    pub(super) level1: Level1,
    pub(super) level2: Option<Level2>,
    /// With `ignore_merges`: tokens that replace a whole piece of the scanner although merges do not produce them.
    pub(super) whole_tokens: Option<WholeTokens>,
    /// Number of phase-1 merges that join products of phase 2. The second level applies them too.
    pub late_merges: usize,
    /// States that no call is using.
    states: Pool<State, KEPT_STATES>,
    ignores_merges: bool,
    cuts: Once<Cuts>,
}

impl Encoder {
    /// # Panics
    ///
    /// If there are more than `MOST_IDS` tokens or `MOST_MERGES` merges.
    pub fn new(definition: Definition) -> Self {
        assert!(definition.tokens.len() <= MOST_IDS, "ids are below {MOST_IDS}");
        assert!(definition.merges.len() <= MOST_MERGES, "ranks are below {MOST_MERGES}");
        let superwords = definition.phase1 < definition.merges.len();
        let cut_all = superwords && definition.second_pass_fence.is_none();
        let Levels { first, second, late, leaves } = Levels::new(&definition);
        let n_tokens = definition.tokens.len();
        let (level2, packed) = if second.is_empty() {
            (None, Vec::new())
        } else {
            let (level2, packed) = Level2::new(n_tokens, &second, leaves);
            (Some(level2), packed)
        };
        Self {
            level1: Level1::new(&definition, &first, cut_all, packed),
            level2,
            whole_tokens: None,
            late_merges: late,
            definition,
            states: Pool::new(),
            ignores_merges: false,
            cuts: Once::new(),
        }
    }

    /// HF's `ignore_merges`: a whole piece of the scanner that equals one of the tokens `ids` becomes that token
    /// without merging. For one-pass tokenizers.
    pub fn ignoring_merges(mut self, ids: &[u32]) -> Self {
        self.ignores_merges = true;
        // Merges produce most tokens anyway; only the others need a lookup before merging.
        let unknown: Vec<u32> =
            ids.iter().copied().filter(|&id| !self.level1.is_token(self.tokens().get(id))).collect();
        let made = self.tokens_in(&unknown);
        let not_made: Vec<u32> = unknown.into_iter().zip(made).filter(|(_, n)| *n > 1).map(|(id, _)| id).collect();
        if !not_made.is_empty() {
            self.level1.set_whole_tokens(&self.definition, &not_made);
            self.whole_tokens = Some(WholeTokens::new(&self.definition.tokens, &not_made));
            self.states = Pool::new(); // the caches hold these tokens merged
        }
        self
    }

    /// Ranks of the merges that can apply (see `effective_rules`).
    pub fn live_merges(&self) -> Vec<u32> {
        effective_rules(&self.definition).iter().map(|rule| rule.rank).collect()
    }

    /// By id: number of tokens into which the merges turn the token's own bytes (1 if they produce the token).
    pub fn tokens_in_tokens(&self) -> Vec<u32> {
        self.tokens_in(&(0..self.tokens().len() as u32).collect::<Vec<u32>>())
    }

    #[inline(never)]
    fn tokens_in(&self, ids: &[u32]) -> Vec<u32> {
        let (mut packed, mut merged) = (Vec::new(), Vec::new());
        self.with_state(|state| {
            let mut count = |&id: &u32| {
                poll(1 + self.tokens().get(id).len());
                let bytes = self.tokens().get(id);
                if bytes.is_empty() {
                    return 0;
                }
                packed.clear();
                merged.clear();
                self.level1.merged(bytes, state, &mut packed);
                match &self.level2 {
                    None => packed.len() as u32,
                    Some(level2) => {
                        level2.merge(&packed, &mut state.scratch, &mut merged);
                        merged.len() as u32
                    }
                }
            };
            Ok::<_, Infallible>(ids.iter().map(&mut count).collect())
        })
        .unwrap_or_else(|never| match never {})
    }

    pub(crate) fn definition(&self) -> &Definition {
        &self.definition
    }

    pub fn tokens(&self) -> &Tokens {
        &self.definition.tokens
    }

    /// Runs `work` with one state per thread. States, and with them the caches, are kept for the next call unless
    /// `work` fails.
    pub fn with_states<R, E>(
        &self,
        threads: usize,
        work: impl FnOnce(&mut [Box<State>]) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut states: Vec<_> = (0..threads.max(1)).map(|_| self.state()).collect();
        let result = work(&mut states)?;
        states.into_iter().for_each(|state| self.states.put(state));
        Ok(result)
    }

    /// Runs `work` with one state, like `with_states`.
    pub fn with_state<R, E>(&self, work: impl FnOnce(&mut State) -> Result<R, E>) -> Result<R, E> {
        let mut state = self.state();
        let result = work(&mut state)?;
        self.states.put(state);
        Ok(result)
    }

    fn state(&self) -> Box<State> {
        self.states.take().unwrap_or_else(|| self.new_state())
    }

    fn new_state(&self) -> Box<State> {
        let pairs = self.definition.merges.len().next_power_of_two().saturating_mul(4);
        let mut state = Box::new(State::new(pairs.clamp(*CACHE_PAIRS.start(), *CACHE_PAIRS.end())));
        self.level1.cache_tokens(&mut state.short);
        state
    }

    /// Where texts can be cut without changing their ids.
    pub fn cuts(&self) -> &Cuts {
        self.cuts.get_or_init(|| Cuts::new(&self.definition, self.ignores_merges))
    }

    /// Appends the ids of one text to `out`.
    pub fn encode(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) -> Result<(), String> {
        match (&self.level2, &self.whole_tokens) {
            _ if self.definition.second_pass_fence.is_some() => self.encode_in_spans(text, state, out),
            (level2, Some(whole_tokens)) => self.encode_whole(text, whole_tokens, level2.as_ref(), state, out),
            (None, None) => {
                self.level1.begin::<false>(0, state);
                let pieces = &self.definition.scanner;
                pieces.pieces(text, |start, end| self.level1.cut::<false>(text, start, end, state, out))?;
                self.level1.flush(text, state, out);
                Ok(())
            }
            (Some(level2), None) => {
                let mut packed = std::mem::take(&mut state.packed);
                packed.clear();
                self.level1.begin::<true>(0, state);
                let result = self.definition.scanner.pieces(text, |start, end| {
                    if packed.len() >= GATHERED {
                        self.level1.flush(text, state, &mut packed);
                        level2.merge(&packed, &mut state.scratch, out);
                        packed.clear();
                    }
                    self.level1.cut::<true>(text, start, end, state, &mut packed);
                });
                self.level1.flush(text, state, &mut packed);
                level2.merge(&packed, &mut state.scratch, out);
                state.packed = packed;
                result
            }
        }
    }

    /// `encode` of a two-pass tokenizer.
    #[inline(never)]
    fn encode_in_spans(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) -> Result<(), String> {
        let (mut packed, mut scratch) = (std::mem::take(&mut state.packed), std::mem::take(&mut state.scratch));
        let result = self.spans(text, Unit::Document, state, |span| match &self.level2 {
            None => memory::extend(out, span.iter().copied()),
            Some(level2) => {
                packed.clear();
                memory::extend(&mut packed, span.iter().map(|&id| self.level1.pack(id)));
                level2.merge(&packed, &mut scratch, out);
            }
        });
        (state.packed, state.scratch) = (packed, scratch);
        result
    }

    /// `encode` of a one-pass tokenizer in which some whole pieces become a token that merges do not produce.
    #[inline(never)]
    fn encode_whole(
        &self,
        text: &[u8],
        whole_tokens: &WholeTokens,
        level2: Option<&Level2>,
        state: &mut State,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        let mut packed = std::mem::take(&mut state.packed);
        packed.clear();
        self.level1.begin::<true>(0, state);
        let put = |packed: &mut Vec<u32>, state: &mut State, out: &mut Vec<u32>| {
            self.level1.flush(text, state, packed);
            match level2 {
                None => memory::extend(out, packed.iter().copied()),
                Some(level2) => level2.merge(packed, &mut state.scratch, out),
            }
            packed.clear();
        };
        let result = self.definition.scanner.pieces(text, |start, end| {
            // Level 1 looks up short pieces itself, unless it splits all pieces.
            let found =
                if end - start > SHORT || self.level1.cut_all { whole_tokens.get(&text[start..end]) } else { None };
            if found.is_some() || packed.len() >= GATHERED {
                put(&mut packed, state, out);
            }
            match found {
                Some(id) => {
                    memory::push(out, id);
                    self.level1.begin::<true>(end, state);
                }
                None if level2.is_none() => self.level1.cut::<false>(text, start, end, state, &mut packed),
                None => self.level1.cut::<true>(text, start, end, state, &mut packed),
            }
        });
        put(&mut packed, state, out);
        state.packed = packed;
        result
    }
}
