//! Pieces on their way through the cache, many at a time.

/// Pieces that wait for each other.
pub(in crate::encode) const AHEAD: usize = 64;

/// What the queue says of a piece besides its end: that it begins with `packed::FIRST`, and that its key has `PART`.
pub(in crate::encode) const MARK_FIRST: u64 = 1 << 63;
pub(in crate::encode) const MARK_PART: u64 = 1 << 62;
pub(in crate::encode) const END: u64 = MARK_PART - 1;

/// In a key: the piece is a part of one of the scanner's.
pub(in crate::encode) const PART: u128 = 1 << 127;

/// Pieces of a text, one behind the other.
pub(in crate::encode) struct Queue {
    pub(in crate::encode) n: usize,
    /// Where the first of them starts.
    pub(in crate::encode) start: usize,
    /// Where each of them ends, and marks.
    pub(in crate::encode) ends: [u64; AHEAD],
    /// Whether there may be marks.
    pub(in crate::encode) marked: bool,
    /// Their keys, 0 for long ones, and where their entries are.
    pub(in crate::encode) keys: [u128; AHEAD],
    pub(in crate::encode) places: [u32; AHEAD],
    /// Which have no entry, and how many packed are in front of theirs.
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

    /// Whether the queue is full now.
    #[inline(always)]
    pub(in crate::encode) fn push(&mut self, end: u64) -> bool {
        self.ends[self.n & (AHEAD - 1)] = end;
        self.n += 1;
        self.n == AHEAD
    }
}

/// A piece that has no entry.
#[derive(Clone, Copy)]
pub(in crate::encode) struct Miss {
    pub(in crate::encode) key: u128,
    pub(in crate::encode) place: u32,
    pub(in crate::encode) start: usize,
    pub(in crate::encode) end: usize,
    /// `packed::FIRST` or 0.
    pub(in crate::encode) first: u32,
    /// Where in the output its packed belong.
    pub(in crate::encode) at: usize,
    /// Whether its packed are to be kept.
    pub(in crate::encode) new: bool,
}
