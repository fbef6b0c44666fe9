//! Reading documents from files.

mod collector;
pub mod damage;
pub mod feed;
pub mod input;
mod json_lines;
mod plain_text;
pub mod reader;
mod records;
pub mod settings;
#[cfg(test)]
pub(crate) mod tests;
