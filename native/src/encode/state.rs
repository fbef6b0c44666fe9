//! What a thread needs to encode.

use super::merge::Scratch;
use crate::encode::level1::cache::{LongPieces, ShortPieces, TOKENS};
use crate::encode::level1::lanes::Lanes;
use crate::encode::level1::queue::{Miss, Queue, AHEAD};

/// What one thread needs: a bounded cache of pieces, and room to work.
pub struct State {
    pub(super) short: ShortPieces,
    pub(super) long: LongPieces,
    pub(super) queue: Queue,
    /// What the pieces of the queue become.
    pub(super) room: [u32; AHEAD * TOKENS],
    pub(super) misses: Vec<Miss>,
    pub(super) lanes: Lanes,
    /// Dead byte pairs (see `pieces`) in a block of 64 bytes, and where it starts.
    pub(super) dead: u64,
    pub(super) block: usize,
    /// Of one text, for who makes something else of them.
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
            long: LongPieces::default(),
            queue: Queue::new(),
            room: [0; AHEAD * TOKENS],
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
