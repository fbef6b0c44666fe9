use std::io::Write;
use std::sync::Arc;

use super::feed::Feed;
use super::input::Input;
use super::reader::Reader;
use super::settings::{Format, Settings};
use crate::text::batch::Batch;

pub fn settings() -> Settings {
    Settings {
        field: "text".into(),
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

/// Writes a file and opens it.
fn opened(content: &[u8], name: &str, settings: Settings) -> Reader {
    let path = std::env::temp_dir().join(format!("superbpe-{}-{name}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    let format = if name.contains("jsonl") { Format::JsonLines } else { Format::Text };
    Reader::start(vec![Input { path, format, feed: None }], settings, 1, true).unwrap()
}

fn texts(batch: &Batch) -> Vec<String> {
    batch.documents().into_iter().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect()
}

fn documents(content: &[u8], name: &str, settings: Settings) -> Result<Vec<String>, String> {
    let batches: Result<Vec<Batch>, String> = opened(content, name, settings).collect();
    Ok(batches?.iter().flat_map(texts).filter(|text| !text.is_empty()).collect())
}

#[test]
fn batches_come_in_the_order_of_the_files_or_at_least_all() {
    let folder = std::env::temp_dir().join(format!("superbpe-{}-order", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let names: Vec<usize> = (0..40).collect();
    let document = |file: &usize, i: usize| format!("{file} {}", "x".repeat(i % 700));
    let expected: Vec<String> =
        names.iter().flat_map(|file| (0..50 * (file % 5)).map(|i| document(file, i)).collect::<Vec<_>>()).collect();
    let files = || {
        names.iter().map(|file| {
            let path = folder.join(format!("{file}.txt"));
            let text: Vec<String> = (0..50 * (file % 5)).map(|i| document(file, i)).collect();
            std::fs::write(&path, text.join("|")).unwrap();
            Input { path, format: Format::Text, feed: Some(Arc::new(Feed::default())) }
        })
    };
    for threads in [1, 2, 5] {
        for in_order in [true, false] {
            // Files without a size are read one at a time.
            let inputs: Vec<Input> = files().collect();
            let feeds: Vec<_> = inputs.iter().map(|file| (file.path.clone(), file.feed.clone().unwrap())).collect();
            let writers: Vec<_> = feeds
                .into_iter()
                .map(|(path, feed)| {
                    std::thread::spawn(move || {
                        feed.put(std::fs::read(path).unwrap());
                        feed.end(None);
                    })
                })
                .collect();
            let settings = Settings { separator: Some("|".into()), batch_bytes: 1 << 10, ..settings() };
            let reader = Reader::start(inputs, settings, threads, in_order).unwrap();
            let mut found: Vec<String> = reader.flat_map(|batch| texts(&batch.unwrap())).collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            let mut expected = expected.clone();
            found.retain(|text| !text.is_empty());
            if !in_order {
                found.sort();
                expected.sort();
            }
            assert_eq!(found, expected, "{threads} {in_order}");
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_error_comes_in_its_turn_and_ends_all() {
    let feeds: Vec<Arc<Feed>> = (0..4).map(|_| Arc::default()).collect();
    let input = |i: usize| Input {
        path: format!("{i}.jsonl").into(),
        format: Format::JsonLines,
        feed: Some(Arc::clone(&feeds[i])),
    };
    let mut reader = Reader::start((0..4).map(input).collect(), settings(), 4, true).unwrap();
    feeds[1].end(Some("the network is down".into()));
    feeds[2].end(None);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(feeds[0].put(b"{\"text\": \"one\"}\n".to_vec()));
    feeds[0].end(None);
    assert_eq!(texts(&reader.next().unwrap().unwrap()), ["one"]);
    assert_eq!(reader.next(), Some(Err("1.jsonl: the network is down".into())));
    assert_eq!(reader.next(), None);
    feeds.iter().for_each(|feed| feed.close());
    assert!(!feeds[3].put(vec![1]));
}

#[test]
fn json_lines_along_a_path_with_a_score() {
    let content = br#"{"a": {"text": "one\u00e9"}, "m": {"score": 3}, "x": [1, {"text": 2}]}

{"m": {"score": 2.5}, "a": {"text": "two"}}
{"m": {}, "a": {"text": "three"}}
{"m": {"score": 4}, "a": {"text": null}}
"#;
    let mut s = settings();
    s.field = "a.text".into();
    s.score_field = Some("m.score".into());
    s.min_score = 2.75;
    assert_eq!(documents(content, "path.jsonl", s).unwrap(), ["oneé"]);
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
    let content = b"{\"text\": \"one\"}\ndamaged\n{\"text\": \"two\"}\n";
    let mut reader = opened(content, "skipped.jsonl", Settings { skip_damaged: true, ..settings() });
    let lengths: Vec<usize> = reader.by_ref().flat_map(|batch| texts(&batch.unwrap())).map(|text| text.len()).collect();
    assert_eq!(lengths, [3, 0, 3]);
    let skipped = reader.skipped().values().next().unwrap();
    assert!(skipped.count == 1 && skipped.places[0].starts_with("line 2: not a JSON object"));
}

#[test]
fn errors_name_line_and_remedy() {
    let wrong = documents(b"{\"text\": \"a\"}\n{\"body\": \"b\", \"n\": 1}\n", "field.jsonl", settings());
    let message = wrong.unwrap_err();
    assert!(message.contains("line 2") && message.contains("body, n"), "{message}");
    let broken = documents(b"{\"text\": \"a\xff\"}\n", "utf8.jsonl", settings()).unwrap_err();
    assert!(broken.contains("line 1") && broken.contains("byte 1"), "{broken}");
    let surrogate = documents(b"{\"text\": \"a\\ud800\"}\n", "lone.jsonl", settings());
    assert!(surrogate.is_err());
    let mut lossy = settings();
    lossy.replace_invalid = true;
    let mended = documents(b"{\"text\": \"a\xff\"}\n", "lossy.jsonl", lossy).unwrap();
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
        assert_eq!(documents(separated.as_bytes(), "skip-separated.txt", s()).unwrap(), ["one", "two", "three"]);
        assert!(documents(long.as_bytes(), "skip-whole.txt", with(None, 1000, Some(most))).unwrap().is_empty());
        let s = Settings { limit: 1 << 30, ..s() };
        assert_eq!(documents(lines.as_bytes(), "skip.jsonl", s).unwrap(), ["one", "two", "three"]);
    }
    assert_eq!(
        documents(separated.as_bytes(), "fits-separated.txt", with(Some("|"), long.len(), None)).unwrap().len(),
        6
    );
    for limit in [2, 20, 2_000_000, 2_999_999] {
        let s = |separator| with(separator, limit, None);
        for (content, name, s) in [
            (&separated, "error-separated.txt", s(Some("|"))),
            (&long, "error-whole.txt", s(None)),
            (&lines, "error-lines.jsonl", s(None)),
        ] {
            let error = documents(content.as_bytes(), name, s).unwrap_err();
            for part in [name, &format!("more than document_limit_bytes={limit} bytes"), "max_document_bytes="] {
                assert!(error.contains(part), "{error}");
            }
            assert_eq!(name.contains("jsonl"), error.contains(if limit < 15 { "line 1" } else { "line 3" }), "{error}");
        }
    }
    assert_eq!(documents(b"", "empty.txt", with(None, 0, None)).unwrap(), [""; 0]);
}

#[test]
fn malformed_bytes_count_as_what_they_are_read_as() {
    let s = |limit| Settings { limit, replace_invalid: true, ..settings() };
    assert_eq!(documents(b"a\xff\xffb", "mended.txt", s(8)).unwrap(), ["a\u{fffd}\u{fffd}b"]);
    let error = documents(b"a\xff\xffb", "mended.txt", s(7)).unwrap_err();
    assert!(error.contains("more than document_limit_bytes=7 bytes"), "{error}");
}

#[test]
fn parts_of_a_document_may_be_longer_together() {
    let text = "word ".repeat(600_000);
    let parts = |limit| Settings { parts: true, limit, ..settings() };
    assert_eq!(documents(text.as_bytes(), "parts.txt", parts(100)).unwrap().concat(), text);
    let one = "x".repeat(3_000_000);
    let error = documents(one.as_bytes(), "one.txt", parts(2_000_000)).unwrap_err();
    assert!(error.contains("without the end of a word") && error.contains("document_limit_bytes"), "{error}");
    assert_eq!(documents(one.as_bytes(), "one.txt", parts(3_000_000)).unwrap(), [one]);
}

#[test]
fn errors_show_little_of_a_long_line() {
    let long = "x".repeat(1_000_000);
    let nested = Settings { field: "a.text".into(), ..settings() };
    let scored = Settings { score_field: Some("n".into()), ..settings() };
    for (line, s) in [
        (format!(r#"{{"{long}": 1}}"#), settings()),
        (format!(r#"{{"a": "{long}"}}"#), nested),
        (format!(r#"{{"text": "", "n": "{long}"}}"#), scored),
        (format!(r#"{{"text": "{long}\q"}}"#), settings()),
        (long.clone(), settings()),
        ((0..100_000).fold("{\"b\": 1".to_string(), |line, i| line + &format!(", \"{i}\": []")) + "}", settings()),
    ] {
        let error = documents(line.as_bytes(), "shown.jsonl", s).unwrap_err();
        assert!(error.contains("line 1") && error.len() < 2000, "{} {}", error.len(), &error[..200]);
    }
}

#[test]
fn empty_documents_fill_a_batch() {
    let batches = |content: &[u8], name: &str, settings: Settings| -> Vec<usize> {
        let reader = opened(content, name, Settings { batch_bytes: 1 << 12, ..settings });
        reader.map(|batch| batch.unwrap().len()).collect()
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
    let read = |content: Vec<u8>| documents(&content, "padded.txt.gz", settings());
    let (a, b, zeros) = (member(b"one"), member(b"two"), vec![0; 3_000_000]);
    assert_eq!(read([&a[..], &b].concat()).unwrap(), ["onetwo"]);
    assert_eq!(read([&a[..], &zeros, &b, &zeros[..9]].concat()).unwrap(), ["onetwo"]);
    for rest in [&b"x"[..], &b[..9]] {
        assert!(read([&a[..], &zeros[..5], rest].concat()).unwrap_err().contains("cannot be read to its end"));
    }
}

#[test]
fn text_with_a_separator() {
    let s = Settings { separator: Some("<|end|>".into()), ..settings() };
    let content = "one<|end|>two<|end|><|end|>three".as_bytes();
    assert_eq!(documents(content, "a.txt", s).unwrap(), ["one", "two", "three"]);
}
