//! Pairs of adjacent tokens, and their positions.

use rustc_hash::FxBuildHasher;

pub(super) type Map<K, V> = hashbrown::HashMap<K, V, FxBuildHasher>;

pub(super) const UNTRACKED: u32 = u32::MAX;

/// Cells or occurrences between two calls of `poll`.
pub(super) const BLOCK: usize = 1 << 12;

#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) count: u64,
    pub(super) start: usize, // into the postings
    pub(super) occurrences: u32,
}

pub(super) const NOWHERE: Pair = Pair { count: 0, start: 0, occurrences: 0 };

/// An occurrence of the merged pair: first cell of the new token, first cell of the token before it, and the tokens on
/// either side.
pub(super) struct Occurrence {
    pub(super) position: u32,
    pub(super) previous: u32,
    pub(super) before: u32,
    pub(super) after: u32,
    pub(super) weight: u64,
}

/// Count of a token next to the new one, on one side.
#[derive(Clone, Copy)]
pub(super) struct Neighbour {
    pub(super) count: u64,
    pub(super) occurrences: u32,
    pub(super) next: usize, // index of the next posting
}

pub(super) const NO_NEIGHBOUR: Neighbour = Neighbour { count: 0, occurrences: 0, next: usize::MAX };
