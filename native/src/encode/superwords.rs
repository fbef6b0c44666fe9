//! Merges found in training, applied to phase-1 tokens.

use super::level2::{Level2, Level2State};
use super::packed::ID;
use super::rules::Rule;
use crate::vocabulary::MergeRule;

/// Merges found in training.
pub struct Superwords {
    level2: Level2,
    packed: Vec<u32>,
}

impl Superwords {
    /// `merges`: (left, right) by rank. The first produces the token `n_phase1`, and each joins existing tokens.
    pub fn new(n_phase1: usize, merges: impl Iterator<Item = (u32, u32)>) -> Self {
        let rules: Vec<Rule> = merges
            .enumerate()
            .map(|(i, (left, right))| {
                let merge = MergeRule { left, right, new: (n_phase1 + i) as u32 };
                Rule { rank: i as u32, merge }
            })
            .collect();
        let mut leftmost: Vec<u32> = (0..n_phase1 as u32).collect();
        let mut rightmost = leftmost.clone();
        for Rule { merge, .. } in &rules {
            leftmost.push(leftmost[merge.left as usize]);
            rightmost.push(rightmost[merge.right as usize]);
        }
        let (level2, packed) = Level2::new(leftmost.len(), &rules, Some((leftmost, rightmost)));
        Self { level2, packed }
    }

    /// Appends the result of the merges on packed phase-1 tokens to `out`.
    pub fn apply(&self, ids: &[u32], state: &mut Level2State, out: &mut Vec<u32>) {
        self.level2.append_merged_of(ids.iter().map(|&id| self.packed[(id & ID) as usize]), state, out);
    }
}
