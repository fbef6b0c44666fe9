//! Documents out of .txt and .jsonl files, plain, gzip or zstd, as batches of one UTF-8 buffer and offsets.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, Receiver};

use memchr::memmem;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const READ_BUFFER: usize = 1 << 20;

/// Documents laid end to end; document i is `data[offsets[i]..offsets[i + 1]]`, valid UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub data: Vec<u8>,
    pub offsets: Vec<i64>,
}

impl Default for Batch {
    fn default() -> Self {
        Self { data: Vec::new(), offsets: vec![0] }
    }
}

impl Batch {
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn document(&self, i: usize) -> &[u8] {
        &self.data[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }

    pub fn push(&mut self, document: &[u8]) {
        self.data.extend_from_slice(document);
        self.offsets.push(self.data.len() as i64);
    }
}

/// Which side of the held-out split to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    All,
    Train,
    HeldOut,
}

/// Which documents to take. The budget counts the text of documents that pass the length bounds, before the split.
#[derive(Clone, Debug)]
pub struct Filter {
    pub min_bytes: usize,
    pub max_bytes: Option<usize>,
    pub budget: Option<u64>,
    pub heldout_fraction: f64,
    pub heldout_salt: String,
    pub split: Split,
    pub sample_fraction: f64,
    pub sample_salt: String,
    /// Bytes of the budget used so far.
    pub used: u64,
}

impl Filter {
    /// The documents taken, and whether more are wanted.
    pub fn apply(&mut self, batch: &Batch) -> (Batch, bool) {
        let mut taken = Batch::default();
        for i in 0..batch.len() {
            match self.takes(batch.document(i)) {
                None => return (taken, false),
                Some(true) => taken.push(batch.document(i)),
                Some(false) => {}
            }
        }
        (taken, true)
    }

    /// Whether the document is to be taken; None once the budget is used up.
    fn takes(&mut self, document: &[u8]) -> Option<bool> {
        if self.budget.is_some_and(|budget| self.used >= budget) {
            return None;
        }
        if document.len() < self.min_bytes || self.max_bytes.is_some_and(|most| document.len() > most) {
            return Some(false);
        }
        self.used += document.len() as u64;
        let held_out = || below(document, &self.heldout_salt, self.heldout_fraction);
        let on_this_side = match self.split {
            Split::All => true,
            Split::Train => !held_out(),
            Split::HeldOut => held_out(),
        };
        Some(on_this_side && (self.sample_fraction >= 1.0 || below(document, &self.sample_salt, self.sample_fraction)))
    }
}

/// A coin with the given chance, fixed by the document's text and the salt.
fn below(document: &[u8], salt: &str, fraction: f64) -> bool {
    let hash = xxh3_64_with_seed(document, xxh3_64(salt.as_bytes()));
    // 53 bits fill a double exactly, so that the comparison is the same everywhere.
    ((hash >> 11) as f64) < fraction * (1u64 << 53) as f64
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub field: Vec<String>,
    pub separator: Option<String>,
    pub score_field: Option<Vec<String>>,
    pub min_score: f64,
    /// Malformed UTF-8 becomes U+FFFD instead of an error.
    pub replace_invalid: bool,
    pub batch_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    JsonLines,
}

/// Reads files in order on a thread of its own; `next` gives batches.
pub struct Reader {
    batches: Receiver<Message>,
    ended: bool,
}

enum Message {
    Documents(Batch),
    Failed(String),
    /// Sent last, so that a thread that died cannot look like the end of the corpus.
    End,
}

impl Reader {
    pub fn start(files: Vec<(PathBuf, Format)>, settings: Settings) -> Self {
        let (sender, batches) = sync_channel(2);
        std::thread::spawn(move || {
            let mut collector = Collector {
                batch: Batch::default(),
                limit: settings.batch_bytes,
                // A closed channel means that nobody listens any more: stop reading.
                send: |batch| sender.send(Message::Documents(batch)).is_ok(),
            };
            for (path, format) in &files {
                match read_file(path, *format, &settings, &mut collector) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        let _ = sender.send(Message::Failed(format!("{}: {error}", path.display())));
                        return;
                    }
                }
            }
            collector.flush();
            let _ = sender.send(Message::End);
        });
        Self { batches, ended: false }
    }
}

