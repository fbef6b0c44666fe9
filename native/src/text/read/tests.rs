use std::io::Write;
use std::sync::Arc;

use super::feed::Feed;
use super::input::Input;
use super::reader::Reader;
use super::settings::{Format, Settings};
use crate::text::filter::{Filter, Split};

pub fn settings() -> Settings {
    Settings {
        field: vec!["text".into()],
        separator: None,
        score_field: None,
        min_score: 0.0,
        replace_invalid: false,
        skip_damaged: false,
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
        heldout_ngram: 0,
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
    let batches: Vec<_> =
        Reader::start(vec![Input { path: path.clone(), format, feed: None }], settings, 1, true).unwrap().collect();
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
fn a_feed_is_read_like_a_file() {
    let lines: String = (0..1000).map(|i| format!("{{\"text\": \"document {i}\"}}\n")).collect();
    let read = |error: Option<String>| {
        let feed = Arc::<Feed>::default();
        let input = Input { path: "far.jsonl".into(), format: Format::JsonLines, feed: Some(Arc::clone(&feed)) };
        let reader = Reader::start(vec![input], settings(), 1, true).unwrap();
        let put = std::thread::spawn({
            let (feed, content) = (Arc::clone(&feed), lines.clone());
            move || {
                let all = content.as_bytes().chunks(777).all(|block| feed.put(block.to_vec()));
                feed.end(error);
                all
            }
        });
        let batches: Result<Vec<_>, _> = reader.collect();
        assert!(put.join().unwrap());
        batches.map(|batches| batches.iter().map(|batch| batch.len()).sum::<usize>())
    };
    assert_eq!(read(None), Ok(1000));
    assert_eq!(read(Some("the network is down".into())), Err("far.jsonl: the network is down".into()));
    let feed = Arc::<Feed>::default();
    feed.close();
    assert!(!feed.put(vec![1]));
}

#[test]
fn damaged_lines_are_skipped_and_listed() {
    let path = std::env::temp_dir().join(format!("superbpe-{}-skipped.jsonl", std::process::id()));
    std::fs::write(&path, "{\"text\": \"one\"}\ndamaged\n{\"text\": \"two\"}\n").unwrap();
    let input = Input { path: path.clone(), format: Format::JsonLines, feed: None };
    let mut reader = Reader::start(vec![input], Settings { skip_damaged: true, ..settings() }, 1, true).unwrap();
    let mut lengths = Vec::new();
    for batch in reader.by_ref() {
        let batch = batch.unwrap();
        lengths.extend((0..batch.len()).map(|i| batch.document(i).len()));
    }
    std::fs::remove_file(path).unwrap();
    assert_eq!(lengths, [3, 0, 3]);
    let skipped = reader.skipped().values().next().unwrap();
    assert!(skipped.count == 1 && skipped.places[0].starts_with("line 2: not a JSON object"));
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
            for part in [name, &format!("more than document_limit_bytes={limit} bytes"), "max_document_bytes="] {
                assert!(error.contains(part), "{error}");
            }
            assert_eq!(name.contains("jsonl"), error.contains(if limit < 15 { "line 1" } else { "line 3" }), "{error}");
        }
    }
    assert_eq!(documents(b"", "empty.txt", with(None, 0, None), filter()).unwrap(), [""; 0]);
}

#[test]
fn malformed_bytes_count_as_what_they_are_read_as() {
    let s = |limit| Settings { limit, replace_invalid: true, ..settings() };
    assert_eq!(documents(b"a\xff\xffb", "mended.txt", s(8), filter()).unwrap(), ["a\u{fffd}\u{fffd}b"]);
    let error = documents(b"a\xff\xffb", "mended.txt", s(7), filter()).unwrap_err();
    assert!(error.contains("more than document_limit_bytes=7 bytes"), "{error}");
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
fn empty_documents_fill_a_batch() {
    let batches = |content: &[u8], name: &str, settings: Settings| {
        let path = std::env::temp_dir().join(format!("superbpe-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        let format = if name.contains("jsonl") { Format::JsonLines } else { Format::Text };
        let input = Input { path: path.clone(), format, feed: None };
        let reader = Reader::start(vec![input], Settings { batch_bytes: 1 << 12, ..settings }, 1, true).unwrap();
        let lengths: Vec<usize> = reader.map(|batch| batch.unwrap().len()).collect();
        std::fs::remove_file(path).unwrap();
        lengths
    };
    let skipping = Settings { skip_damaged: true, ..settings() };
    for lengths in [
        batches(&b"\n".repeat(99_999), "blank.txt", Settings { separator: Some("\n".into()), ..settings() }),
        batches(&b"{\"text\": \"\"}\n".repeat(100_000), "empty.jsonl", settings()),
        batches(&b"damaged\n".repeat(100_000), "damaged.jsonl", skipping),
    ] {
        assert_eq!(lengths.iter().sum::<usize>(), 100_000);
        assert!(lengths.iter().all(|&length| length <= (1 << 12) / 8), "{lengths:?}");
    }
}

#[test]
fn zeros_after_a_gzip_member_are_padding() {
    let member = |text: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let read = |content: Vec<u8>| documents(&content, "padded.txt.gz", settings(), filter());
    let (a, b, zeros) = (member(b"one"), member(b"two"), vec![0; 3_000_000]);
    assert_eq!(read([&a[..], &b].concat()).unwrap(), ["onetwo"]);
    assert_eq!(read([&a[..], &zeros, &b, &zeros[..9]].concat()).unwrap(), ["onetwo"]);
    for rest in [&b"x"[..], &b[..9]] {
        assert!(read([&a[..], &zeros[..5], rest].concat()).unwrap_err().contains("cannot be read to its end"));
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
