//! Approximate counts of seams: never too low.

use std::sync::atomic::{AtomicU32, Ordering};

use super::partial::Rows;
use crate::encode::packed::{FIRST, ID};
use crate::runtime::memory::{huge_filled, prefetch};

/// Number of counters. The noise is (rare seams / counters) and τ a few millionths of all seams, so the noise is about
/// 5 % of τ for any corpus size.
const COUNTERS: usize = 1 << 22;
/// Seams are prefetched this many seams ahead.
const AHEAD: usize = 64;
/// Number of seams that are looked at together.
pub(super) const BLOCK: usize = 1 << 12;
/// Counters saturate here, so no threshold may be higher.
const SATURATED: u32 = u32::MAX / 2;
/// Maximum weight of a document: even if all threads add it at once, the counter passes SATURATED without overflow.
pub const MAX_WEIGHT: u32 = 1_000_000;

/// Counts of pairs of tokens by a hash; all threads add to it at once.
pub(super) struct Sketch(Vec<AtomicU32>);

impl Sketch {
    pub(super) fn new() -> Self {
        Self(huge_filled(COUNTERS, 0).into_iter().map(AtomicU32::new).collect())
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(|counter| *counter.get_mut() = 0);
    }

    /// Adds the seams of whole pieces, whose first tokens have `FIRST`. `slots` is scratch space.
    pub(super) fn add_all(&self, pieces: &[u32], weight: u32, slots: &mut Vec<usize>) {
        slots.resize(BLOCK, 0);
        for block in (1..pieces.len()).step_by(BLOCK) {
            let mut n = 0;
            for seam in pieces[block - 1..pieces.len().min(block + BLOCK)].windows(2) {
                slots[n] = slot(seam);
                n += usize::from(seam[1] & FIRST == 0); // often mispredicted as a branch
            }
            for i in 0..n {
                if let Some(&ahead) = slots.get(i + AHEAD) {
                    prefetch(&self.0, ahead);
                }
                self.add(slots[i], weight);
            }
        }
    }

    #[inline(always)]
    fn add(&self, slot: usize, weight: u32) {
        let counter = &self.0[slot];
        if counter.load(Ordering::Relaxed) < SATURATED {
            counter.fetch_add(weight, Ordering::Relaxed);
        }
    }

    /// The counters that are not zero, by index. Saturated counters are equal, whatever was added to them.
    pub(super) fn rows(&self) -> Rows {
        let mut rows = Rows::default();
        for (i, counter) in self.0.iter().enumerate() {
            let count = counter.load(Ordering::Relaxed).min(SATURATED);
            if count > 0 {
                rows.push(&[i as u32], &[], count.into());
            }
        }
        rows
    }

    /// Adds to a counter; returns false if there is no such counter. The result saturates like `add`.
    pub(super) fn add_count(&mut self, index: u32, count: u64) -> bool {
        let Some(counter) = self.0.get_mut(index as usize) else { return false };
        let counter = counter.get_mut();
        *counter = count.saturating_add((*counter).into()).min(SATURATED.into()) as u32;
        true
    }

    /// One bit per counter: whether it reaches the threshold.
    pub(super) fn live(&self, threshold: u32) -> Vec<u8> {
        let bit = |i: usize, counter: &AtomicU32| u8::from(counter.load(Ordering::Relaxed) >= threshold) << i;
        self.0.chunks(8).map(|eight| eight.iter().enumerate().map(|(i, counter)| bit(i, counter)).sum()).collect()
    }

    /// Sets counters to 1 or 0 by the bits of `live`, for passes with the threshold 1.
    pub(super) fn set_live(&mut self, bits: &[u8]) -> Result<(), String> {
        if bits.len() != COUNTERS / 8 {
            return Err(format!("{} bytes of live seams, not {}", bits.len(), COUNTERS / 8));
        }
        for (i, counter) in self.0.iter_mut().enumerate() {
            *counter.get_mut() = (bits[i / 8] >> (i % 8) & 1).into();
        }
        Ok(())
    }
}

/// Whether a seam is live, by the bits of `Sketch::live`.
#[inline(always)]
pub(super) fn is_live(bits: &[u8], seam: &[u32]) -> bool {
    let slot = slot(seam);
    bits[slot / 8] >> (slot % 8) & 1 != 0
}

#[inline(always)]
fn slot(seam: &[u32]) -> usize {
    let pair = u64::from(seam[0] & ID) << 32 | u64::from(seam[1] & ID);
    let mixed = (pair ^ (pair >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 40) as usize & (COUNTERS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_saturate_like_the_whole() {
        let seams: [&[u32]; 4] = [&[1, 2], &[3, 4], &[5, 6], &[7, 8]];
        let times = [1, 1000, 2147, 2148]; // the last one saturates
        let counted = |n: u32| {
            let sketch = Sketch::new();
            for (seam, times) in seams.iter().zip(times) {
                (0..n * times).for_each(|_| sketch.add(slot(seam), MAX_WEIGHT));
            }
            sketch
        };
        let (one, four) = (counted(1), counted(4));
        let mut sum = Sketch::new();
        for _ in 0..4 {
            one.rows().iter().for_each(|(key, count)| assert!(sum.add_count(key[0], count)));
        }
        for threshold in [1, MAX_WEIGHT, 4 * MAX_WEIGHT, 4 * MAX_WEIGHT + 1, SATURATED - 1, SATURATED] {
            let live = sum.live(threshold);
            assert_eq!(live, four.live(threshold));
            let mut again = Sketch::new();
            again.set_live(&live).unwrap();
            for seam in seams {
                assert_eq!(is_live(&again.live(1), seam), is_live(&live, seam));
            }
        }
        assert_eq!(sum.rows(), four.rows());
        assert!(!sum.add_count(COUNTERS as u32, 1));
        assert!(sum.set_live(&[0]).is_err());
    }
}
