//! The encoder: both levels on the scanner's pieces.

use std::convert::Infallible;

use super::level1::{merges::Level1, pieces::Pieces};
use super::{definition::Definition, level2::Level2, levels::Levels, rules::effective_rules, state::State};
use crate::encode::stream::cuts::Cuts;
use crate::runtime::{interrupt::poll, pool::Pool};
use crate::text::unit::Unit;
use crate::vocabulary::{Tokens, MOST_IDS, MOST_MERGES};

/// Sets of the piece cache per thread, 64 bytes each: at most 8 MiB. Small vocabularies need fewer.
const CACHE_SETS: std::ops::RangeInclusive<usize> = 1 << 6..=1 << 17;

pub struct Encoder {
    pub(super) definition: Definition,
    pub(super) level1: Level1,
    pub(super) level2: Option<Level2>,
    /// Where texts can be cut without changing their ids.
    pub(super) cuts: Cuts,
    /// States that no call is using.
    states: Pool<Box<State>>,
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
        let Levels { first, second, leaves } = Levels::new(&definition);
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
            cuts: Cuts::new(&definition),
            definition,
            states: Pool::default(),
        }
    }

    /// HF's `ignore_merges`: a whole piece of the scanner that equals one of the tokens `ids` becomes that token
    /// without merging. For one-pass tokenizers.
    pub fn ignoring_merges(mut self, ids: &[u32]) -> Self {
        // Merges produce most tokens anyway; only the others need a lookup before merging.
        let made = self.tokens_in(ids);
        let others: Vec<u32> = ids.iter().copied().zip(made).filter(|(_, n)| *n > 1).map(|(id, _)| id).collect();
        self.level1.set_whole_tokens(&self.definition, &others);
        self.cuts.depend_on_whole_pieces();
        self
    }

    /// An encoder whose first level cuts pieces further even without superwords: the gaps of a fence hold many words.
    pub fn cutting_gaps(mut self) -> Self {
        self.level1.cut_all = self.definition.second_pass_fence.is_none();
        self
    }

    /// Ranks of the merges that count (see `effective_rules`).
    pub fn live_merges(&self) -> Vec<u32> {
        effective_rules(&self.definition).iter().map(|rule| rule.rank).collect()
    }

    /// By id: number of tokens into which the merges turn the token's own bytes (1 if they produce the token).
    pub fn tokens_in_tokens(&self) -> Vec<u32> {
        self.tokens_in(&(0..self.tokens().len() as u32).collect::<Vec<u32>>())
    }

    fn tokens_in(&self, ids: &[u32]) -> Vec<u32> {
        let (mut packed, mut merged) = (Vec::new(), Vec::new());
        self.with_state(|State { level1, level2: state2, .. }| {
            let count = |&id: &u32| {
                let bytes = self.tokens().get(id);
                poll(1 + bytes.len());
                if bytes.is_empty() {
                    return 0;
                }
                packed.clear();
                level1.append_one_piece(&self.level1, bytes, &mut packed);
                let Some(level2) = &self.level2 else { return packed.len() as u32 };
                merged.clear();
                level2.append_merged(&packed, state2, &mut merged);
                merged.len() as u32
            };
            Ok::<_, Infallible>(ids.iter().map(count).collect())
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

    /// Drops the states that calls have left, which hold 12 MB or more each.
    pub fn drop_states(&mut self) {
        self.states = Pool::default();
    }

    fn state(&self) -> Box<State> {
        self.states.take().unwrap_or_else(|| self.new_state())
    }

    fn new_state(&self) -> Box<State> {
        let sets = self.definition.merges.len().next_power_of_two().saturating_mul(4);
        Box::new(State::new(&self.level1, sets.clamp(*CACHE_SETS.start(), *CACHE_SETS.end())))
    }

    /// Appends the ids of one text to `out`.
    pub fn encode(&self, text: &[u8], state: &mut State, out: &mut Vec<u32>) -> Result<(), String> {
        let State { level1, level2: state2, spans, .. } = state;
        match &self.level2 {
            None => {
                let mut sink = self.level1.piece_sink::<false>(text, level1, out, None);
                self.definition.scanner.pieces(text, sink.reborrow())?;
                sink.finish();
                Ok(())
            }
            Some(level2) => {
                let mut merge = |packed: &[u32]| level2.append_merged(packed, state2, out);
                self.spans_with(text, Unit::Document, level1, spans, &mut merge)
            }
        }
    }

    /// Calls `take` with the packed level-1 tokens of whole pieces of the scanner, many at a time.
    pub(super) fn gather(
        &self,
        text: &[u8],
        unit: Unit,
        level1: &mut Pieces,
        take: &mut dyn FnMut(&[u32]),
    ) -> Result<(), String> {
        let mut packed = std::mem::take(&mut level1.gathered);
        packed.clear();
        let mut sink = self.level1.piece_sink::<true>(text, level1, &mut packed, Some(take));
        self.definition.scanner.pieces_of(unit, text, sink.reborrow())?;
        sink.finish();
        level1.gathered = packed;
        Ok(())
    }
}
