//! Byte-level BPE and SuperBPE at speed: scanners, corpus reading, counting, the merge loop, encoding.
//!
//! Everything but `python` is plain Rust that knows no Python; `python` is the binding, behind a feature.

pub mod corpus;
pub mod counting;
pub mod documents;
pub mod dropout;
pub mod encoding;
pub mod fragments;
pub mod hf_model;
pub mod interrupt;
pub mod joining;
pub mod keys;
pub mod memory;
pub mod merging;
pub mod normalizing;
pub mod offsets;
pub mod parallel;
pub mod patterns;
pub mod phase2;
pub mod preparing;
pub mod quick_records;
pub mod quoting;
pub mod read_ahead;
pub mod reading;
pub mod records;
pub mod shards;
pub mod special;
pub mod spelling;
pub mod spill;
pub mod streaming;
pub mod table;
pub mod unicode;
pub mod unlocked;

#[cfg(feature = "python")]
mod python;
