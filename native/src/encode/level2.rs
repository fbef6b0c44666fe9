//! Level 2: phase-2 merges on runs of phase-1 tokens, split at seams that no merge can cross.

use std::ops::Range;

use super::merge::{merge_by_scanning, merge_sequence, Scratch, SCAN};
use super::packed::{FIRST, ID, LEFT_OF_SEAM, LEFT_PART, RIGHT_OF_SEAM, RIGHT_PART};
use super::pairs::{is_merge, pair_merge, product, FixedPairs, PairMerge, Pairs, NO_MERGE, SEAM};
use super::rules::Rule;
use crate::runtime::interrupt::poll;
use crate::text::masks::high_bits;

/// Tokens whose seams are looked up together: one bit each.
const BLOCK: usize = 64;

/// Tokens copied together, to avoid a branch on their number.
const COPIED: usize = 8;

/// Level 2 of a thread: scratch space.
pub struct Level2State {
    /// Packed tokens to merge.
    packed: Vec<u32>,
    block: Block,
    ids: Vec<u32>,
    scratch: Scratch,
}

impl Default for Level2State {
    fn default() -> Self {
        let block = Block { packed: [0; BLOCK + COPIED], found: [NO_MERGE; BLOCK], ids: [0; BLOCK + COPIED], n: 0 };
        Self { packed: Vec::new(), block, ids: Vec::new(), scratch: Scratch::default() }
    }
}

/// Consecutive tokens. Their seams are numbered by the tokens to their left.
struct Block {
    /// The packed tokens, the one after them, and padding for `COPIED`.
    packed: [u32; BLOCK + COPIED],
    /// For each open seam, its entry in the table of pairs; for others, any.
    found: [PairMerge; BLOCK],
    /// Ids of the first tokens after merging: `n` of them.
    ids: [u32; BLOCK + COPIED],
    n: usize,
}

/// Phase-2 merges, and the seams that they can cross, in one table.
pub(super) struct Level2 {
    pairs: FixedPairs,
    /// Whether the seams are in the table. Otherwise (two-pass, a token with several derivations) every one counts as open.
    seams: bool,
}

impl Level2 {
    /// The level, and the packed tokens by id. `leaves`: leftmost and rightmost phase-1 token of each token.
    pub(super) fn new(n_tokens: usize, rules: &[Rule], leaves: Option<(Vec<u32>, Vec<u32>)>) -> (Self, Vec<u32>) {
        let mut packed: Vec<u32> = (0..n_tokens as u32).collect();
        let (mut pairs, seams) = (Pairs::default(), leaves.is_some());
        if let Some((leftmost, rightmost)) = leaves {
            for Rule { merge, .. } in rules {
                let (left, right) = (rightmost[merge.left as usize], leftmost[merge.right as usize]);
                packed[left as usize] |= LEFT_OF_SEAM;
                packed[right as usize] |= RIGHT_OF_SEAM;
                pairs.insert((left, right), SEAM);
            }
        } else {
            packed.iter_mut().for_each(|token| *token |= LEFT_OF_SEAM | RIGHT_OF_SEAM);
        }
        for Rule { merge, .. } in rules {
            packed[merge.left as usize] |= LEFT_PART;
            packed[merge.right as usize] |= RIGHT_PART;
        }
        for Rule { rank, merge } in rules {
            pairs.insert((merge.left, merge.right), pair_merge(*rank, packed[merge.new as usize]));
        }
        (Self { pairs: FixedPairs::new(&pairs), seams }, packed)
    }

    /// The merge of two adjacent tokens of a run.
    #[inline(always)]
    fn pair(&self, left: u32, right: u32) -> PairMerge {
        if left & LEFT_PART == 0 || right & RIGHT_PART == 0 {
            return NO_MERGE;
        }
        self.pairs.get(left & ID, right & ID)
    }

    /// `append_merged` for an iterator of packed tokens.
    pub(super) fn append_merged_of(
        &self,
        packed: impl ExactSizeIterator<Item = u32>,
        state: &mut Level2State,
        out: &mut Vec<u32>,
    ) {
        let mut buffer = std::mem::take(&mut state.packed);
        buffer.clear();
        buffer.extend(packed);
        self.append_merged(&buffer, state, out);
        state.packed = buffer;
    }

    /// Appends the ids of the merged tokens to `out`. Tokens with `FIRST` have a closed seam before them.
    ///
    /// A run is a longest sequence of tokens whose seams can be crossed. Each is merged on its own.
    #[inline(always)]
    pub(super) fn append_merged(&self, mut packed: &[u32], state: &mut Level2State, out: &mut Vec<u32>) {
        out.reserve(packed.len());
        while !packed.is_empty() {
            poll(BLOCK);
            packed = &packed[self.append_block(packed, state, out)..];
        }
    }

