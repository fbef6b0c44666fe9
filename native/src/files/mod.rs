//! Tokenizer files and shards: fast readers and writers.

pub mod hf_model;
pub mod shards;
