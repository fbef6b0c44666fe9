//! Approximate counts of seams: never too low.

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of counters. The noise is (rare seams / counters) and τ a few millionths of all seams, so the noise is about
/// 5 % of τ for any corpus size.
const COUNTERS: usize = 1 << 22;
const SATURATED: u32 = u32::MAX / 2;
/// Maximum weight of a document: even if all threads add it at once, the counter passes SATURATED without overflow.
pub const MAX_WEIGHT: u32 = 1_000_000;

/// Counts of pairs of tokens by a hash; all threads add to it at once.
pub(super) struct Sketch(Vec<AtomicU32>);

impl Sketch {
    pub(super) fn new() -> Self {
        Self((0..COUNTERS).map(|_| AtomicU32::new(0)).collect())
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(|counter| *counter.get_mut() = 0);
    }

    #[inline(always)]
    pub(super) fn add(&self, seam: &[u32], weight: u32) {
        let counter = &self.0[slot(seam)];
        if counter.load(Ordering::Relaxed) < SATURATED {
            counter.fetch_add(weight, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, seam: &[u32]) -> u32 {
        self.0[slot(seam)].load(Ordering::Relaxed)
    }
}

#[inline(always)]
fn slot(seam: &[u32]) -> usize {
    let pair = (seam[0] as u64) << 32 | seam[1] as u64;
    let mixed = (pair ^ (pair >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 40) as usize & (COUNTERS - 1)
}
