//! Tokenizer files and shards: fast readers and writers.

pub mod shards;