impl Iterator for Reader {
    type Item = Result<Batch, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let message = self.batches.recv().unwrap_or_else(|_| Message::Failed("the reading thread died".into()));
        self.ended = !matches!(message, Message::Documents(_));
        match message {
            Message::Documents(batch) => Some(Ok(batch)),
            Message::Failed(error) => Some(Err(error)),
            Message::End => None,
        }
    }
}

struct Collector<F: FnMut(Batch) -> bool> {
    batch: Batch,
    limit: usize,
    send: F,
}

impl<F: FnMut(Batch) -> bool> Collector<F> {
    /// False when no more documents are wanted.
    fn add(&mut self, document: &[u8]) -> bool {
        self.batch.push(document);
        self.batch.data.len() < self.limit || self.flush()
    }

    fn flush(&mut self) -> bool {
        if self.batch.is_empty() {
            return true;
        }
        let empty = Batch { data: Vec::with_capacity(self.batch.data.len()), offsets: vec![0] };
        (self.send)(std::mem::replace(&mut self.batch, empty))
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
fn read_file(
    path: &Path,
    format: Format,
    settings: &Settings,
    collector: &mut Collector<impl FnMut(Batch) -> bool>,
) -> Result<bool, String> {
    let input = open(path).map_err(|error| error.to_string())?;
    match (format, &settings.separator) {
        (Format::JsonLines, _) => read_lines(input, settings, collector),
        (Format::Text, Some(separator)) => read_separated(input, separator.as_bytes(), settings, collector),
        (Format::Text, None) => {
            let mut text = Vec::new();
            BufReader::new(input).read_to_end(&mut text).map_err(|error| error.to_string())?;
            Ok(collector.add(&checked(&text, 0, settings)?))
        }
    }
}

/// The text itself, or with malformed parts replaced; an error names the byte where it stops being UTF-8.
fn checked<'a>(text: &'a [u8], base: u64, settings: &Settings) -> Result<std::borrow::Cow<'a, [u8]>, String> {
    match std::str::from_utf8(text) {
        Ok(_) => Ok(text.into()),
        Err(_) if settings.replace_invalid => Ok(String::from_utf8_lossy(text).into_owned().into_bytes().into()),
        Err(error) => Err(format!(
            "not UTF-8 at byte {} of the text; mend the file, or set corpus.on_invalid_utf8=replace to read malformed bytes as U+FFFD",
            base + error.valid_up_to() as u64
        )),
    }
}

fn read_separated(
    mut input: impl Read,
    separator: &[u8],
    settings: &Settings,
    collector: &mut Collector<impl FnMut(Batch) -> bool>,
) -> Result<bool, String> {
    let finder = memmem::Finder::new(separator);
    let mut buffer: Vec<u8> = Vec::new();
    let mut base = 0u64; // position in the text of buffer[0]
    let mut searched = 0; // no separator starts before this
    loop {
        let mut start = 0;
        while let Some(found) = finder.find(&buffer[searched.max(start)..]) {
            let end = searched.max(start) + found;
            if !collector.add(&checked(&buffer[start..end], base + start as u64, settings)?) {
                return Ok(false);
            }
            start = end + separator.len();
        }
        buffer.drain(..start);
        base += start as u64;
        searched = buffer.len().saturating_sub(separator.len() - 1);
        let old = buffer.len();
        buffer.resize(old + READ_BUFFER, 0);
        let n = input.read(&mut buffer[old..]).map_err(|error| error.to_string())?;
        buffer.truncate(old + n);
        if n == 0 {
            return Ok(collector.add(&checked(&buffer, base, settings)?));
        }
    }
}

