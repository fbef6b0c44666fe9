//! Text files: one document, parts of one, or documents with a separator.

use std::io::Read;

use memchr::memmem;

use super::collector::Collector;
use super::damage::Failure;
use super::input::{Window, READ_BUFFER};
use super::settings::{too_long, Settings};
use crate::text::word_ends::word_end;

/// Bytes per read of a file that is one document.
const WHOLE_BUFFER: usize = 1 << 17;

pub(super) fn read_whole(input: impl Read, settings: &Settings, collector: &mut Collector) -> Result<bool, Failure> {
    let enough = (settings.skip_above.unwrap_or(settings.limit) as u64).saturating_add(1);
    let (mut input, data) = (input.take(enough), &mut collector.batch.data);
    loop {
        let end = data.len();
        data.resize(end + WHOLE_BUFFER, 0);
        let read = input.read(&mut data[end..]);
        data.truncate(end + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => return collector.close(0, settings).or_else(|failure| collector.skip(failure, settings)),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::of(&error)),
        }
    }
}

pub(super) fn read_parts(input: impl Read, settings: &Settings, collector: &mut Collector) -> Result<bool, Failure> {
    let mut window = Window::new(input);
    // The limit applies to the text that has to be held at once, a stretch without a cut, not to a part.
    let parts = Settings { limit: usize::MAX, ..settings.clone() };
    let mut more = true;
    let mut first = true;
    while more || !window.text().is_empty() {
        // If there is no word end, twice as much text is read, so that searching stays linear.
        let mut wanted = settings.batch_bytes.max(READ_BUFFER);
        let length = loop {
            while more && window.text().len() < wanted {
                more = window.fill()?;
            }
            let length = if more { word_end(window.text()) } else { window.text().len() };
            if length > 0 || !more {
                break length;
            }
            if window.text().len() > settings.limit {
                return Err(too_long("text without the end of a word", window.base, settings).into());
            }
            wanted = (2 * window.text().len()).min(settings.limit.saturating_add(1));
        };
        collector.batch.continued = !first;
        first = false;
        let base = window.base;
        // A part fills a batch of its own, so only first documents can be continuations.
        if !(collector.add(&window.text()[..length], base, &parts)? && collector.flush()) {
            return Ok(false);
        }
        window.use_up(length);
    }
    Ok(true)
}

pub(super) fn read_separated(
    input: impl Read,
    separator: &[u8],
    settings: &Settings,
    collector: &mut Collector,
) -> Result<bool, Failure> {
    let finder = memmem::Finder::new(separator);
    let mut window = Window::new(input);
    let mut searched = 0; // no separator starts before this
    let mut skipping = false; // the document is too long, and its start was discarded
    loop {
        while let Some(found) = finder.find(&window.text()[searched..]) {
            let length = searched + found;
            if !skipping && !collector.add(&window.text()[..length], window.base, settings)? {
                return Ok(false);
            }
            window.use_up(length + separator.len());
            (searched, skipping) = (0, false);
        }
        searched = window.text().len().saturating_sub(separator.len() - 1);
        skipping |= settings.skip_above.is_some_and(|most| searched > most);
        if skipping {
            window.use_up(searched);
            searched = 0;
        } else if searched > settings.limit {
            return Err(too_long("a document", window.base, settings).into());
        }
        if !window.fill()? {
            return if skipping { Ok(true) } else { collector.add(window.text(), window.base, settings) };
        }
    }
}
