//! The state of an encoding thread.

use super::merge::Scratch;
use crate::encode::level1::cache::{LongPieces, MediumPieces, ShortPieces, MEDIUM_TOKENS};
use crate::encode::level1::lanes::Lanes;
use crate::encode::level1::queue::{Miss, Queue, AHEAD};

/// The state of an encoding thread: bounded caches of pieces, and scratch space.
pub struct State {
    pub(super) short: ShortPieces,
    pub(super) medium: MediumPieces,
    pub(super) long: LongPieces,
    pub(super) queue: Queue,
    /// Tokens of the queued pieces.
    pub(super) room: [u32; AHEAD * MEDIUM_TOKENS],
    pub(super) misses: Vec<Miss>,
    pub(super) lanes: Lanes,
    /// Dead byte pairs (see `pieces`) of a block of 64 bytes, and the start of the block.
    pub(super) dead: u64,
    pub(super) block: usize,
    /// Buffer for callers that convert the ids of a text.
    pub ids: Vec<u32>,
    pub(super) piece: Vec<u32>,
    pub(super) packed: Vec<u32>,
    pub(super) gathered: Vec<u32>,
    pub(super) tokens: Vec<u32>,
    pub(super) ends: Vec<usize>,
    pub(super) boundaries: Vec<usize>,
    pub(super) scratch: Scratch,
}

impl State {
    pub(super) fn new(cache: usize) -> Self {
        Self {
            short: ShortPieces::new(cache),
            medium: MediumPieces::new(),
            long: LongPieces::default(),
            queue: Queue::new(),
            room: [0; AHEAD * MEDIUM_TOKENS],
            misses: Vec::new(),
            lanes: Lanes::default(),
            dead: 0,
            block: usize::MAX,
            ids: Vec::new(),
            piece: Vec::new(),
            packed: Vec::new(),
            gathered: Vec::new(),
            tokens: Vec::new(),
            ends: Vec::new(),
            boundaries: Vec::new(),
            scratch: Scratch::default(),
        }
    }
}
