//! Unicode normalisation, identical to HF `tokenizers`: by the same crate, hence with its tables (Unicode 9.0).
//!
//! Most text is normalised already. The text is searched for characters that are not *plain*: a plain character stays
//! as it is, and it does not interact with anything before it. So normalisation never extends over the position before
//! a plain character, and only the stretches around other characters need processing.

use std::borrow::Cow;
use std::sync::OnceLock;

use unicode_normalization_alignments::{char, UnicodeNormalization};
use unicode_normalization_alignments::{is_nfc_quick, is_nfd_quick, is_nfkc_quick, is_nfkd_quick, IsNormalized};

use super::utf8::{decode, is_start};
use crate::runtime::interrupt::poll;

/// A normalisation form of the Unicode standard (annex 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

const FORMS: [(&str, Form); 4] = [("NFC", Form::Nfc), ("NFD", Form::Nfd), ("NFKC", Form::Nfkc), ("NFKD", Form::Nfkd)];

/// Bytes between two calls of `poll`.
const BLOCK: usize = 1 << 14;

/// A bit for each code point.
struct Plain(Vec<u64>);

impl Plain {
    fn of(form: Form) -> Self {
        let mut bits = vec![0; 0x11_0000 / 64];
        for c in (0..0x11_0000).filter_map(std::char::from_u32) {
            if char::canonical_combining_class(c) == 0 && form.is_surely(std::iter::once(c)) {
                bits[c as usize / 64] |= 1 << (c as usize % 64);
            }
        }
        Self(bits)
    }

    fn has(&self, code_point: u32) -> bool {
        self.0[code_point as usize / 64] >> (code_point % 64) & 1 != 0
    }

    /// The first position at or after `at` of a character that is plain (or is not); or the end.
    fn find(&self, text: &[u8], mut at: usize, plain: bool) -> usize {
        while at < text.len() {
            if text[at] < 128 {
                if plain {
                    return at;
                }
                let stop = text.len().min(at + BLOCK);
                poll(stop - at);
                while let Some(eight) = text[..stop].get(at..at + 8) {
                    if u64::from_ne_bytes(eight.try_into().expect("eight")) & 0x8080_8080_8080_8080 != 0 {
                        break;
                    }
                    at += 8;
                }
                at += text[at..stop].iter().take_while(|&&byte| byte < 128).count();
                continue;
            }
            let (code_point, length) = decode(text, at);
            if self.has(code_point) == plain {
                return at;
            }
            poll(length);
            at += length;
        }
        at
    }
}

impl Form {
    /// By the name in tokenizer.json. Makes the form's table, too: the binding holds the GIL here, so that no other thread
    /// of Python can fork meanwhile and leave the lock held in the child.
    pub fn named(name: &str) -> Result<Self, String> {
        let found = FORMS.iter().find(|form| form.0 == name).map(|form| form.1);
        found
            .inspect(|form| _ = form.plain())
            .ok_or_else(|| format!("unknown normalizer {name:?}; supported are NFC, NFD, NFKC, NFKD"))
    }

    fn plain(self) -> &'static Plain {
        static PLAIN: [OnceLock<Plain>; 4] = [const { OnceLock::new() }; 4];
        PLAIN[self as usize].get_or_init(|| Plain::of(self))
    }

    /// The characters of the normalised text with their changes: 1 for an added character, -n if n more characters
    /// after its own were merged into it.
    fn changes(self, text: &str) -> Box<dyn Iterator<Item = (char, isize)> + '_> {
        match self {
            Self::Nfc => Box::new(text.nfc()),
            Self::Nfd => Box::new(text.nfd()),
            Self::Nfkc => Box::new(text.nfkc()),
            Self::Nfkd => Box::new(text.nfkd()),
        }
    }

    /// Whether a quick check proves that the text is normalised. It may be so even if this is false.
    fn is_surely(self, text: impl Iterator<Item = char>) -> bool {
        let quick = match self {
            Self::Nfc => is_nfc_quick(text),
            Self::Nfd => is_nfd_quick(text),
            Self::Nfkc => is_nfkc_quick(text),
            Self::Nfkd => is_nfkd_quick(text),
        };
        matches!(quick, IsNormalized::Yes)
    }

    /// The normalised text; borrowed if it is unchanged.
    fn apply(self, text: &[u8]) -> Cow<'_, [u8]> {
        let plain = self.plain();
        let mut out = Vec::new();
        let (mut copied, mut end) = (0, 0);
        loop {
            let other = plain.find(text, end, false);
            if other == text.len() {
                break;
            }
            let before = text[..other].iter().rev().take_while(|&&byte| !is_start(byte)).count() + 1;
            let start = other.saturating_sub(before);
            end = plain.find(text, other, true);
            let stretch = characters(&text[start..end]);
            if self.is_surely(stretch.chars()) {
                continue;
            }
            let normal: String = self.changes(stretch).map(|change| change.0).inspect(|_| poll(1)).collect();
            if normal != stretch {
                out.extend_from_slice(&text[copied..start]);
                out.extend_from_slice(normal.as_bytes());
                copied = end;
            }
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        out.extend_from_slice(&text[copied..]);
        Cow::Owned(out)
    }
}

