//! Regexes of users, with a bound on their work per text.
//!
//! A regex with look-around or back references can take exponential time. The engine bounds the backtracking of one
//! search, but a text needs many searches, and look-around without backtracking (`(?=(a+)+b)`) does not count. So this
//! module counts every access to the text. A single access can read the rest of the text, which takes quadratic time at
//! most and can be interrupted.

use std::any::Any;
use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

use fancy_regex::Input;

use crate::runtime::{interrupt, quoting::quoted};

/// Backtracking limit of one search: enough for 20 MB without a match. The engine's default (10^6) is not enough for
/// 200 kB. A regex of exponential time still gives up within seconds.
const BACKTRACKS: usize = 100_000_000;

/// Maximum number of accesses to a text, some nanoseconds each: a constant plus a number per byte. Patterns in use need
/// up to 20 per byte.
#[derive(Clone, Copy)]
pub struct Bounds {
    looks: u64,
    looks_per_byte: u64,
}

pub const BOUNDS: Bounds = Bounds { looks: 100_000_000, looks_per_byte: 1000 };

/// Accesses between two looks at Ctrl-C.
const CHECKED: u64 = 256;

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

/// The accesses of a pattern's regexes to a text.
pub struct Meter {
    bytes: usize,
    most: u64,
    looks: Cell<u64>,
}

impl Meter {
    /// Runs regexes on a text of `bytes` bytes; an error if they exceed the bounds.
    pub fn run<R>(bytes: usize, bounds: Bounds, work: impl FnOnce(&Self) -> Result<R, String>) -> Result<R, String> {
        let most = bounds.looks.saturating_add((bytes as u64).saturating_mul(bounds.looks_per_byte));
        let meter = Self { bytes, most, looks: Cell::new(0) };
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
        if looks % CHECKED == 0 {
            self.check(looks, regex);
        }
    }

    #[cold]
    #[inline(never)]
    fn check(&self, looks: u64, regex: &Regex) {
        interrupt::check();
        if looks > self.most {
            let why = format!("it takes more than {} steps for a text of {} bytes", self.most, self.bytes);
            resume_unwind(Box::new(GaveUp(regex.gave_up(&why))));
        }
    }
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
        let (text, pattern) = ("a".repeat(20_000), r"(?=(?:a(?=a)){0,500})a|.");
        let bounds = Bounds { looks: 1000, looks_per_byte: 100 };
        assert_eq!(count(pattern, &text[..50], bounds), Ok(50));
        let error = count(pattern, &text, bounds).unwrap_err();
        for part in [pattern, "2001000 steps", "a text of 20000 bytes", "use a named pattern"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_bounds_are_far_from_usual_patterns() {
        let bounds = Bounds { looks: 0, looks_per_byte: 20 };
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
