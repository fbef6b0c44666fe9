//! BPE dropout (Provilkov, Emelianenko and Voita 2020, algorithm 1): encodings that vary at random.
//!
//! In every step, each possible merge is dropped with probability `p` at each of its positions. Of the remaining ones,
//! the merge of the lowest rank is applied, the leftmost if there are several. Merging ends with the first step that
//! drops all merges. Coins are drawn in order of rank and position up to the first merge that is kept; later ones would
//! not matter.
//!
//! The steps of the paper are those of one word. Here, each *stretch* has its own steps: the longest run of symbols
//! that neither the pattern nor, for superwords, a seam that no merge can join divides. In plain BPE that is the
//! pretoken, as in the paper. Superword tokenizers have two kinds: bytes between which phase-1 merges can join, then
//! phase-1 tokens between which phase-2 merges can join. (If a tokenizer does not record where its phase 2 begins, like
//! imported superwords, the rank at which the encoder splits its levels counts.) Steps over a whole fenced piece,
//! hundreds of bytes long, would hardly drop anything: a merge that one step drops is possible again in the next step,
//! which is likely to apply a merge elsewhere. With p = 0.1, such steps gave 0.2 % more tokens of English than no
//! dropout; stretches give 20 %, and words of plain BPE 15 %.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{definition::Definition, spans::between_closed_seams};
use crate::runtime::{interrupt::poll, memory};
use crate::vocabulary::MergeRule;

const NONE: u32 = u32::MAX;

/// Random coins: SplitMix64 (Steele, Lea and Flood 2014), one sequence per seed and document.
pub struct Coins {
    state: u64,
    below: u64,
}

impl Coins {
    /// `p`: probability of a drop, from 0 to 1.
    pub fn new(p: f64, seed: u64, document: u64) -> Self {
        let mut coins = Self { state: document, below: (p * (1u64 << 53) as f64) as u64 };
        coins.state = coins.next() ^ seed;
        coins.state = coins.next();
        coins
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn drops(&mut self) -> bool {
        self.next() >> 11 < self.below
    }
}

/// Pairs of ids, with the rank and the product of their merge.
type Table = FxHashMap<(u32, u32), (u32, u32)>;

/// The merges of a tokenizer, for encoding with dropout.
pub struct Dropout {
    phase1: Table,
    phase2: Table,
    /// Last and first bytes of the parts of phase-1 merges. They split the bytes of a one-pass tokenizer with
    /// superwords.
    joined_bytes: Option<FxHashSet<(u8, u8)>>,
    /// Phase-1 tokens to the left and right of the seams that phase-2 merges join.
    joined_tokens: Option<FxHashSet<(u32, u32)>>,
}

/// Scratch space.
#[derive(Default)]
pub struct Scratch {
    next: Vec<u32>,
    previous: Vec<u32>,
    heap: std::collections::BinaryHeap<std::cmp::Reverse<(u32, u32)>>,
    dropped: Vec<(u32, u32)>,
    run: Vec<u32>,
}

impl Dropout {
    pub fn new(definition: &Definition) -> Self {
        let Definition { merges, tokens, second_pass_fence, .. } = definition;
        let one_pass = second_pass_fence.is_none();
        let leaves = (definition.phase1 < merges.len()).then(|| leaves(definition)).flatten();
        // If the two levels do not equal plain merging, a one-pass tokenizer has a single level.
        let at = if one_pass && leaves.is_none() { merges.len() } else { definition.phase1 };
        let table = |ranks: std::ops::Range<usize>| -> Table {
            ranks.map(|rank| ((merges[rank].left, merges[rank].right), (rank as u32, merges[rank].new))).collect()
        };
        let joined_bytes = (one_pass && at < merges.len()).then(|| {
            let ends = |merge: &MergeRule| Some((*tokens.get(merge.left).last()?, *tokens.get(merge.right).first()?));
            merges[..at].iter().filter_map(ends).collect()
        });
        let joined_tokens = leaves.map(|(leftmost, rightmost)| {
            merges[at..].iter().map(|m| (rightmost[m.left as usize], leftmost[m.right as usize])).collect()
        });
        Self { phase1: table(0..at), phase2: table(at..merges.len()), joined_bytes, joined_tokens }
    }

    /// Ids of a text, appended to `out`.
    pub fn encode(
        &self,
        definition: &Definition,
        text: &[u8],
        coins: &mut Coins,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        let Some(fence) = &definition.second_pass_fence else {
            let mut tokens = Vec::new();
            return definition.scanner.pieces(text, |start, end| {
                tokens.clear();
                self.bytes(definition, &text[start..end], coins, scratch, &mut tokens);
                self.superwords(&tokens, coins, scratch, out);
            });
        };
        let (mut tokens, mut ends, mut boundaries) = (Vec::new(), Vec::new(), Vec::new());
        definition.scanner.pieces(text, |start, end| {
            let first = tokens.len();
            self.bytes(definition, &text[start..end], coins, scratch, &mut tokens);
            let mut at = start;
            let end = |&token: &u32| {
                at += definition.tokens.get(token).len();
                at
            };
            memory::extend(&mut ends, tokens[first..].iter().map(end));
            let whole = tokens.len() == first + 1;
            if definition.eligible.as_ref().is_some_and(|eligible| !(whole && eligible[tokens[first] as usize])) {
                memory::push(&mut boundaries, start);
                memory::extend(&mut boundaries, ends[first..].iter().copied());
            }
        })?;
        fence.pieces(text, |_, end| memory::push(&mut boundaries, end))?;
        boundaries.sort();
        between_closed_seams(&tokens, &ends, &boundaries, &mut |span| self.superwords(span, coins, scratch, out));
        Ok(())
    }

