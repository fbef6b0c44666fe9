//! Pairs of adjacent tokens, and where they occur.

use rustc_hash::FxBuildHasher;

pub(super) type Map<K, V> = hashbrown::HashMap<K, V, FxBuildHasher>;

pub(super) const UNTRACKED: u32 = u32::MAX;

/// Cells or occurrences after which a merge or a count of pairs may be stopped.
pub(super) const BLOCK: usize = 1 << 12;

#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) count: u64,
    pub(super) start: usize, // into the postings
    pub(super) occurrences: u32,
}

pub(super) const NOWHERE: Pair = Pair { count: 0, start: 0, occurrences: 0 };

/// A place where a pair was merged: the first cell of the new token and of the token before it, and its neighbours.
pub(super) struct Occurrence {
    pub(super) position: u32,
    pub(super) previous: u32,
    pub(super) before: u32,
    pub(super) after: u32,
    pub(super) weight: u64,
}

/// What a merge finds next to its new token, per neighbouring token.
#[derive(Clone, Copy)]
pub(super) struct Neighbour {
    pub(super) count: u64,
    pub(super) occurrences: u32,
    pub(super) next: usize, // where the next posting goes
}

pub(super) const NO_NEIGHBOUR: Neighbour = Neighbour { count: 0, occurrences: 0, next: usize::MAX };
