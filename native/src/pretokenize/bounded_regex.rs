//! Regexes of users, with a bound on their work per text.
//!
//! A regex with look-around or back references can take exponential time. The engine bounds the backtracking of one
//! search, but a text needs many searches, and look-around without backtracking (`(?=(a+)+b)`) does not count. So this
//! module counts every access to the text. That bounds everything except the time of a single access, which can read
//! the rest of the text: hence there is also a bound on time. Usual patterns are far below both.

use std::any::Any;
use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::time::Duration;

use fancy_regex::Input;

use crate::runtime::{interrupt, quoting::quoted};

/// Backtracking limit of one search: enough for 20 MB without a match. The engine's default (10^6) is not enough for
/// 200 kB. A regex of exponential time still gives up within seconds.
const BACKTRACKS: usize = 100_000_000;

/// Bounds on the work for a text.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// Accesses to the text, some nanoseconds each. Patterns in use need up to 20 per byte.
    looks: u64,
    looks_per_byte: u64,
    /// CPU time of the thread. Patterns in use need less than a microsecond per byte.
    time: Duration,
    time_per_byte: Duration,
}

pub const BOUNDS: Bounds = Bounds {
    looks: 100_000_000,
    looks_per_byte: 1000,
    time: Duration::from_secs(10),
    time_per_byte: Duration::from_micros(20),
};

/// A regex that gives up if it takes too long.
pub struct Regex(fancy_regex::Regex);

/// Unwinding payload: why a regex gave up. The engine can only be left by unwinding.
struct GaveUp(String);

impl Regex {
    pub fn new(pattern: &str) -> Result<Self, String> {
        match fancy_regex::RegexBuilder::new(pattern).backtrack_limit(BACKTRACKS).build() {
            Ok(regex) => Ok(Self(regex)),
            Err(error) => Err(format!("the pattern {} does not compile: {error}", quoted(pattern))),
        }
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Calls `found` with each match in order. It may have been called before an error.
    pub fn matches(&self, text: &[u8], meter: &Meter, mut found: impl FnMut(usize, usize)) -> Result<(), String> {
        let haystack = self.haystack(text, meter)?;
        for place in self.0.find_iter(&haystack) {
            let (start, end) = place.map_err(|error| self.gave_up(&error.to_string()))?;
            found(start, end);
        }
        Ok(())
    }

    pub fn is_match(&self, text: &[u8], meter: &Meter) -> Result<bool, String> {
        self.0.is_match(&self.haystack(text, meter)?).map_err(|error| self.gave_up(&error.to_string()))
    }

    fn haystack<'t>(&'t self, text: &'t [u8], meter: &'t Meter) -> Result<Haystack<'t>, String> {
        let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        Ok(Haystack { text, meter, regex: self })
    }

    fn gave_up(&self, why: &str) -> String {
        format!(
            "the pattern {} gave up: {why}; write it without repeats inside repeats, as (a+)+, and without look-around \
             or back references that reach far, or use a named pattern",
            quoted(self.as_str())
        )
    }
}

/// The work of a pattern's regexes on a text.
pub struct Meter {
    bytes: usize,
    bounds: Bounds,
    looks: Cell<u64>,
    /// The access count at which the clock is read next, and the number of accesses between two readings.
    reading: Cell<u64>,
    between: Cell<u64>,
    /// CPU time of the thread at the first and the last reading.
    first: Cell<Option<Duration>>,
    last: Cell<Duration>,
}

impl Meter {
    /// Runs regexes on a text of `bytes` bytes; an error if they exceed the bounds.
    pub fn run<R>(bytes: usize, bounds: Bounds, work: impl FnOnce(&Self) -> Result<R, String>) -> Result<R, String> {
        let meter = Self {
            bytes,
            bounds,
            looks: Cell::new(0),
            reading: Cell::new(64),
            between: Cell::new(64),
            first: Cell::new(None),
            last: Cell::new(Duration::ZERO),
        };
        // Unwinding leaves only the engine's scratch space in an unknown state, and each search resets it.
        match catch_unwind(AssertUnwindSafe(|| work(&meter))) {
            Ok(result) => result,
            Err(reason) => {
                Err(reason.downcast::<GaveUp>().unwrap_or_else(|other: Box<dyn Any + Send>| resume_unwind(other)).0)
            }
        }
    }

    #[inline(always)]
    fn look(&self, regex: &Regex) {
        let looks = self.looks.get() + 1;
        self.looks.set(looks);
        if looks >= self.reading.get() {
            self.check(regex);
        }
    }

