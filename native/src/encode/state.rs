//! The state of an encoding thread.

use super::level1::{pieces::Pieces, tables::Level1};
use super::merge::Scratch;

/// The state of an encoding thread: bounded caches of pieces, and scratch space.
pub struct State {
    pub(super) level1: Pieces,
    /// Buffer for callers that convert the ids of a text.
    pub ids: Vec<u32>,
    pub(super) packed: Vec<u32>,
    pub(super) gathered: Vec<u32>,
    pub(super) tokens: Vec<u32>,
    pub(super) ends: Vec<usize>,
    pub(super) boundaries: Vec<usize>,
    pub(super) scratch: Scratch,
}

impl State {
    /// `sets`: size of the cache of short pieces.
    pub(super) fn new(level1: &Level1, sets: usize) -> Self {
        Self {
            level1: Pieces::new(level1, sets),
            ids: Vec::new(),
            packed: Vec::new(),
            gathered: Vec::new(),
            tokens: Vec::new(),
            ends: Vec::new(),
            boundaries: Vec::new(),
            scratch: Scratch::default(),
        }
    }
}
