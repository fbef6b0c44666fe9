//! Pieces on their way through the cache, many at a time.

/// Pieces that wait for each other.
pub(super) const AHEAD: usize = 64;

/// What the queue says of a piece besides its end: that it begins with `words::FIRST`, and that its key has `PART`.
pub(super) const MARK_FIRST: u64 = 1 << 63;
pub(super) const MARK_PART: u64 = 1 << 62;
pub(super) const END: u64 = MARK_PART - 1;

/// In a key: the piece is a part of one of the scanner's.
pub(super) const PART: u128 = 1 << 127;

/// Pieces of a text, one behind the other.
pub(super) struct Queue {
    pub(super) n: usize,
    /// Where the first of them starts.
    pub(super) start: usize,
    /// Where each of them ends, and marks.
    pub(super) ends: [u64; AHEAD],
    /// Whether there may be marks.
    pub(super) marked: bool,
    /// Their keys, 0 for long ones, and where their entries are.
    pub(super) keys: [u128; AHEAD],
    pub(super) places: [u32; AHEAD],
    /// Which have no entry, and how many words are in front of theirs.
    pub(super) absent: Vec<(usize, usize)>,
}

impl Queue {
    pub(super) fn new() -> Self {
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
    pub(super) fn begin(&mut self, start: usize, marked: bool) {
        (self.n, self.start, self.marked) = (0, start, marked);
    }

    /// Whether the queue is full now.
    #[inline(always)]
    pub(super) fn push(&mut self, end: u64) -> bool {
        self.ends[self.n & (AHEAD - 1)] = end;
        self.n += 1;
        self.n == AHEAD
    }
}

/// A piece that has no entry.
#[derive(Clone, Copy)]
pub(super) struct Missed {
    pub(super) key: u128,
    pub(super) place: u32,
    pub(super) start: usize,
    pub(super) end: usize,
    /// `words::FIRST` or 0.
    pub(super) first: u32,
    /// Where in the output its words belong.
    pub(super) at: usize,
    /// Whether its words are to be kept.
    pub(super) new: bool,
}
