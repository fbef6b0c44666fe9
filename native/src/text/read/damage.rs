//! Damaged files and records: an error, or skipped and listed.

use std::io::ErrorKind;

/// Maximum number of places that are listed for a file.
const PLACES: usize = 20;

/// Why reading stopped.
pub enum Failure {
    /// The content of the file is damaged: what is skipped if the settings say so.
    Damage(String),
    /// Anything else: a limit, a disk, a network.
    Error(String),
}

impl Failure {
    pub fn of(error: &std::io::Error) -> Self {
        let message =
            format!("cannot be read to its end ({error}): it may be damaged or incomplete; fetch or write it again");
        match error.kind() {
            ErrorKind::ConnectionAborted => Self::Error(error.to_string()), // of a feed, which says what to do
            _ if error.raw_os_error().is_some() => Self::Error(message),
            _ if error.to_string().contains("not enough memory") => Self::Error(format!(
                // of zstd
                "cannot be decompressed ({error}): free memory, or compress it with a smaller window (`zstd --long`)"
            )),
            _ => Self::Damage(message),
        }
    }

    pub(super) fn message(self) -> String {
        match self {
            Self::Damage(message) | Self::Error(message) => message,
        }
    }

    /// Adds the place to the message.
    pub(super) fn at(self, place: &str) -> Self {
        match self {
            Self::Damage(message) => Self::Damage(format!("{place}: {message}")),
            Self::Error(message) => Self::Error(format!("{place}: {message}")),
        }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Error(message)
    }
}

/// Skipped records of a file.
#[derive(Default)]
pub struct Skipped {
    /// Records, or parts of the file whose records are unknown.
    pub count: u64,
    /// The first places, with what is wrong there.
    pub places: Vec<String>,
}

impl Skipped {
    pub(super) fn add(&mut self, place: String) {
        self.extend(Self { count: 1, places: vec![place] });
    }

    pub(super) fn extend(&mut self, more: Self) {
        self.count += more.count;
        self.places.extend(more.places);
        self.places.truncate(PLACES);
    }
}
