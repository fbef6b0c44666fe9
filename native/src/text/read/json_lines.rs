//! Files of one JSON object per line.

use std::io::Read;

use super::settings::{too_long, Settings};
use super::{collector::Collector, input::Window, records};

pub(super) fn read_lines(input: impl Read, settings: &Settings, collector: &mut Collector) -> Result<bool, String> {
    let mut window = Window::new(input);
    let mut number = 0u64;
    let mut searched = 0;
    loop {
        while let Some(found) = memchr::memchr(b'\n', &window.text()[searched..]) {
            let length = searched + found;
            number += 1;
            if length > settings.limit {
                return Err(too_long(&format!("line {number}"), window.base, settings));
            }
            if !read_line(&window.text()[..length], number, settings, collector)? {
                return Ok(false);
            }
            window.use_up(length + 1);
            searched = 0;
        }
        searched = window.text().len();
        if searched > settings.limit {
            return Err(too_long(&format!("line {}", number + 1), window.base, settings));
        }
        if !window.fill()? {
            return read_line(window.text(), number + 1, settings, collector);
        }
    }
}

fn read_line(mut line: &[u8], number: u64, settings: &Settings, collector: &mut Collector) -> Result<bool, String> {
    if number == 1 {
        line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line); // a byte order mark is not JSON
    }
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(true);
    }
    let place = |error: String| format!("line {number}: {error}");
    let start = collector.batch.data.len();
    let score = records::parse(line, &settings.field, settings.score_field.as_deref(), &mut collector.batch.data)
        .map_err(place)?;
    if settings.score_field.is_some() && score.is_none_or(|score| score < settings.min_score) {
        collector.batch.data.truncate(start);
        return Ok(true);
    }
    collector.close(0, settings).map_err(place)
}
