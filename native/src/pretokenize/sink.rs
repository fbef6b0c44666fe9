//! Receives the pieces of a text.

/// Takes the pieces of a text, in order. A function of their starts and ends is one.
pub trait Sink {
    fn piece(&mut self, start: usize, end: usize);

    /// Takes the pieces that end in a window. Bit i of `ends` stands for an end before byte `at + i`; the first of the
    /// pieces began at `start`, and none is empty. Returns where the next piece begins.
    #[inline(always)]
    fn pieces(&mut self, start: usize, at: usize, ends: u64) -> usize {
        each_piece(start, at, ends, |start, end| self.piece(start, end))
    }
}

/// Calls `piece` with the pieces of a window (see `Sink::pieces`). Returns where the next piece begins.
#[inline(always)]
pub fn each_piece(mut start: usize, at: usize, mut ends: u64, mut piece: impl FnMut(usize, usize)) -> usize {
    while ends != 0 {
        let end = at + ends.trailing_zeros() as usize;
        piece(start, end);
        start = end;
        ends &= ends - 1;
    }
    start
}

impl<F: FnMut(usize, usize)> Sink for F {
    #[inline(always)]
    fn piece(&mut self, start: usize, end: usize) {
        self(start, end);
    }
}
