//! Phase-1 tokens between the seams that phase 2 must not cross: training counts them, and two-pass encoding merges
//! them.

use super::encoder::Encoder;
use super::packed::{FIRST, ID};
use super::{definition::Definition, state::State};
use crate::runtime::{interrupt::poll, memory};
use crate::text::unit::Unit;

impl Encoder {
    /// Calls `span` with the phase-1 tokens of each stretch of text within which phase 2 may merge. `unit` adds
    /// boundaries that only training has.
    pub fn spans(&self, text: &[u8], unit: Unit, state: &mut State, span: impl FnMut(&[u32])) -> Result<(), String> {
        let (mut tokens, mut packed) = (std::mem::take(&mut state.tokens), std::mem::take(&mut state.gathered));
        let result = match &self.definition.second_pass_fence {
            None => self.pieces_of_unit(text, unit, state, (&mut packed, &mut tokens), span),
            Some(_) => self.between_fences(text, unit, state, (&mut packed, &mut tokens), span),
        };
        (state.tokens, state.gathered) = (tokens, packed);
        result
    }

    /// Calls `span` with the tokens of each piece of the scanner.
    fn pieces_of_unit(
        &self,
        text: &[u8],
        unit: Unit,
        state: &mut State,
        (packed, tokens): (&mut Vec<u32>, &mut Vec<u32>),
        mut span: impl FnMut(&[u32]),
    ) -> Result<(), String> {
        unit.split(text, |text| {
            self.gather(text, &mut state.level1, packed, &mut |packed| {
                tokens.clear();
                memory::extend(tokens, packed.iter().map(|word| word & ID));
                by_firsts(packed, |range| span(&tokens[range]));
            })
        })
    }

    /// Calls `span` with the tokens between closed seams, for a two-pass tokenizer.
    fn between_fences(
        &self,
        text: &[u8],
        unit: Unit,
        state: &mut State,
        (packed, tokens): (&mut Vec<u32>, &mut Vec<u32>),
        mut span: impl FnMut(&[u32]),
    ) -> Result<(), String> {
        let Definition { second_pass_fence, tokens: table, eligible, .. } = &self.definition;
        let (mut ends, mut boundaries) = (std::mem::take(&mut state.ends), std::mem::take(&mut state.boundaries));
        tokens.clear();
        ends.clear();
        boundaries.clear();
        let mut end = 0;
        self.gather(text, &mut state.level1, packed, &mut |packed| {
            let (n, mut start) = (tokens.len(), end);
            memory::extend(tokens, packed.iter().map(|word| word & ID));
            let lengths = tokens[n..].iter().map(|&token| {
                poll(1);
                end += table.get(token).len();
                end
            });
            memory::extend(&mut ends, lengths);
            let Some(eligible) = eligible else { return };
            by_firsts(packed, |range| {
                let range = n + range.start..n + range.end;
                if range.len() > 1 || !eligible[tokens[range.start] as usize] {
                    memory::reserve(&mut boundaries, 1 + range.len());
                    boundaries.push(start);
                    boundaries.extend_from_slice(&ends[range.clone()]);
                }
                start = ends[range.end - 1];
            });
        })?;
        let mut start = 0;
        let result = second_pass_fence.as_ref().map_or(Ok(()), |fence| {
            unit.split(text, |line| {
                fence.pieces(line, |_, end| memory::push(&mut boundaries, start + end))?;
                start += line.len();
                Ok(())
            })
        });
        if eligible.is_some() {
            boundaries.sort(); // two sorted runs: linear time
        }
        if result.is_ok() {
            between_closed_seams(tokens, &ends, &boundaries, &mut span);
        }
        (state.ends, state.boundaries) = (ends, boundaries);
        result
    }
}

/// Calls `range` with each range of tokens from one `FIRST` to the next.
fn by_firsts(packed: &[u32], mut range: impl FnMut(std::ops::Range<usize>)) {
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

/// Calls `span` with the tokens between seams that phase 2 must not cross: those with a boundary at them, or inside the
/// token on either side.
pub(crate) fn between_closed_seams(
    tokens: &[u32],
    ends: &[usize],
    boundaries: &[usize],
    span: &mut impl FnMut(&[u32]),
) {
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
