//! Documents out of .txt and .jsonl files, plain, gzip or zstd, read ahead on threads of their own.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memchr::memmem;

use crate::corpus::{self, Batch};
use crate::interrupt::catch;
use crate::read_ahead::{Lane, Queue};
use crate::unlocked::Process;
use crate::{memory, parallel, quick_records, records};

const READ_BUFFER: usize = 1 << 20;
/// Bytes that are read at a time of a file that is one document.
const WHOLE_BUFFER: usize = 1 << 17;
/// Bytes by which the buffer of a long document grows at most: twice its size could be far beyond the limit.
const GROWTH: usize = 1 << 26;
/// Bytes of files, as they lie on the disk, that a thread takes at a time; or one file. Small files share batches.
const FILES_BYTES: u64 = 1 << 22;

#[derive(Clone, Debug)]
pub struct Settings {
    pub field: Vec<String>,
    pub separator: Option<String>,
    pub score_field: Option<Vec<String>>,
    pub min_score: f64,
    /// Malformed UTF-8 becomes U+FFFD instead of an error.
    pub replace_invalid: bool,
    pub batch_bytes: usize,
    /// A longer document, or line of JSON, is an error: memory for one is bounded, whatever a file decompresses to.
    pub limit: usize,
    /// Documents longer than this are left out, and not held whole. At most `limit`.
    pub skip_above: Option<usize>,
    /// Give text files that are one long document in parts, cut between words (see `word_end`).
    pub parts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    JsonLines,
}

/// The last place of `text` between an ASCII letter or digit and a space or line feed, or 0.
///
/// Scanners for which `Scanner::cuts_after_words` holds cut there whatever stands around it.
pub fn word_end(text: &[u8]) -> usize {
    (1..text.len()).rev().find(|&at| is_word_end(text, at)).unwrap_or(0)
}

#[inline]
pub fn is_word_end(text: &[u8], at: usize) -> bool {
    matches!(text[at], b' ' | b'\n') && text[at - 1].is_ascii_alphanumeric()
}

/// Reads files ahead on threads; `next` gives batches, in the order of the files if that is asked for.
pub struct Reader(Arc<Queue<Batch>>, Process);

impl Reader {
    /// Fails where the system starts no thread.
    pub fn start(
        files: Vec<(PathBuf, Format)>,
        settings: Settings,
        threads: usize,
        in_order: bool,
    ) -> Result<Self, String> {
        let threads = threads.clamp(1, files.len().max(1));
        let queue = Queue::new(threads, in_order);
        let work = Arc::new((files, settings));
        parallel::start(threads, || {
            let (queue, work) = (Arc::clone(&queue), Arc::clone(&work));
            move || {
                let (files, settings) = &*work;
                while let Some((lane, taken)) = queue.open(|from| some_files(files, from)) {
                    let mut collector = Collector::new(lane, settings.batch_bytes);
                    for (path, format) in &files[taken] {
                        let read = catch(|| read_file(path, *format, settings, &mut collector));
                        match read.unwrap_or_else(|stopped| Err(stopped.to_string())) {
                            Ok(true) => {}
                            Ok(false) => return,
                            Err(error) => return collector.lane.fail(format!("{}: {error}", path.display())),
                        }
                    }
                    if collector.flush() {
                        collector.lane.end();
                    }
                }
            }
        })?;
        Ok(Self(queue, Process::current()))
    }
}

/// What to read at a time from file `from` on.
fn some_files(files: &[(PathBuf, Format)], from: usize) -> std::ops::Range<usize> {
    let mut bytes = 0;
    let sizes = files[from..].iter().map(|(path, _)| path.metadata().map_or(FILES_BYTES, |file| file.len()));
    let small = sizes.take_while(|size| {
        bytes += size;
        bytes <= FILES_BYTES
    });
    let count = small.count().max(1);
    from..files.len().min(from + count)
}

impl Iterator for Reader {
    type Item = Result<Batch, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.1.is_current() {
            return Some(Err(
                "files that were opened before a fork can only be read on in the process before it".into()
            ));
        }
        self.0.take()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.1.is_current() {
            self.0.close();
        }
    }
}

