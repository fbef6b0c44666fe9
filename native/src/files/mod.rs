//! Encoded documents in the format of shards.

pub mod shards;
