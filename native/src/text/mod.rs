//! Text: documents, files, normalization, special strings.

pub mod batch;
pub mod documents;
pub mod filter;
pub(crate) mod masks;
pub mod normalize;
pub mod overlap;
pub mod read;
pub mod specials;
pub mod unit;
pub mod utf8;
pub mod word_ends;
