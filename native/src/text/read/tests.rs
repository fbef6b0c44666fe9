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
