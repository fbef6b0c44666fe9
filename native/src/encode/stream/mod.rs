//! Encoding of a text that comes in parts.

pub mod cuts;
pub mod text;
