//! Token words: an id, and what the second level asks about the token, in one integer.

use crate::vocabulary::MOST_IDS;

pub(super) const ID: u32 = MOST_IDS as u32 - 1;

/// In the first word of a cache's entry: one less than the number of words.
pub(super) const COUNT_SHIFT: u32 = 24;
pub(super) const COUNT: u32 = 3 << COUNT_SHIFT;

/// The first token of a piece of the scanner: the seam in front of it is closed.
pub(super) const FIRST: u32 = 1 << 26;

/// A seam that phase 2 may cross can have the token on its left side, or on its right.
pub(super) const LEFT_OF_SEAM: u32 = 1 << 28;
pub(super) const RIGHT_OF_SEAM: u32 = 1 << 29;

/// The token is the left part of some phase-2 merge, or the right one.
pub(super) const LEFT_PART: u32 = 1 << 30;
pub(super) const RIGHT_PART: u32 = 1 << 31;
