//! Units of text that no merge crosses.

/// A unit of text. No merge crosses its ends, whatever the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Document,
    /// Lines with their line feed, as HF reads files.
    Line,
}

impl Unit {
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "document" => Ok(Self::Document),
            "line" => Ok(Self::Line),
            _ => Err(format!("unit is {name:?}; it is one of: document, line")),
        }
    }

    #[inline]
    pub fn split<E>(self, text: &[u8], mut unit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Document => unit(text),
            Self::Line => {
                let mut rest = text;
                while !rest.is_empty() {
                    let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
                    let (line, after) = rest.split_at(end);
                    unit(line)?;
                    rest = after;
                }
                Ok(())
            }
        }
    }
}