fn read_lines(
    input: impl Read,
    settings: &Settings,
    collector: &mut Collector<impl FnMut(Batch) -> bool>,
) -> Result<bool, String> {
    let mut input = BufReader::with_capacity(READ_BUFFER, input);
    let mut line = Vec::new();
    let mut record = Record::default();
    for number in 1u64.. {
        line.clear();
        if input.read_until(b'\n', &mut line).map_err(|error| error.to_string())? == 0 {
            break;
        }
        if number == 1 && line.starts_with("\u{feff}".as_bytes()) {
            line.drain(..3); // a byte order mark is no JSON
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let place = |error: String| format!("line {number}: {error}");
        record.parse(&line, settings).map_err(place)?;
        if settings.score_field.is_some() && record.score.is_none_or(|score| score < settings.min_score) {
            continue;
        }
        if !collector.add(&checked(&record.text, 0, settings).map_err(place)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The two values that are wanted of a JSON line.
#[derive(Default)]
struct Record {
    text: Vec<u8>,
    found: bool,
    score: Option<f64>,
}

impl Record {
    fn parse(&mut self, line: &[u8], settings: &Settings) -> Result<(), String> {
        self.text.clear();
        self.found = false;
        self.score = None;
        let mut json = serde_json::Deserializer::from_slice(line);
        let wanted =
            Wanted { text: Some(&settings.field), score: settings.score_field.as_deref(), record: self, top: true };
        wanted
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|error| format!("not a JSON object with a text field: {error}"))?;
        if self.found {
            return Ok(());
        }
        let keys = match serde_json::from_slice::<serde_json::Value>(line) {
            Ok(serde_json::Value::Object(object)) => object.keys().cloned().collect::<Vec<_>>().join(", "),
            _ => "unreadable".into(),
        };
        Err(format!(
            "no field {:?} (the fields are: {keys}); set corpus.field to the one that holds the text",
            settings.field.join(".")
        ))
    }
}

/// Walks an object along the two paths and skips everything else.
struct Wanted<'a, 'p> {
    text: Option<&'p [String]>,
    score: Option<&'p [String]>,
    record: &'a mut Record,
    /// Whether this is the line's own object, which must be one; below it, null stands for absent values.
    top: bool,
}

impl<'de> DeserializeSeed<'de> for Wanted<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.text.is_some_and(<[String]>::is_empty) {
            deserializer.deserialize_option(TextVisitor(self.record))
        } else if self.text.is_none() && self.score.is_some_and(<[String]>::is_empty) {
            deserializer.deserialize_any(ScoreVisitor(self.record))
        } else if self.top {
            deserializer.deserialize_map(self)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Wanted<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        if self.text.is_some() {
            self.record.text.clear();
            self.record.found = true;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<str>>()? {
            let below =
                |path: Option<&'_ [String]>| path.is_some_and(|path| path.first().is_some_and(|name| *name == *key));
            let text = self.text.filter(|path| below(Some(path))).map(|path| &path[1..]);
            let score = self.score.filter(|path| below(Some(path))).map(|path| &path[1..]);
            if text.is_none() && score.is_none() {
                map.next_value::<IgnoredAny>()?;
            } else {
                map.next_value_seed(Wanted { text, score, record: self.record, top: false })?;
            }
        }
        Ok(())
    }
}

struct TextVisitor<'a>(&'a mut Record);

impl<'de> Visitor<'de> for TextVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("a string (the text)")
    }

    fn visit_bytes<E>(self, text: &[u8]) -> Result<(), E> {
        self.0.text.clear(); // of a key listed twice, the last value counts
        self.0.text.extend_from_slice(text);
        self.0.found = true;
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        self.0.text.clear();
        self.0.found = true; // null: an empty document
        Ok(())
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        // As bytes: serde_json then leaves the check of UTF-8 (and of lone surrogates) to us.
        text.deserialize_bytes(self)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::custom("the text field holds a list, not a string"))
    }
}

struct ScoreVisitor<'a>(&'a mut Record);

impl<'de> Visitor<'de> for ScoreVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("a number (the score)")
    }

    fn visit_f64<E>(self, score: f64) -> Result<(), E> {
        self.0.score = Some(score);
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, score: i64) -> Result<(), E> {
        self.visit_f64(score as f64)
    }

    fn visit_u64<E: serde::de::Error>(self, score: u64) -> Result<(), E> {
        self.visit_f64(score as f64)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            field: vec!["text".into()],
            separator: None,
            score_field: None,
            min_score: 0.0,
            replace_invalid: false,
            batch_bytes: 16,
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
        }
    }

    fn documents(content: &[u8], name: &str, settings: Settings, mut filter: Filter) -> Result<Vec<String>, String> {
        let path = std::env::temp_dir().join(format!("superbpe-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        let format = if name.contains("jsonl") { Format::JsonLines } else { Format::Text };
        let mut texts = Vec::new();
        for batch in Reader::start(vec![(path.clone(), format)], settings) {
            let (batch, _) = filter.apply(&batch?);
            texts.extend((0..batch.len()).map(|i| String::from_utf8(batch.document(i).to_vec()).unwrap()));
        }
        std::fs::remove_file(path).unwrap();
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