/// Documents of one thread on their way into batches.
struct Collector {
    batch: Batch,
    limit: usize,
    lane: Lane<Batch>,
}

impl Collector {
    fn new(lane: Lane<Batch>, limit: usize) -> Self {
        Self { batch: Batch::default(), limit, lane }
    }

    /// Ends the document that `batch.data` holds since its last offset, after a check of its UTF-8. `base` is where
    /// it starts in the file. Ok(false) when nobody wants more documents.
    fn close(&mut self, base: u64, settings: &Settings) -> Result<bool, String> {
        let start = *self.batch.offsets.last().expect("offsets start with 0") as usize;
        let length = self.batch.data.len() - start;
        if settings.skip_above.is_some_and(|most| length > most) {
            self.batch.data.truncate(start);
            return Ok(true);
        }
        if length > settings.limit {
            return Err(too_long("a document", base, settings));
        }
        if let Err(error) = std::str::from_utf8(&self.batch.data[start..]) {
            if !settings.replace_invalid {
                return Err(format!(
                    "not UTF-8 at byte {} of the text; mend the file, or set corpus.on_invalid_utf8=replace to read \
                     malformed bytes as U+FFFD",
                    base + error.valid_up_to() as u64
                ));
            }
            let mut replaced = memory::room(length);
            for chunk in self.batch.data[start..].utf8_chunks() {
                replaced.extend_from_slice(chunk.valid().as_bytes());
                if !chunk.invalid().is_empty() {
                    replaced.extend_from_slice("\u{fffd}".as_bytes());
                }
                if replaced.len() > settings.limit {
                    return Err(too_long("a document with its malformed bytes read as U+FFFD", base, settings));
                }
            }
            self.batch.data.truncate(start);
            self.batch.data.extend_from_slice(&replaced);
        }
        self.batch.offsets.push(self.batch.data.len() as i64);
        Ok(self.batch.data.len() < self.limit || self.flush())
    }

    fn add(&mut self, document: &[u8], base: u64, settings: &Settings) -> Result<bool, String> {
        memory::reserve(&mut self.batch.data, document.len());
        self.batch.data.extend_from_slice(document);
        self.close(base, settings)
    }

    /// False when nobody listens any more.
    fn flush(&mut self) -> bool {
        if self.batch.is_empty() {
            return true;
        }
        let empty = Batch { data: corpus::buffer(self.batch.data.len()), ..Batch::default() };
        let size = self.batch.data.len().div_ceil(self.limit.max(1)).max(1);
        self.lane.send(std::mem::replace(&mut self.batch, empty), size)
    }
}

fn open(path: &Path) -> std::io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    Ok(match extension.to_ascii_lowercase().as_str() {
        "gz" => Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(READ_BUFFER, file))),
        "zst" | "zstd" => Box::new(zstd::Decoder::new(file)?),
        _ => Box::new(file),
    })
}

/// Ok(false) when no more documents are wanted.
fn read_file(path: &Path, format: Format, settings: &Settings, collector: &mut Collector) -> Result<bool, String> {
    let input = open(path).map_err(|error| error.to_string())?;
    match (format, &settings.separator) {
        (Format::JsonLines, _) => read_lines(input, settings, collector),
        (Format::Text, Some(separator)) => read_separated(input, separator.as_bytes(), settings, collector),
        (Format::Text, None) if settings.parts => read_parts(input, settings, collector),
        (Format::Text, None) => read_whole(input, settings, collector),
    }
}

fn unreadable(error: std::io::Error) -> String {
    format!("cannot be read to its end ({error}): it may be damaged or incomplete; fetch or write it again")
}

fn too_long(what: &str, base: u64, settings: &Settings) -> String {
    format!(
        "{what} that starts at byte {base} of the text has more than {} bytes: raise corpus.document_limit_bytes to read \
         it, which takes several times its size of memory; or leave out long documents with corpus.max_document_bytes, or \
         say with corpus.separator what stands between documents of a .txt file",
        settings.limit
    )
}

