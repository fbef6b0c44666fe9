//! Documents out of files.

mod collector;
mod input;
mod json_lines;
mod plain_text;
mod queue;
mod quick_records;
pub mod reader;
mod records;
pub mod settings;
#[cfg(test)]
mod tests;
