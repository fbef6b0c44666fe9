//! Files of one JSON object per line.

use std::io::Read;

use super::damage::Failure;
use super::settings::{too_long, Settings};
use super::{collector::Collector, input::Window, records};

pub(super) fn read_lines(input: impl Read, settings: &Settings, collector: &mut Collector) -> Result<bool, Failure> {
    let mut window = Window::new(input);
    let mut number = 0u64;
    let mut searched = 0;
    loop {
        while let Some(found) = memchr::memchr(b'\n', &window.text()[searched..]) {
            let length = searched + found;
            number += 1;
            if length > settings.limit {
                return Err(too_long(&format!("line {number}"), window.base, settings).into());
            }
            if !read_line(&window.text()[..length], number, settings, collector)? {
                return Ok(false);
            }
            window.use_up(length + 1);
            searched = 0;
        }
        searched = window.text().len();
        if searched > settings.limit {
            return Err(too_long(&format!("line {}", number + 1), window.base, settings).into());
        }
        let filled = window.fill().map_err(|failure| match failure {
            Failure::Damage(_) => failure.at(&format!("line {}", number + 1)),
            Failure::Error(_) => failure,
        });
        if !filled? {
            return read_line(window.text(), number + 1, settings, collector);
        }
    }
}

fn read_line(mut line: &[u8], number: u64, settings: &Settings, collector: &mut Collector) -> Result<bool, Failure> {
    if number == 1 {
        line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line); // a byte order mark is not JSON
    }
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(true);
    }
    let parsed = records::parse(line, &settings.field, settings.score_field.as_deref(), &mut collector.batch.data);
    let low = |score: Option<f64>| score.is_none_or(|score| score < settings.min_score);
    if settings.score_field.is_some() && matches!(parsed, Ok((score, _)) if low(score)) {
        return Ok(collector.leave_out(settings));
    }
    if matches!(parsed, Ok((_, false))) {
        collector.damage.add(format!("line {number}: field {:?} is null", settings.field));
    }
    let closed = parsed.map_err(Failure::Damage).and_then(|_| collector.close(0, settings));
    closed.or_else(|failure| collector.skip(failure.at(&format!("line {number}")), settings))
}