/// A buffer that is filled from the end and used up from the front.
struct Window<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Position in the input of `buffer[start]`.
    base: u64,
}

impl<R: Read> Window<R> {
    fn new(input: R) -> Self {
        Self { input, buffer: vec![0; READ_BUFFER], start: 0, end: 0, base: 0 }
    }

    fn text(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn use_up(&mut self, bytes: usize) {
        self.start += bytes;
        self.base += bytes as u64;
    }

    /// Reads more behind what is there; false at the end of the input.
    fn fill(&mut self) -> Result<bool, String> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            let growth = self.end.min(GROWTH);
            memory::reserve(&mut self.buffer, growth);
            self.buffer.resize(self.end + growth, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(n) => {
                    self.end += n;
                    return Ok(n > 0);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
    }
}

fn read_whole(input: impl Read, settings: &Settings, collector: &mut Collector) -> Result<bool, String> {
    let enough = (settings.skip_above.unwrap_or(settings.limit) as u64).saturating_add(1);
    let (mut input, data) = (input.take(enough), &mut collector.batch.data);
    loop {
        let end = data.len();
        memory::reserve(data, WHOLE_BUFFER);
        data.resize(end + WHOLE_BUFFER, 0);
        let read = input.read(&mut data[end..]);
        data.truncate(end + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => return collector.close(0, settings),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
}

fn read_parts(input: impl Read, settings: &Settings, collector: &mut Collector) -> Result<bool, String> {
    let mut window = Window::new(input);
    // The limit is for what has to be held at once: for a stretch without a place to cut, not for a part.
    let parts = Settings { limit: usize::MAX, ..settings.clone() };
    let mut more = true;
    let mut first = true;
    while more || !window.text().is_empty() {
        // Where there is no word end in all of it, twice as much is looked at: searching stays linear.
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
                return Err(too_long("text without the end of a word", window.base, settings));
            }
            wanted = (2 * window.text().len()).min(settings.limit.saturating_add(1));
        };
        collector.batch.continued = !first;
        first = false;
        let base = window.base;
        // A part fills a batch of its own, so that only first documents can be continuations.
        if !(collector.add(&window.buffer[window.start..window.start + length], base, &parts)? && collector.flush()) {
            return Ok(false);
        }
        window.use_up(length);
    }
    Ok(true)
}

fn read_separated(
    input: impl Read,
    separator: &[u8],
    settings: &Settings,
    collector: &mut Collector,
) -> Result<bool, String> {
    let finder = memmem::Finder::new(separator);
    let mut window = Window::new(input);
    let mut searched = 0; // no separator starts before this
    let mut skipping = false; // the document is longer than it may be, and its start no longer held
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
            return Err(too_long("a document", window.base, settings));
        }
        if !window.fill()? {
            return if skipping { Ok(true) } else { collector.add(window.text(), window.base, settings) };
        }
    }
}

