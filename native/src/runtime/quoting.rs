//! Quoting of texts of any length in messages.

/// Maximum number of characters shown.
const MOST: usize = 200;

/// The text in quotation marks, with escapes, truncated if it is long.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(MOST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?} ({} bytes)", &text[..end], text.len()),
    }
}

/// A message of another library, which may quote a text, truncated if it is long.
pub fn shortened(message: &str) -> String {
    match message.char_indices().nth(2 * MOST) {
        None => message.to_string(),
        Some((end, _)) => {
            let last = message.char_indices().rev().nth(MOST / 2).map_or(end, |(at, _)| at.max(end));
            format!("{}...{}", &message[..end], &message[last..])
        }
    }
}

/// Names separated by commas, truncated if the list is long.
pub fn listed(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut text = String::new();
    for name in names {
        let name = name.as_ref();
        let comma = if text.is_empty() { "" } else { ", " };
        if text.len() + name.len() > 4 * MOST {
            return text + comma + "...";
        }
        text = text + comma + name;
    }
    text
}
