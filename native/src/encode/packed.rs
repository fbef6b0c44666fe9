//! Packed tokens: an id and the flags that level 2 needs, in one integer.

use crate::vocabulary::MOST_IDS;

pub const ID: u32 = MOST_IDS as u32 - 1;

/// In the first token of a cache entry: number of tokens minus one.
pub(super) const COUNT_SHIFT: u32 = 24;
pub(super) const COUNT: u32 = 3 << COUNT_SHIFT;

/// The first token of a piece of the scanner. In one pass, the seam before it is closed.
pub const FIRST: u32 = 1 << 26;

/// The token can be to the left or to the right of an open seam.
pub(super) const LEFT_OF_SEAM: u32 = 1 << 28;
pub(super) const RIGHT_OF_SEAM: u32 = 1 << 29;

/// The token is the left or the right part of a phase-2 merge.
pub(super) const LEFT_PART: u32 = 1 << 30;
pub(super) const RIGHT_PART: u32 = 1 << 31;