fn read_lines(input: impl Read, settings: &Settings, collector: &mut Collector) -> Result<bool, String> {
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
        line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line); // a byte order mark is no JSON
    }
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(true);
    }
    let place = |error: String| format!("line {number}: {error}");
    let start = collector.batch.data.len();
    if let ([field], None) = (&settings.field[..], &settings.score_field) {
        if quick_records::parse(line, field, &mut collector.batch.data) {
            return collector.close(0, settings).map_err(place);
        }
    }
    let score = records::parse(line, &settings.field, settings.score_field.as_deref(), &mut collector.batch.data)
        .map_err(place)?;
    if settings.score_field.is_some() && score.is_none_or(|score| score < settings.min_score) {
        collector.batch.data.truncate(start);
        return Ok(true);
    }
    collector.close(0, settings).map_err(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{Filter, Split};

    fn settings() -> Settings {
        Settings {
            field: vec!["text".into()],
            separator: None,
            score_field: None,
            min_score: 0.0,
            replace_invalid: false,
            batch_bytes: 16,
            limit: 1 << 30,
            skip_above: None,
            parts: false,
        }
    }

    fn filter() -> Filter {
        Filter {
            min_bytes: 1,
            max_bytes: None,
            budget: None,
            heldout_fraction: 0.0,
            heldout_salt: String::new(),
            split: Split::All,
            sample_fraction: 1.0,
            sample_salt: String::new(),
            used: 0,
            excluded: Default::default(),
        }
    }

    fn documents(content: &[u8], name: &str, settings: Settings, mut filter: Filter) -> Result<Vec<String>, String> {
        let path = std::env::temp_dir().join(format!("superbpe-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        let format = if name.contains("jsonl") { Format::JsonLines } else { Format::Text };
        let mut texts = Vec::new();
        let batches: Vec<_> = Reader::start(vec![(path.clone(), format)], settings, 1, true).unwrap().collect();
        std::fs::remove_file(path).unwrap();
        for batch in batches {
            let (batch, _) = filter.apply(&Arc::new(batch?));
            texts.extend((0..batch.len()).map(|i| String::from_utf8(batch.document(i).to_vec()).unwrap()));
        }
        Ok(texts)
    }

    #[test]
    fn json_lines_along_a_path_with_a_score() {
        let content = br#"{"a": {"text": "one\u00e9"}, "m": {"score": 3}, "x": [1, {"text": 2}]}

{"m": {"score": 2.5}, "a": {"text": "two"}}
{"m": {}, "a": {"text": "three"}}
{"m": {"score": 4}, "a": {"text": null}}
"#;
        let mut s = settings();
        s.field = vec!["a".into(), "text".into()];
        s.score_field = Some(vec!["m".into(), "score".into()]);
        s.min_score = 2.75;
        assert_eq!(documents(content, "path.jsonl", s, filter()).unwrap(), ["oneé"]);
    }

    #[test]
    fn errors_name_line_and_remedy() {
        let wrong = documents(b"{\"text\": \"a\"}\n{\"body\": \"b\", \"n\": 1}\n", "field.jsonl", settings(), filter());
        let message = wrong.unwrap_err();
        assert!(message.contains("line 2") && message.contains("body, n"), "{message}");
        let broken = documents(b"{\"text\": \"a\xff\"}\n", "utf8.jsonl", settings(), filter()).unwrap_err();
        assert!(broken.contains("line 1") && broken.contains("byte 1"), "{broken}");
        let surrogate = documents(b"{\"text\": \"a\\ud800\"}\n", "lone.jsonl", settings(), filter());
        assert!(surrogate.is_err());
        let mut lossy = settings();
        lossy.replace_invalid = true;
        let mended = documents(b"{\"text\": \"a\xff\"}\n", "lossy.jsonl", lossy, filter()).unwrap();
        assert_eq!(mended, ["a\u{fffd}"]);
    }

    #[test]
    fn long_documents_are_left_out_or_an_error() {
        let long = "0123456789".repeat(300_000); // longer than the buffer
        let separated = format!("one|two|{long}|{}|three|{long}", &long[..21]);
        let lines: String = separated.split('|').map(|text| format!("{{\"text\": \"{text}\"}}\n")).collect();
        let with = |separator: Option<&str>, limit: usize, skip_above: Option<usize>| {
            let separator = separator.map(str::to_string);
            Settings { separator, limit, skip_above, ..settings() }
        };
        for most in [5, 20] {
            let s = || with(Some("|"), 1000, Some(most));
            assert_eq!(
                documents(separated.as_bytes(), "skip-separated.txt", s(), filter()).unwrap(),
                ["one", "two", "three"]
            );
            assert!(documents(long.as_bytes(), "skip-whole.txt", with(None, 1000, Some(most)), filter())
                .unwrap()
                .is_empty());
            let s = Settings { limit: 1 << 30, ..s() };
            assert_eq!(documents(lines.as_bytes(), "skip.jsonl", s, filter()).unwrap(), ["one", "two", "three"]);
        }
        assert_eq!(
            documents(separated.as_bytes(), "fits-separated.txt", with(Some("|"), long.len(), None), filter())
                .unwrap()
                .len(),
            6
        );
        for limit in [2, 20, 2_000_000, 2_999_999] {
            let s = |separator| with(separator, limit, None);
            for (content, name, s) in [
                (&separated, "error-separated.txt", s(Some("|"))),
                (&long, "error-whole.txt", s(None)),
                (&lines, "error-lines.jsonl", s(None)),
            ] {
                let error = documents(content.as_bytes(), name, s, filter()).unwrap_err();
                for part in [name, &format!("more than {limit} bytes"), "corpus.document_limit_bytes"] {
                    assert!(error.contains(part), "{error}");
                }
                assert_eq!(
                    name.contains("jsonl"),
                    error.contains(if limit < 15 { "line 1" } else { "line 3" }),
                    "{error}"
                );
            }
        }
        assert_eq!(documents(b"", "empty.txt", with(None, 0, None), filter()).unwrap(), [""; 0]);
    }

    #[test]
    fn malformed_bytes_count_as_what_they_are_read_as() {
        let s = |limit| Settings { limit, replace_invalid: true, ..settings() };
        assert_eq!(documents(b"a\xff\xffb", "mended.txt", s(8), filter()).unwrap(), ["a\u{fffd}\u{fffd}b"]);
        assert!(documents(b"a\xff\xffb", "mended.txt", s(7), filter()).unwrap_err().contains("more than 7 bytes"));
    }

    #[test]
    fn parts_of_a_document_may_be_longer_together() {
        let text = "word ".repeat(600_000);
        let parts = |limit| Settings { parts: true, limit, ..settings() };
        assert_eq!(documents(text.as_bytes(), "parts.txt", parts(100), filter()).unwrap().concat(), text);
        let one = "x".repeat(3_000_000);
        let error = documents(one.as_bytes(), "one.txt", parts(2_000_000), filter()).unwrap_err();
        assert!(error.contains("without the end of a word") && error.contains("document_limit_bytes"), "{error}");
        assert_eq!(documents(one.as_bytes(), "one.txt", parts(3_000_000), filter()).unwrap(), [one]);
    }

    #[test]
    fn errors_show_little_of_a_long_line() {
        let long = "x".repeat(1_000_000);
        let nested = Settings { field: vec!["a".into(), "text".into()], ..settings() };
        let scored = Settings { score_field: Some(vec!["n".into()]), ..settings() };
        for (line, s) in [
            (format!(r#"{{"{long}": 1}}"#), settings()),
            (format!(r#"{{"a": "{long}"}}"#), nested),
            (format!(r#"{{"text": "", "n": "{long}"}}"#), scored),
            (format!(r#"{{"text": "{long}\q"}}"#), settings()),
            (long.clone(), settings()),
            ((0..100_000).fold("{\"b\": 1".to_string(), |line, i| line + &format!(", \"{i}\": []")) + "}", settings()),
        ] {
            let error = documents(line.as_bytes(), "shown.jsonl", s, filter()).unwrap_err();
            assert!(error.contains("line 1") && error.len() < 2000, "{} {}", error.len(), &error[..200]);
        }
    }

    #[test]
    fn text_with_a_separator_and_a_budget() {
        let mut s = settings();
        s.separator = Some("<|end|>".into());
        let content = "one<|end|>two<|end|><|end|>three".as_bytes();
        assert_eq!(documents(content, "a.txt", s.clone(), filter()).unwrap(), ["one", "two", "three"]);
        let mut f = filter();
        f.budget = Some(4);
        assert_eq!(documents(content, "b.txt", s, f).unwrap(), ["one", "two"]);
    }

    #[test]
    fn the_split_is_a_partition() {
        let content: String = (0..500).map(|i| format!("{{\"text\": \"document {i}\"}}\n")).collect();
        let side = |split| {
            let mut f = filter();
            f.heldout_fraction = 0.1;
            f.split = split;
            documents(content.as_bytes(), &format!("{split:?}.jsonl"), settings(), f).unwrap()
        };
        let (train, held_out) = (side(Split::Train), side(Split::HeldOut));
        assert_eq!(train.len() + held_out.len(), 500);
        assert!((25..80).contains(&held_out.len()), "{}", held_out.len());
        assert!(held_out.iter().all(|text| !train.contains(text)));
    }
}
