//! The state of an encoding thread.

use super::level1::{merges::Level1, pieces::Pieces};
use super::level2::Level2State;

/// Larger buffers of ids are not kept between texts.
const KEPT_IDS: usize = 1 << 20;

/// The state of an encoding thread: a bounded cache of pieces, and scratch space.
pub struct State {
    pub(super) level1: Pieces,
    pub(super) level2: Level2State,
    pub(super) spans: SpanBuffers,
    ids: Vec<u32>,
}

impl State {
    /// `sets`: size of the piece cache.
    pub(super) fn new(level1: &Level1, sets: usize) -> Self {
        let level1 = Pieces::new(level1, sets);
        Self { level1, level2: Level2State::default(), spans: SpanBuffers::default(), ids: Vec::new() }
    }

    /// Level2State `work` with an empty buffer for the ids of a text.
    #[inline(always)]
    pub fn with_ids<R>(&mut self, work: impl FnOnce(&mut Self, &mut Vec<u32>) -> R) -> R {
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        let result = work(self, &mut ids);
        if ids.capacity() <= KEPT_IDS {
            self.ids = ids;
        }
        result
    }
}

/// Buffers of `Encoder::spans_with`.
#[derive(Default)]
pub(super) struct SpanBuffers {
    pub(super) tokens: Vec<u32>,
    /// Ends of the tokens in the text.
    pub(super) ends: Vec<usize>,
    /// Positions in the text that phase 2 must not cross.
    pub(super) boundaries: Vec<usize>,
}