    /// Called every few milliseconds, or after a single access that takes longer.
    #[cold]
    #[inline(never)]
    fn check(&self, regex: &Regex) {
        interrupt::check();
        let (looks, now) = (self.looks.get(), thread_time());
        let first = self.first.get().unwrap_or(now);
        let bytes = self.bytes as u64;
        let Bounds { looks: most, looks_per_byte, time, time_per_byte } = self.bounds;
        let most = most.saturating_add(bytes.saturating_mul(looks_per_byte));
        let time = time.saturating_add(time_per_byte.saturating_mul(self.bytes.min(u32::MAX as usize) as u32));
        if looks > most || now - first > time {
            let what = if looks > most { format!("{most} steps") } else { format!("{} seconds", time.as_secs()) };
            let why = format!("it takes more than {what} for a text of {bytes} bytes");
            resume_unwind(Box::new(GaveUp(regex.gave_up(&why))));
        }
        let between = match now - self.first.get().map_or(now, |_| self.last.get()) {
            short if short < Duration::from_millis(1) => (2 * self.between.get()).min(1 << 16),
            long if long > Duration::from_millis(10) => (self.between.get() / 8).max(1),
            _ => self.between.get(),
        };
        self.first.set(Some(first));
        self.last.set(now);
        self.between.set(between);
        self.reading.set(looks + between);
    }
}

/// CPU time of this thread: unlike wall time, it does not grow on a busy or suspended machine.
#[cfg(unix)]
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into the given struct.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(unix))]
fn thread_time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

/// A text that counts accesses.
struct Haystack<'t> {
    text: &'t str,
    meter: &'t Meter,
    regex: &'t Regex,
}

impl Input for Haystack<'_> {
    type Match<'m>
        = (usize, usize)
    where
        Self: 'm;

    fn len(&self) -> usize {
        self.text.len()
    }

    #[inline(always)]
    fn as_bytes(&self) -> &[u8] {
        self.meter.look(self.regex);
        self.text.as_bytes()
    }

    fn is_char_boundary(&self, ix: usize) -> bool {
        self.text.is_char_boundary(ix)
    }

    fn is_ascii(&self) -> bool {
        self.text.is_ascii()
    }

    fn prev_codepoint_ix(&self, i: usize) -> usize {
        self.text.prev_codepoint_ix(i)
    }

    fn make_match(&self, start: usize, end: usize) -> (usize, usize) {
        (start, end)
    }

    fn advance_position(&self, i: usize) -> usize {
        self.text.advance_position(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pattern: &str, text: &str, bounds: Bounds) -> Result<usize, String> {
        let regex = Regex::new(pattern).unwrap();
        let mut n = 0;
        Meter::run(text.len(), bounds, |meter| regex.matches(text.as_bytes(), meter, |_, _| n += 1)).map(|()| n)
    }

    #[test]
    fn work_is_bounded_over_all_matches_of_a_text() {
        let text = "a".repeat(20_000);
        // Each search of the first takes many steps; of the second, one long access.
        for (pattern, what) in [(r"(?=(?:a(?=a)){0,500})a|.", "steps"), (r"(?=(a+)+b)a|.", "seconds")] {
            let bounds =
                Bounds { looks: 1000, time: Duration::from_millis(20), time_per_byte: Duration::ZERO, ..BOUNDS };
            let bounds = match what {
                "steps" => Bounds { looks_per_byte: 100, time: Duration::from_secs(1000), ..bounds },
                _ => bounds,
            };
            assert_eq!(count(pattern, &text[..50], bounds), Ok(50));
            let error = count(pattern, &text, bounds).unwrap_err();
            for part in [pattern, what, "a text of 20000 bytes", "use a named pattern"] {
                assert!(error.contains(part), "{error}");
            }
        }
    }

    #[test]
    fn a_single_search_is_bounded() {
        // A match that never succeeds, tried at every position.
        let bounds = Bounds { time: Duration::from_millis(20), time_per_byte: Duration::ZERO, ..BOUNDS };
        let error = count(r"(?=(a+)+b)a", &"a".repeat(20_000), bounds).unwrap_err();
        assert!(error.contains("seconds"), "{error}");
    }

    #[test]
    fn the_bounds_are_far_from_usual_patterns() {
        let bounds = Bounds { looks: 0, looks_per_byte: 20, time: Duration::ZERO, time_per_byte: BOUNDS.time_per_byte };
        let text = "It's 3,141 words—said he—  \n\n  and   so on; (see \"it\")\t東京 1234567890!? ".repeat(1000);
        for pattern in [
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+|$",
            r"\p{N}{1,2}(?=(?:\p{N}{3})*(?!\p{N}))|[^\r\n\p{L}\p{N}]?\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s",
            r"(?<=\s)\S+|(\w)\1",
        ] {
            assert!(count(pattern, &text, bounds).unwrap() > 3000, "{pattern}");
        }
    }
}
