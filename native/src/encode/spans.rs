//! Level-1 tokens between the seams that level 2 must not cross: training counts them, and two-pass encoding merges
//! them.

use std::ops::Range;

use super::level1::pieces::Pieces;
use super::packed::{FIRST, ID};
use super::state::{SpanBuffers, State};
use super::{definition::Definition, encoder::Encoder};
use crate::pretokenize::scanner::Scanner;
use crate::runtime::interrupt::poll;
use crate::text::unit::Unit;

impl Encoder {
    /// Calls `span` with the phase-1 tokens of each stretch of text within which phase 2 may merge. `unit` adds
    /// boundaries that only training has.
    pub fn spans(&self, text: &[u8], unit: Unit, state: &mut State, span: impl FnMut(&[u32])) -> Result<(), String> {
        self.spans_with(text, unit, &mut state.level1, &mut state.spans, span)
    }

    #[inline(never)]
    pub(super) fn spans_with(
        &self,
        text: &[u8],
        unit: Unit,
        level1: &mut Pieces,
        spans: &mut SpanBuffers,
        mut span: impl FnMut(&[u32]),
    ) -> Result<(), String> {
        if let Some(fence) = &self.definition.second_pass_fence {
            return self.between_fences(text, unit, fence, level1, spans, span);
        }
        self.gather(text, unit, level1, &mut |packed| {
            spans.tokens.clear();
            spans.tokens.extend(packed.iter().map(|word| word & ID));
            by_firsts(packed, |range| span(&spans.tokens[range]));
        })
    }

    /// `spans_with` of a two-pass tokenizer: calls `span` with the tokens between closed seams.
    fn between_fences(
        &self,
        text: &[u8],
        unit: Unit,
        fence: &Scanner,
        level1: &mut Pieces,
        SpanBuffers { tokens, ends, boundaries }: &mut SpanBuffers,
        mut span: impl FnMut(&[u32]),
    ) -> Result<(), String> {
        let Definition { tokens: table, eligible, .. } = &self.definition;
        tokens.clear();
        ends.clear();
        boundaries.clear();
        let mut end = 0;
        self.gather(text, Unit::Document, level1, &mut |packed| {
            let (n, mut start) = (tokens.len(), end);
            tokens.extend(packed.iter().map(|word| word & ID));
            let lengths = tokens[n..].iter().map(|&token| {
                poll(1);
                end += table.get(token).len();
                end
            });
            ends.extend(lengths);
            let Some(eligible) = eligible else { return };
            by_firsts(packed, |range| {
                let range = n + range.start..n + range.end;
                if range.len() > 1 || !eligible[tokens[range.start] as usize] {
                    boundaries.push(start);
                    boundaries.extend_from_slice(&ends[range.clone()]);
                }
                start = ends[range.end - 1];
            });
        })?;
        let mut start = 0;
        unit.split(text, |line| {
            fence.pieces(line, |_, end| boundaries.push(start + end))?;
            start += line.len();
            Ok::<(), String>(())
        })?;
        if eligible.is_some() {
            boundaries.sort(); // two sorted runs: linear time
        }
        between_closed_seams(tokens, ends, boundaries, &mut span);
        Ok(())
    }
}

/// Calls `span` with the tokens between seams that phase 2 must not cross: those with a boundary at them, or inside the
/// token on either side.
fn between_closed_seams(tokens: &[u32], ends: &[usize], boundaries: &[usize], span: &mut impl FnMut(&[u32])) {
    let mut boundary = boundaries.iter().copied().peekable();
    let (mut start, mut inside_before) = (0, false);
    let mut at_end_before = false;
    let mut token_start = 0;
    for (i, &end) in ends.iter().enumerate() {
        poll(1);
        while boundary.next_if(|&b| b <= token_start).is_some() {}
        let inside = boundary.peek().is_some_and(|&b| b < end);
        if i > 0 && (at_end_before || inside_before || inside) {
            span(&tokens[start..i]);
            start = i;
        }
        while boundary.next_if(|&b| b < end).is_some() {}
        at_end_before = boundary.peek() == Some(&end);
        inside_before = inside;
        token_start = end;
    }
    if start < tokens.len() {
        span(&tokens[start..]);
    }
}

/// Calls `range` with each range of tokens from one `FIRST` to the next.
fn by_firsts(packed: &[u32], mut range: impl FnMut(Range<usize>)) {
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
