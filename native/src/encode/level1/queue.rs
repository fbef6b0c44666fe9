//! Pieces that are looked up in the cache together.

/// Pieces per batch.
pub(in crate::encode) const AHEAD: usize = 64;

/// Marks in a queued end: the first token gets `packed::FIRST`; the key gets `PART`.
pub(in crate::encode) const MARK_FIRST: u64 = 1 << 63;
pub(in crate::encode) const MARK_PART: u64 = 1 << 62;
pub(in crate::encode) const END: u64 = MARK_PART - 1;

/// In a key: the piece is a part of one of the scanner's pieces.
pub(in crate::encode) const PART: u128 = 1 << 127;

/// Consecutive pieces of a text.
pub(in crate::encode) struct Queue {
    pub(in crate::encode) n: usize,
    /// Start of the first piece.
    pub(in crate::encode) start: usize,
    /// Ends of the pieces, with marks.
    pub(in crate::encode) ends: [u64; AHEAD],
    /// Whether ends may have marks.
    pub(in crate::encode) marked: bool,
    /// Keys of the pieces (0 for long ones), and their cache sets.
    pub(in crate::encode) keys: [u128; AHEAD],
    pub(in crate::encode) places: [u32; AHEAD],
    /// Pieces that are not cached, with the number of tokens before theirs.
    pub(in crate::encode) absent: Vec<(usize, usize)>,
}

impl Queue {
    pub(in crate::encode) fn new() -> Self {
        Self {
            n: 0,
            start: 0,
            ends: [0; AHEAD],
            marked: true,
            keys: [0; AHEAD],
            places: [0; AHEAD],
            absent: Vec::new(),
        }
    }

    #[inline(always)]
    pub(in crate::encode) fn begin(&mut self, start: usize, marked: bool) {
        (self.n, self.start, self.marked) = (0, start, marked);
    }

    /// Adds a piece. Returns whether the queue is full.
    #[inline(always)]
    pub(in crate::encode) fn push(&mut self, end: u64) -> bool {
        self.ends[self.n & (AHEAD - 1)] = end;
        self.n += 1;
        self.n == AHEAD
    }
}

/// A piece that is not cached.
#[derive(Clone, Copy)]
pub(in crate::encode) struct Miss {
    pub(in crate::encode) key: u128,
    pub(in crate::encode) place: u32,
    pub(in crate::encode) start: usize,
    pub(in crate::encode) end: usize,
    /// `packed::FIRST` or 0.
    pub(in crate::encode) first: u32,
    /// Position of its tokens in the output.
    pub(in crate::encode) at: usize,
    /// Whether to cache its tokens.
    pub(in crate::encode) new: bool,
}
