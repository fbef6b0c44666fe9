//! Settings of reading.

#[derive(Clone, Debug)]
pub struct Settings {
    /// Key of the text, or a path of keys joined by dots.
    pub field: String,
    pub separator: Option<String>,
    pub score_field: Option<String>,
    pub min_score: f64,
    /// Replace malformed UTF-8 by U+FFFD instead of raising an error.
    pub replace_invalid: bool,
    /// Skip damaged records and the rest of damaged files instead of raising an error.
    pub skip_damaged: bool,
    pub batch_bytes: usize,
    /// A longer document, or JSON line, is an error. This bounds memory, whatever a file decompresses to.
    pub limit: usize,
    /// Longer documents are skipped without being held in memory. At most `limit`.
    pub skip_above: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    JsonLines,
}

pub(super) fn too_long(what: &str, base: u64, settings: &Settings) -> String {
    format!(
        "{what} starting at byte {base} of the text has more than document_limit_bytes={} bytes: raise this limit to \
         read it, which takes several times its size in memory; or skip long documents with max_document_bytes=SIZE, \
         or split a .txt file into documents with separator=STRING",
        settings.limit
    )
}