    /// Appends the phase-1 tokens of a piece.
    fn bytes(
        &self,
        definition: &Definition,
        piece: &[u8],
        coins: &mut Coins,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let joins = |pair: &[u8]| self.joined_bytes.as_ref().is_none_or(|joined| joined.contains(&(pair[0], pair[1])));
        let mut run = std::mem::take(&mut scratch.run);
        for stretch in piece.chunk_by(|&left, &right| joins(&[left, right])) {
            run.clear();
            poll(stretch.len());
            memory::extend(&mut run, stretch.iter().map(|&byte| definition.byte_ids[byte as usize]));
            merge(&mut run, &self.phase1, coins, scratch);
            memory::reserve(out, run.len());
            out.extend_from_slice(&run);
        }
        scratch.run = run;
    }

    /// Appends the result of phase 2 on phase-1 tokens.
    fn superwords(&self, tokens: &[u32], coins: &mut Coins, scratch: &mut Scratch, out: &mut Vec<u32>) {
        if self.phase2.is_empty() {
            memory::reserve(out, tokens.len());
            return out.extend_from_slice(tokens);
        }
        let joins = |left: &u32, right: &u32| {
            self.joined_tokens.as_ref().is_none_or(|joined| joined.contains(&(*left, *right)))
        };
        let mut run = std::mem::take(&mut scratch.run);
        for stretch in tokens.chunk_by(joins) {
            run.clear();
            poll(stretch.len());
            memory::extend(&mut run, stretch.iter().copied());
            merge(&mut run, &self.phase2, coins, scratch);
            memory::reserve(out, run.len());
            out.extend_from_slice(&run);
        }
        scratch.run = run;
    }
}

/// The leftmost and the rightmost phase-1 token of every token. None unless each token is made by one merge, after its
/// parts, and no phase-2 merge makes a part of a phase-1 merge.
fn leaves(definition: &Definition) -> Option<(Vec<u32>, Vec<u32>)> {
    let n = definition.tokens.len();
    let mut leftmost: Vec<u32> = vec![NONE; n];
    for id in definition.byte_ids {
        leftmost[id as usize] = id;
    }
    let mut rightmost = leftmost.clone();
    for (rank, merge) in definition.merges.iter().enumerate() {
        let [left, right, new] = [merge.left, merge.right, merge.new].map(|id| id as usize);
        if leftmost[left] == NONE || leftmost[right] == NONE || leftmost[new] != NONE {
            return None;
        }
        let first = rank < definition.phase1;
        leftmost[new] = if first { new as u32 } else { leftmost[left] };
        rightmost[new] = if first { new as u32 } else { rightmost[right] };
    }
    Some((leftmost, rightmost))
}

/// Runs the steps of one stretch.
fn merge(ids: &mut Vec<u32>, table: &Table, coins: &mut Coins, scratch: &mut Scratch) {
    use std::cmp::Reverse;
    let n = ids.len() as u32;
    let Scratch { next, previous, heap, dropped, .. } = scratch;
    let rank = |left: u32, right: u32| table.get(&(left, right)).map(|&(rank, _)| rank);
    heap.clear();
    heap.extend((1..n).filter_map(|i| Some(Reverse((rank(ids[i as usize - 1], ids[i as usize])?, i - 1)))));
    if heap.is_empty() {
        return;
    }
    next.clear();
    memory::reserve(next, n as usize);
    next.extend(1..=n);
    previous.clear();
    memory::reserve(previous, n as usize);
    previous.extend((0..n).map(|i| i.wrapping_sub(1)));
    while let Some(Reverse((rank_then, at))) = heap.pop() {
        poll(1);
        // The pair at a position only gets longer, so no merge is in the heap twice.
        let right = next[at as usize];
        if ids[at as usize] == NONE || right >= n || rank(ids[at as usize], ids[right as usize]) != Some(rank_then) {
            continue;
        }
        if coins.drops() {
            dropped.push((rank_then, at));
            continue;
        }
        heap.extend(dropped.drain(..).map(Reverse)); // the next step
        let (_, new) = table[&(ids[at as usize], ids[right as usize])];
        ids[at as usize] = new;
        ids[right as usize] = NONE;
        let after = next[right as usize];
        next[at as usize] = after;
        if after < n {
            previous[after as usize] = at;
            heap.extend(rank(new, ids[after as usize]).map(|rank| Reverse((rank, at))));
        }
        let before = previous[at as usize];
        if before != NONE {
            heap.extend(rank(ids[before as usize], new).map(|rank| Reverse((rank, before))));
        }
    }
    dropped.clear();
    ids.retain(|&id| id != NONE);
}
