//! Encoding of a text that comes in parts.

pub mod cuts;
pub mod prepared;
pub mod text_stream;
