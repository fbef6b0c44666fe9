//! Encoding of a document.
//!
//! 1. *Preparation* (`preparation`). Added tokens are found in the text, the text between them is normalised, and each
//!    stretch of text is encoded on its own. Most tokenizers need none of this.
//! 2. *Pieces.* The scanner cuts the text where the pattern does; a one-pass tokenizer with superwords cuts it at the
//!    fence instead. No phase-1 merge crosses the end of a piece, and in a one-pass tokenizer no merge does.
//! 3. *Level 1* (`level1`) applies the phase-1 merges. A merge (a, b) joins text only where the last byte of a is
//!    followed by the first byte of b. So where no phase-1 merge has such a pair of bytes, the text can be cut further
//!    (`level1::piece_sink`), and so it can between two characters that no merge joins (`level1::seams`). The pieces are now
//!    short and repeat. About 512 of them are looked up at a time in the thread's cache, which starts out with short
//!    tokens (`level1::pieces`). Missing ones are merged, the short ones a step of each at a time, and cached.
//! 4. *Level 2* (`level2`) applies the phase-2 merges to phase-1 tokens. It never crosses a seam between two tokens that
//!    is not the (rightmost leaf, leftmost leaf) of one of its merges. A table of pairs says which seams those are and
//!    which merge joins two tokens. The runs of tokens between the other seams are merged one by one; most have two or
//!    three tokens. Tokenizers without superwords have no second level: the tokens of level 1 are their ids.
//!
//! A two-pass tokenizer also cuts with its pattern first, and level 2 works between the boundaries of its fence
//! (`spans`).
//!
//! Merging a piece means: while a merge joins two neighbours, apply the one of the lowest rank, the leftmost first
//! (`merge`). Applying the two levels in turn gives the same ids for any list of merges (`levels` has the argument). A
//! list may give a token several derivations, as files made from tiktoken ranks do. In one pass only one of them
//! ever applies, and the others are dropped first (`rules`).
//!
//! The cache and scratch space of a thread are its `State`. An encoder keeps states between calls. A batch is encoded on
//! several threads. Without preparation, long documents are also split, where that changes no ids (`stream::cuts`).
//! Streams are cut by the same rules.

pub mod batch;
pub mod definition;
pub mod encoder;
pub mod level1;
pub mod level2;
mod levels;
mod merge;
pub mod packed;
mod pairs;
pub mod preparation;
pub mod rules;
pub mod spans;
pub mod state;
pub mod stream;
pub mod superwords;
#[cfg(test)]
pub mod tests;
