//! Fast path for the vocabulary and merges of well-formed tokenizer.json files, without an object per string.
//!
//! Anything else falls back to the Python reader, which reports the error.

use std::borrow::Cow;
use std::fmt;

use rustc_hash::FxHashMap;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::vocabulary::MOST_IDS;

/// The model of a tokenizer.json.
#[derive(Debug, Default, PartialEq)]
pub struct HfModel {
    /// The file with an empty vocabulary and no merges.
    pub rest: String,
    /// Number of tokens in the vocabulary.
    pub n_tokens: usize,
    /// Added tokens that are in the vocabulary, with their ids there.
    pub added: Vec<(String, u32)>,
    /// Ids of the bytes; -1 for a byte without id.
    pub byte_ids: Vec<i64>,
    /// (left, right, product) ids by rank, flat.
    pub merges: Vec<u32>,
    /// Whether merges are strings with a space, not pairs.
    pub as_strings: bool,
    /// Tokens that are neither added tokens nor bytes and that no merge makes.
    pub unmerged: Vec<(Vec<u8>, u32)>,
}

/// A string, borrowed from the file unless it has escapes.
#[derive(PartialEq, Eq, Hash)]
struct Text<'t>(Cow<'t, str>);

struct TextVisitor;

impl<'t> Visitor<'t> for TextVisitor {
    type Value = Text<'t>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'t str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_string())))
    }
}

impl<'t> Deserialize<'t> for Text<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

/// One entry of the list of merges.
enum Merge<'t> {
    Pair(Text<'t>, Text<'t>),
    Joined(Text<'t>),
}

struct MergeVisitor;

impl<'t> Visitor<'t> for MergeVisitor {
    type Value = Merge<'t>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a merge")
    }

    fn visit_borrowed_str<E>(self, text: &'t str) -> Result<Self::Value, E> {
        Ok(Merge::Joined(Text(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Merge::Joined(Text(Cow::Owned(text.to_string()))))
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        match (parts.next_element()?, parts.next_element()?, parts.next_element::<Text>()?) {
            (Some(left), Some(right), None) => Ok(Merge::Pair(left, right)),
            _ => Err(A::Error::custom("a merge has two parts")),
        }
    }
}

impl<'t> Deserialize<'t> for Merge<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor)
    }
}

/// The entries of an object, in order.
struct Entries<'t, V>(Vec<(Text<'t>, V)>);

struct EntriesVisitor<V>(std::marker::PhantomData<V>);

impl<'t, V: Deserialize<'t>> Visitor<'t> for EntriesVisitor<V> {
    type Value = Entries<'t, V>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

impl<'t, V: Deserialize<'t>> Deserialize<'t> for Entries<'t, V> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(std::marker::PhantomData))
    }
}

/// The file or its model: the raw values of other keys, and the parsed parts.
#[derive(Default)]
struct Parts<'t> {
    written: Vec<(Text<'t>, &'t RawValue)>,
    vocab: Option<Vec<(Text<'t>, u32)>>,
    merges: Option<Vec<Merge<'t>>>,
    model: Option<Box<Parts<'t>>>,
}

/// Parses the file if `top`, otherwise the model.
struct PartsSeed {
    top: bool,
}

impl<'t> DeserializeSeed<'t> for PartsSeed {
    type Value = Parts<'t>;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'t> Visitor<'t> for PartsSeed {
    type Value = Parts<'t>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut parts = Parts::default();
        while let Some(key) = map.next_key::<Text>()? {
            let again = match (self.top, &*key.0) {
                (true, "model") => {
                    let model = map.next_value_seed(Self { top: false })?;
                    parts.model.replace(Box::new(model)).is_some()
                }
                (false, "vocab") => parts.vocab.replace(map.next_value::<Entries<u32>>()?.0).is_some(),
                (false, "merges") => parts.merges.replace(map.next_value()?).is_some(),
                _ => {
                    let value = map.next_value()?;
                    let again = parts.written.iter().any(|entry| entry.0 == key);
                    parts.written.push((key, value));
                    again
                }
            };
            if again {
                return Err(A::Error::custom("a key is repeated"));
            }
        }
        Ok(parts)
    }
}

/// The byte for each character of GPT-2's alphabet.
fn alphabet() -> FxHashMap<char, u8> {
    let printable = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let others = (0..=255u8).filter(|byte| !printable(byte)).zip(256u32..);
    let others = others.map(|(byte, code_point)| (char::from_u32(code_point).expect("a character"), byte));
    (0..=255u8).filter(printable).map(|byte| (byte as char, byte)).chain(others).collect()
}

fn quoted(key: &str) -> Option<String> {
    serde_json::to_string(key).ok()
}

