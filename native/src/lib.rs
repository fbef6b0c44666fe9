//! Byte-level BPE and SuperBPE: reading text, pretokenization, counting, training, encoding.
//!
//! Modules, each of which uses only those before it: `runtime`, `vocabulary`, `text`, `pretokenize`, `count`, `encode`,
//! `train`, `files`. `python` is the binding, enabled by a feature; nothing else uses Python.

#![warn(clippy::undocumented_unsafe_blocks)]

pub mod count;
pub mod encode;
pub mod files;
pub mod pretokenize;
pub mod runtime;
pub mod text;
pub mod train;
pub mod vocabulary;

#[cfg(feature = "python")]
mod python;

#[cfg(test)]
mod properties;
