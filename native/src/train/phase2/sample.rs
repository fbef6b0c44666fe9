//! A sample of the text's pieces, whose size is limited.
//!
//! Each piece has a level: one in two sampled pieces has level 0, one in four level 1, and so on. A sample that is too
//! large drops its lowest level. Levels depend only on the text of a document, and sizes of levels only grow during a
//! pass. So the sample depends neither on the order of the documents nor on who reads them.

use super::{fragments::Fragments, partial};

/// Number of levels, so that every number has one.
pub(super) const LEVELS: usize = 65;

/// Pieces of one level.
#[derive(Default)]
pub(super) struct Level {
    pub(super) pieces: Fragments,
    pub(super) size: Size,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of tokens.
    pub cells: u64,
    /// Number of tokens, times the weights of their documents.
    pub tokens: u64,
}

#[derive(Default)]
pub(super) struct Sample {
    /// Levels below this one were dropped.
    pub(super) lowest: usize,
    levels: Vec<Level>,
}

/// Level of the sampled piece with this number.
#[inline(always)]
pub(super) fn level(number: u64) -> usize {
    number.trailing_zeros() as usize
}

impl Sample {
    pub(super) fn add(&mut self, level: usize, piece: &[u32], weight: u64) {
        if level >= self.lowest {
            let cells = piece.len() as u64;
            let level = self.level(level);
            level.pieces.add(piece, 0..piece.len(), weight);
            level.size.cells += cells;
            level.size.tokens += weight * cells;
        }
    }

    /// Adds a piece with its count. Its size must be added too (`add_sizes`).
    pub(super) fn add_checked(&mut self, level: usize, piece: &[u32], count: u64) -> Result<(), String> {
        if level >= self.lowest {
            self.level(level).pieces.add_checked(piece, count)?;
        }
        Ok(())
    }

    /// Adds the sizes of the levels from `lowest` on of another sample, and drops those below.
    pub(super) fn add_sizes(&mut self, lowest: usize, sizes: &[Size]) -> Result<(), String> {
        if lowest + sizes.len() > LEVELS {
            return Err(format!("the sample has at most {LEVELS} levels"));
        }
        self.raise(lowest);
        for (i, size) in (lowest..).zip(sizes).skip(self.lowest - lowest) {
            let sum = &mut self.level(i).size;
            partial::add(&mut sum.cells, size.cells)?;
            partial::add(&mut sum.tokens, size.tokens)?;
        }
        Ok(())
    }

    pub(super) fn settle(&mut self) {
        self.levels.iter_mut().for_each(|level| level.pieces.settle());
    }

    fn level(&mut self, level: usize) -> &mut Level {
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Level::default);
        }
        &mut self.levels[level]
    }

    /// The levels that are left.
    pub(super) fn levels(&self) -> impl Iterator<Item = (usize, &Level)> {
        self.levels.iter().enumerate().skip(self.lowest)
    }

    /// Drops the levels below `lowest`.
    pub(super) fn raise(&mut self, lowest: usize) {
        self.lowest = self.lowest.max(lowest);
        self.levels.iter_mut().take(self.lowest).for_each(|level| *level = Level::default());
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.raise(other.lowest);
        for (i, from) in other.levels.into_iter().enumerate().skip(self.lowest) {
            let to = self.level(i);
            to.size.cells += from.size.cells;
            to.size.tokens += from.size.tokens;
            to.pieces.merge(from.pieces);
        }
    }

    pub(super) fn cells(&self) -> u64 {
        self.levels().map(|(_, level)| level.size.cells).sum()
    }

    pub(super) fn tokens(&self) -> u64 {
        self.levels().map(|(_, level)| level.size.tokens).sum()
    }

    pub(super) fn memory(&self) -> usize {
        self.levels().map(|(_, level)| level.pieces.memory()).sum()
    }
}
