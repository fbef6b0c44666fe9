//! Merging by rank: a table of pairs, and the lowest rank first, by scanning for it or with a heap.

pub(super) const NONE: u32 = u32::MAX;

/// Pieces up to this many symbols are merged by scanning for the lowest rank, longer ones with a heap.
pub(super) const SCAN: usize = 48;

/// Which token a pair of tokens makes, and how early.
pub struct PairTable {
    slots: Vec<(u64, u32, u32)>, // pair, rank, id
    mask: usize,
}

pub(super) const EMPTY: u64 = u64::MAX;

/// Stands for the id where a pair is a seam and no merge.
pub(super) const SEAM: u32 = 0;

impl PairTable {
    pub(super) fn new(capacity: usize) -> Self {
        let size = (capacity * 2).next_power_of_two().max(16);
        Self { slots: vec![(EMPTY, NONE, NONE); size], mask: size - 1 }
    }

    #[inline(always)]
    pub(super) fn slot(&self, pair: u64) -> usize {
        let mut at = (pair.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & self.mask;
        while self.slots[at].0 != pair && self.slots[at].0 != EMPTY {
            at = (at + 1) & self.mask;
        }
        at
    }

    /// A repeated pair keeps its last rank, as in HF `tokenizers`.
    pub(super) fn insert(&mut self, left: u32, right: u32, rank: u32, id: u32) {
        let pair = (left as u64) << 32 | right as u64;
        let at = self.slot(pair);
        self.slots[at] = (pair, rank, id);
    }

    /// (rank, id), or (u32::MAX, u32::MAX).
    #[inline(always)]
    pub(super) fn get(&self, left: u32, right: u32) -> (u32, u32) {
        let (_, rank, id) = self.slots[self.slot((left as u64) << 32 | right as u64)];
        (rank, id)
    }
}

/// Merges that apply by rank to sequences of tokens, as training applied them one after the other.
pub struct RankedMerges {
    table: PairTable,
    scratch: Scratch,
}

impl RankedMerges {
    /// (left, right, new) by rank.
    pub fn new(merges: impl ExactSizeIterator<Item = (u32, u32, u32)>) -> Self {
        let mut table = PairTable::new(merges.len());
        merges.enumerate().for_each(|(rank, (left, right, new))| table.insert(left, right, rank as u32, new));
        Self { table, scratch: Scratch::default() }
    }

    pub fn apply(&mut self, ids: &mut Vec<u32>) {
        merge(ids, &self.table, &mut self.scratch);
    }
}

#[derive(Default)]
pub(super) struct Scratch {
    pub(super) run: Vec<u32>,
    pub(super) ranks: Vec<(u32, u32)>,
    pub(super) next: Vec<u32>,
    pub(super) previous: Vec<u32>,
    pub(super) heap: std::collections::BinaryHeap<std::cmp::Reverse<(u32, u32)>>,
}

/// Applies merges by rank, the leftmost first among equals.
pub(super) fn merge(ids: &mut Vec<u32>, table: &PairTable, scratch: &mut Scratch) {
    if ids.len() > SCAN {
        return merge_with_heap(ids, table, scratch);
    }
    let ranks = &mut scratch.ranks;
    ranks.clear();
    ranks.extend(ids.windows(2).map(|pair| table.get(pair[0], pair[1])));
    merge_ranked(ids, ranks, table);
    ranks.clear();
}

/// The same where `ranks[i]` is what the table says of ids i and i + 1.
pub(super) fn merge_ranked(ids: &mut Vec<u32>, ranks: &mut Vec<(u32, u32)>, table: &PairTable) {
    while merge_lowest(ids, ranks, table) {}
}

/// Applies one merge; false if there is none.
#[inline(always)]
pub(super) fn merge_lowest(ids: &mut Vec<u32>, ranks: &mut Vec<(u32, u32)>, table: &PairTable) -> bool {
    let Some((at, &(rank, new))) = ranks.iter().enumerate().min_by_key(|(_, (rank, _))| *rank) else { return false };
    if rank == NONE {
        return false;
    }
    ids[at] = new;
    ids.remove(at + 1);
    ranks.remove(at);
    if at < ranks.len() {
        ranks[at] = table.get(new, ids[at + 1]);
    }
    if at > 0 {
        ranks[at - 1] = table.get(ids[at - 1], new);
    }
    true
}

#[inline(never)]
pub(super) fn merge_with_heap(ids: &mut Vec<u32>, table: &PairTable, scratch: &mut Scratch) {
    use std::cmp::Reverse;
    let n = ids.len() as u32;
    let Scratch { next, previous, heap, .. } = scratch;
    next.clear();
    next.extend(1..=n);
    previous.clear();
    previous.extend((0..n).map(|i| i.wrapping_sub(1)));
    heap.clear();
    for i in 1..n {
        let (rank, _) = table.get(ids[i as usize - 1], ids[i as usize]);
        if rank != NONE {
            heap.push(Reverse((rank, i - 1)));
        }
    }
    while let Some(Reverse((rank, at))) = heap.pop() {
        let right = next[at as usize];
        if ids[at as usize] == NONE || right >= n {
            continue;
        }
        let (now, new) = table.get(ids[at as usize], ids[right as usize]);
        if now != rank {
            continue;
        }
        ids[at as usize] = new;
        ids[right as usize] = NONE;
        let after = next[right as usize];
        next[at as usize] = after;
        if after < n {
            previous[after as usize] = at;
            let (rank, _) = table.get(new, ids[after as usize]);
            if rank != NONE {
                heap.push(Reverse((rank, at)));
            }
        }
        let before = previous[at as usize];
        if before != NONE {
            let (rank, _) = table.get(ids[before as usize], new);
            if rank != NONE {
                heap.push(Reverse((rank, before)));
            }
        }
    }
    ids.retain(|&id| id != NONE);
}
