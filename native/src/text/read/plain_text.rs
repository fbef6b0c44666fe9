//! Text files: one document, or documents with a separator.

use std::io::Read;

use memchr::memmem;

use super::collector::Collector;
use super::damage::Failure;
use super::input::Window;
use super::settings::{too_long, Settings};

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
