//! Level-1 tokens, with marks at the seams that level 2 must not cross: training counts them, and encoding merges them.

use std::ops::Range;

use super::level1::pieces::Pieces;
use super::packed::{FIRST, ID};
use super::state::{SpanBuffers, State};
use super::{definition::Definition, encoder::Encoder};
use crate::pretokenize::scanner::Scanner;
use crate::runtime::interrupt::poll;
use crate::text::unit::Unit;

impl Encoder {
    /// Calls `take` with the packed phase-1 tokens of whole spans, many at a time. A span is a stretch of text within
    /// which phase 2 may merge; its first token has `FIRST`. `unit` adds boundaries that only training has.
    pub fn spans(
        &self,
        text: &[u8],
        unit: Unit,
        state: &mut State,
        take: &mut dyn FnMut(&[u32]),
    ) -> Result<(), String> {
        self.spans_with(text, unit, &mut state.level1, &mut state.spans, take)
    }

    pub(super) fn spans_with(
        &self,
        text: &[u8],
        unit: Unit,
        level1: &mut Pieces,
        spans: &mut SpanBuffers,
        take: &mut dyn FnMut(&[u32]),
    ) -> Result<(), String> {
        match &self.definition.second_pass_fence {
            Some(fence) => self.between_fences(text, unit, fence, level1, spans, take),
            None => self.gather(text, unit, level1, take),
        }
    }

    /// `spans_with` of a two-pass tokenizer: spans are the tokens between closed seams.
    fn between_fences(
        &self,
        text: &[u8],
        unit: Unit,
        fence: &Scanner,
        level1: &mut Pieces,
        SpanBuffers { tokens, ends, boundaries }: &mut SpanBuffers,
        take: &mut dyn FnMut(&[u32]),
    ) -> Result<(), String> {
        let Definition { tokens: table, eligible, .. } = &self.definition;
        tokens.clear();
        ends.clear();
        boundaries.clear();
        let mut end = 0;
        self.gather(text, Unit::Document, level1, &mut |packed| {
            let (n, mut start) = (tokens.len(), end);
            tokens.extend_from_slice(packed);
            let lengths = packed.iter().map(|word| {
                poll(1);
                end += table.get(word & ID).len();
                end
            });
            ends.extend(lengths);
            let Some(eligible) = eligible else { return };
            by_firsts(packed, |range| {
                if range.len() > 1 || !eligible[(packed[range.start] & ID) as usize] {
                    boundaries.push(start);
                    boundaries.extend_from_slice(&ends[n + range.start..n + range.end]);
                }
                start = ends[n + range.end - 1];
            });
        })?;
        fence.pieces_of(unit, text, |_, end| boundaries.push(end))?;
        if eligible.is_some() {
            boundaries.sort(); // two sorted runs: linear time
        }
        mark_closed_seams(tokens, ends, boundaries);
        take(tokens);
        Ok(())
    }
}

/// Sets `FIRST` in the tokens after seams that phase 2 must not cross, and clears it in the others. Seams are closed if
/// a boundary is at them, or inside the token on either side.
fn mark_closed_seams(tokens: &mut [u32], ends: &[usize], boundaries: &[usize]) {
    let mut boundary = boundaries.iter().copied().peekable();
    let mut closed = true;
    let mut start = 0;
    for (token, &end) in tokens.iter_mut().zip(ends) {
        poll(1);
        while boundary.next_if(|&b| b <= start).is_some() {}
        let inside = boundary.peek().is_some_and(|&b| b < end);
        *token = *token & !FIRST | if closed || inside { FIRST } else { 0 };
        while boundary.next_if(|&b| b < end).is_some() {}
        closed = inside || boundary.peek() == Some(&end);
        start = end;
    }
}

/// Calls `range` with each range of tokens from one `FIRST` to the next.
#[inline(always)]
pub fn by_firsts(packed: &[u32], mut range: impl FnMut(Range<usize>)) {
    let mut start = 0;
    for (at, word) in packed.iter().enumerate() {
        if word & FIRST != 0 && at > start {
            range(start..at);
            start = at;
        }
    }
    if start < packed.len() {
        range(start..packed.len());
    }
}