fn characters(text: &[u8]) -> &str {
    std::str::from_utf8(text).expect("documents are UTF-8, and cut between characters")
}

/// The text after all forms in turn; borrowed if that changes nothing.
pub fn normalized<'t>(forms: &[Form], text: &'t [u8]) -> Cow<'t, [u8]> {
    match in_turn(forms, text) {
        Cow::Owned(made) if made == text => Cow::Borrowed(text), // one form reverted another
        made => made,
    }
}

/// `normalized`, but owned if a form changed something that a later one reverted.
fn in_turn<'t>(forms: &[Form], text: &'t [u8]) -> Cow<'t, [u8]> {
    forms.iter().fold(Cow::Borrowed(text), |text, form| match text {
        Cow::Borrowed(text) => form.apply(text),
        Cow::Owned(text) => Cow::Owned(form.apply(&text).into_owned()),
    })
}

/// The last position up to which a text can be normalised without knowing what follows; 0 if there is none.
pub fn certain_end(forms: &[Form], text: &[u8]) -> usize {
    let plain: Vec<&Plain> = forms.iter().map(|form| form.plain()).collect();
    let is_end = |&at: &usize| is_start(text[at]) && plain.iter().all(|plain| plain.has(decode(text, at).0));
    (0..text.len()).rev().find(is_end).unwrap_or(0)
}

/// The normalised text, and for each of its bytes the range of the original character according to HF (the first, if
/// several were merged). None if nothing changed.
#[allow(clippy::type_complexity)]
pub fn aligned<'t>(forms: &[Form], text: &'t [u8]) -> (Cow<'t, [u8]>, Option<Vec<(usize, usize)>>) {
    if let Cow::Borrowed(text) = in_turn(forms, text) {
        return (Cow::Borrowed(text), None);
    }
    let mut normal = String::from_utf8(text.to_vec()).expect("documents are UTF-8");
    let whole = |(at, c): (usize, char)| std::iter::repeat_n((at, at + c.len_utf8()), c.len_utf8());
    let mut from: Vec<(usize, usize)> = Vec::with_capacity(normal.len());
    from.extend(normal.char_indices().flat_map(whole));
    for form in forms {
        let (mut made, mut made_from) = (String::new(), Vec::new());
        let mut used = 0usize; // bytes of `normal`
        let mut left = normal.chars();
        for (c, change) in form.changes(&normal) {
            poll(1);
            let place = if change > 0 { used.checked_sub(1) } else { Some(used) };
            let origin = place.and_then(|at| from.get(at).copied()).unwrap_or((0, 0));
            let replaced = usize::try_from(1 - change).unwrap_or(0);
            used += left.by_ref().take(replaced).map(char::len_utf8).sum::<usize>();
            made_from.extend(std::iter::repeat_n(origin, c.len_utf8()));
            made.push(c);
        }
        (normal, from) = (made, made_from);
    }
    (Cow::Owned(normal.into_bytes()), Some(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::random::Random;

    fn at_once(forms: &[Form], text: &str) -> String {
        forms.iter().fold(text.to_string(), |text, form| form.changes(&text).map(|change| change.0).collect())
    }

    const CHARACTERS: &str = "aeK >éếﬁ①Å\u{212b}\u{301}\u{302}\u{323}\u{338}\u{344}각가\u{1100}\u{1161}\u{11a8}क\u{93c}\u{94d}\u{958}\u{f73}\u{f71}\u{f72}中\u{f900}🙂\u{1d15e}\u{9be}\u{9c7}\u{fdfa}\u{1e9b}";

    #[test]
    fn stretches_give_the_form_of_the_whole() {
        let mut random = Random(11);
        let letters: Vec<char> = CHARACTERS.chars().collect();
        let sequences: [&[Form]; 6] =
            [&[Form::Nfc], &[Form::Nfd], &[Form::Nfkc], &[Form::Nfkd], &[Form::Nfd, Form::Nfkc], &[]];
        for case in 0..60_000 {
            let forms = sequences[case % sequences.len()];
            let text: String = (0..random.below(12)).map(|_| letters[random.below(letters.len())]).collect();
            let expected = at_once(forms, &text);
            let normal = normalized(forms, text.as_bytes());
            assert_eq!(characters(&normal), expected, "{forms:?} of {text:?}");
            assert_eq!(matches!(normal, Cow::Borrowed(_)), expected == text, "{forms:?} of {text:?}");
            let (again, from) = aligned(forms, text.as_bytes());
            assert_eq!(characters(&again), expected);
            assert!(from.as_ref().is_none_or(|from| from.len() == expected.len()));
            assert!(from.is_some() || expected == text);
            let end = certain_end(forms, text.as_bytes());
            let parts = at_once(forms, &text[..end]) + &at_once(forms, &text[end..]);
            assert_eq!(parts, expected, "{forms:?} of {text:?} cut at {end}");
        }
    }
}