/// Parses the file; None if it is malformed or has another kind of model.
pub fn read(text: &[u8]) -> Option<HfModel> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let file = PartsSeed { top: true }.deserialize(&mut json).ok()?;
    json.end().ok()?;
    let model = *file.model?;
    let (vocab, merges) = (model.vocab?, model.merges?);
    let n_tokens = vocab.len();
    let mut taken = vec![false; vocab.iter().map(|entry| entry.1 as usize + 1).max().unwrap_or(0).min(MOST_IDS)];
    let mut ids: FxHashMap<&str, u32> = FxHashMap::with_capacity_and_hasher(n_tokens, Default::default());
    for (name, id) in &vocab {
        let free = taken.get_mut(*id as usize)?;
        if std::mem::replace(free, true) || ids.insert(&name.0, *id).is_some() {
            return None;
        }
    }
    let mut found = HfModel { n_tokens, byte_ids: vec![-1; 256], ..HfModel::default() };
    if let Some((_, listed)) = file.written.iter().find(|entry| &*entry.0 .0 == "added_tokens") {
        for token in serde_json::from_str::<Option<Vec<Entries<&RawValue>>>>(listed.get()).ok()?.unwrap_or_default() {
            let content = token.0.iter().find(|entry| &*entry.0 .0 == "content")?;
            let string: String = serde_json::from_str(content.1.get()).ok()?;
            if let Some(id) = ids.remove(string.as_str()) {
                found.added.push((string, id)); // not used by merges, and not spelled in the alphabet
            }
        }
    }
    let mut made = vec![false; taken.len()];
    let mut product = String::new();
    found.as_strings = matches!(merges.first(), Some(Merge::Joined(_)));
    found.merges.reserve(3 * merges.len());
    for merge in &merges {
        let (left, right) = match merge {
            Merge::Pair(left, right) if !found.as_strings => (&*left.0, &*right.0),
            Merge::Joined(text) if found.as_strings => {
                text.0.split_once(' ').filter(|(_, right)| !right.contains(' '))?
            }
            _ => return None,
        };
        product.clear();
        product.push_str(left);
        product.push_str(right);
        let triple = [*ids.get(left)?, *ids.get(right)?, *ids.get(product.as_str())?];
        found.merges.extend(triple);
        made[triple[2] as usize] = true;
    }
    let alphabet = alphabet();
    for (name, id) in &vocab {
        if !ids.contains_key(&*name.0) {
            continue;
        }
        let mut characters = name.0.chars();
        let first = *alphabet.get(&characters.next()?)?;
        if characters.as_str().is_empty() {
            found.byte_ids[first as usize] = i64::from(*id);
        } else if made[*id as usize] {
            // Its parts are tokens: in the alphabet, or rejected here.
        } else {
            let token: Option<Vec<u8>> = name.0.chars().map(|c| alphabet.get(&c).copied()).collect();
            found.unmerged.push((token?, *id));
        }
    }
    let mut model_parts = Vec::new();
    for (key, value) in &model.written {
        model_parts.push(format!("{}: {}", quoted(&key.0)?, value.get()));
    }
    model_parts.extend(["\"vocab\": {}".to_string(), "\"merges\": []".to_string()]);
    let mut parts = vec![format!("\"model\": {{{}}}", model_parts.join(", "))];
    for (key, value) in &file.written {
        parts.push(format!("{}: {}", quoted(&key.0)?, value.get()));
    }
    found.rest = format!("{{{}}}", parts.join(", "));
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"version": "1.0", "added_tokens": [{"id": 3, "content": "<s>"}, {"content": "x\"", "id": 9}],
        "model": {"type": "BPE", "vocab": {"a": 0, "Ġ": 1, "aĠ": 2, "<s>": 3, "\u0061a": 4}, "merges": ["a Ġ"]}}"#;

    #[test]
    fn a_small_file() {
        let found = read(FILE.as_bytes()).unwrap();
        assert_eq!((found.n_tokens, found.as_strings), (5, true));
        assert_eq!(found.merges, [0, 1, 2]);
        assert_eq!(found.added, [("<s>".to_string(), 3)]);
        assert_eq!((found.byte_ids[97], found.byte_ids[32], found.byte_ids[98]), (0, 1, -1));
        assert_eq!(found.unmerged, [(b"aa".to_vec(), 4)]);
        let rest: serde_json::Value = serde_json::from_str(&found.rest).unwrap();
        assert_eq!(rest["model"]["type"], "BPE");
        assert_eq!(rest["added_tokens"][1]["content"], "x\"");
        let pairs = FILE.replace(r#"["a Ġ"]"#, r#"[["a", "Ġ"]]"#);
        let again = read(pairs.as_bytes()).unwrap();
        assert_eq!((again.as_strings, again.merges), (false, found.merges));
    }

    #[test]
    fn what_is_not_as_it_should_be_is_left_to_others() {
        for (old, new) in [
            ("\"a Ġ\"", "\"a b\""),
            ("\"a Ġ\"", "\"a Ġ \""),
            ("\"a Ġ\"", "[\"a\", \"Ġ\", \"a\"]"),
            ("\"a Ġ\"", "\"a Ġ\", [\"a\", \"Ġ\"]"),
            ("\"a\": 0", "\"a\": 1"),
            ("\"a\": 0", "\"a\": -1"),
            ("\"a\": 0", "\"a\": 0.5"),
            ("\"a\": 0", "\"a\": 99999999"),
            ("\"a\": 0", "\"a\": 0, \"a\": 7"),
            ("\"a\": 0", "\"a\": 0, \"日\": 7"),
            ("\"a\": 0", "\"a\": 0, \"\": 7"),
            ("\"type\": \"BPE\"", "\"type\": \"BPE\", \"type\": \"BPE\""),
            ("\"version\": \"1.0\"", "\"version\": \"\u{0}\""),
            ("\"content\": \"<s>\"", "\"content\": 3"),
            ("\"vocab\"", "\"words\""),
        ] {
            assert!(FILE.contains(old));
            assert_eq!(read(FILE.replacen(old, new, 1).as_bytes()), None, "{new}");
        }
        assert_eq!(read(&FILE.as_bytes()[1..]), None);
        assert_eq!(read(b"\xff"), None);
    }
}