    /// Appends the ids of merging the first tokens. Returns their number: the seam after them is closed.
    #[inline(always)]
    fn append_block(&self, packed: &[u32], state: &mut Level2State, out: &mut Vec<u32>) -> usize {
        // 1. The seams of the next 64 tokens that can be crossed, and the merges of the tokens on either side.
        let block = &mut state.block;
        let candidates = block.load(packed);
        let open = if self.seams { self.open_seams(block, candidates) } else { self.all_seams(block, candidates) };

        // 2. If all can be crossed, the run is longer than the block.
        let end = packed.len().min(BLOCK - open.leading_ones() as usize);
        if end == 0 {
            let end = self.end_of_run(packed);
            self.append_run(&packed[..end], state, out);
            return end;
        }

        // 3. The runs of two tokens or more. Tokens between them stay as they are.
        let mut start = 0;
        let mut begins = open & !(open << 1) & (u64::MAX >> (BLOCK - end));
        while begins != 0 {
            let at = begins.trailing_zeros() as usize;
            begins &= begins - 1;
            block.copy(start..at);
            start = at + 1 + (open >> at).trailing_ones() as usize;
            let found = block.found[at];
            if start == at + 2 && is_merge(found) {
                block.ids[block.n] = product(found) & ID;
                block.n += 1;
            } else if start - at <= SCAN {
                self.merge_few_in_block(block, at..start);
            } else {
                out.extend_from_slice(&block.ids[..block.n]);
                self.append_run(&packed[at..start], state, out);
                return start;
            }
        }
        block.copy(start..end);
        out.extend_from_slice(&block.ids[..block.n]);
        end
    }

    /// The seams of a block that level 2 can cross.
    ///
    /// Which candidates are open is unpredictable. Without a branch on that, several table reads are in flight
    /// at once.
    #[inline(always)]
    fn open_seams(&self, block: &mut Block, candidates: u64) -> u64 {
        let (mut left, mut open) = (candidates, 0);
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let (is_open, found) = self.pairs.find(block.packed[at] & ID, block.packed[at + 1] & ID);
            block.found[at] = found;
            open |= u64::from(is_open) << at;
        }
        open
    }

    /// `open_seams` if the table has no seams: all candidates count as open.
    #[inline(never)]
    fn all_seams(&self, block: &mut Block, candidates: u64) -> u64 {
        for at in (0..BLOCK).filter(|at| candidates >> at & 1 != 0) {
            block.found[at] = self.pairs.get(block.packed[at] & ID, block.packed[at + 1] & ID);
        }
        candidates
    }

    /// End of the run that begins with the first token.
    #[inline(never)]
    fn end_of_run(&self, packed: &[u32]) -> usize {
        let open = |&at: &usize| {
            poll(1);
            let is_in_table = || self.pairs.find(packed[at - 1] & ID, packed[at] & ID).0;
            packed[at] & FIRST == 0 && (!self.seams || is_in_table())
        };
        1 + (1..packed.len()).take_while(open).count()
    }

    /// Merges a run of up to `SCAN` tokens of a block.
    #[inline(never)]
    fn merge_few_in_block(&self, block: &mut Block, tokens: Range<usize>) {
        let found = &mut block.found[tokens.start..tokens.end - 1];
        let n = merge_by_scanning(&mut block.packed[tokens.clone()], found, |left, right| self.pair(left, right));
        block.copy(tokens.start..tokens.start + n);
    }

    /// Appends the ids of merging all the tokens.
    #[inline(never)]
    fn append_run(&self, packed: &[u32], Level2State { ids, scratch, .. }: &mut Level2State, out: &mut Vec<u32>) {
        ids.clear();
        ids.extend_from_slice(packed);
        merge_sequence(ids, |left, right| self.pair(left, right), scratch);
        out.extend(ids.iter().map(|&word| word & ID));
    }
}

impl Block {
    /// Loads the first tokens. Returns the seams that may be crossed as far as the flags of their tokens tell.
    #[inline(always)]
    fn load(&mut self, packed: &[u32]) -> u64 {
        self.n = 0;
        match packed.first_chunk() {
            Some(packed) => {
                self.packed[..=BLOCK].copy_from_slice(packed);
                candidates(packed)
            }
            None => {
                self.packed[..packed.len()].copy_from_slice(packed);
                self.packed[packed.len()..].fill(0); // without flags
                candidates(self.packed.first_chunk().expect("space"))
            }
        }
    }

    /// Appends the ids of tokens that are merged.
    #[inline(always)]
    fn copy(&mut self, tokens: Range<usize>) {
        let end = self.n + tokens.len();
        let mut start = tokens.start;
        while self.n < end {
            let ids: [u32; COPIED] = *self.packed[start..].first_chunk().expect("padding");
            *self.ids[self.n..].first_chunk_mut().expect("space") = ids.map(|word| word & ID);
            start += COPIED;
            self.n += COPIED;
        }
        self.n = end;
    }
}

/// The seams that may be crossed as far as the flags of their tokens tell.
#[inline(always)]
fn candidates(packed: &[u32; BLOCK + 1]) -> u64 {
    high_bits(&std::array::from_fn(|at| {
        let (left, right) = (packed[at], packed[at + 1]);
        let flags = (left / LEFT_OF_SEAM) & (right / RIGHT_OF_SEAM) & !(right / FIRST);
        (flags << 7) as u8
    }))
}
