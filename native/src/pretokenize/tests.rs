//! Windows, scalar scanners and regexes split every named pattern the same way on generated text.

use super::classes::{Classes, CLASSES};
use super::patterns::{Kind, DIGITS, NAMED};
use super::scanner::{named_pieces, Scanner};
use super::{bounded_regex::Regex, fence_scanners, scalar, spans_plus};
use crate::runtime::random::Random;
use crate::text::masks::Portable;
use crate::text::unit::Unit;

/// Every class of characters that the patterns distinguish, and the special cases.
#[rustfmt::skip]
pub const ALPHABET: &[&str] = &[
    "a", "b", "s", "S", "T", "e", "E", "l", "ll", "LL", "'", "'s", "'RE", "'ve", "'D", "’", "’s", "’LL", "ſ", "'ſ", "ﬆ",
    " ", "  ", "\n", "\r", "\r\n", "\t", "\u{b}", "\u{c}", "\u{1c}", "\u{a0}", "\u{85}", "\u{2028}", "\u{3000}",
    "1", "23", "456", "7890", "٣", "٤٥٦", "Ⅷ", "½", "²", ".", ",", "_", "%", "e5", "E-1", "+", "-", "1,234", "5.5%",
    "!", "/", ":", "(", "#", "*", "é", "É", "ǅ", "ʰ", "中", "の", "ก", "\u{301}", "\u{903}", "א", "\u{5b0}",
    "🦊", "👩\u{200d}💻", "👍🏽", "\u{1f3fd}", "🇩🇪", "🇩", "1\u{fe0f}\u{20e3}", "#\u{20e3}", "\u{20e3}", "☎\u{fe0f}", "❤",
    "🏴\u{e0067}\u{e0062}\u{e007f}", "🏴\u{e0067}", "\u{e007f}", "\u{200d}", "\u{fe0f}", "\u{200b}", "\u{feff}",
    "\u{fffd}", "\u{10ffff}", "\0", "\u{7f}", "?", "…", "؟", "।", "。", "？", ")", "\"", "”", "»", "」", "\n\n",
];

/// The same without characters that stop the windows, so that those cover long stretches.
pub const ASCII: &[&str] = &[
    "a", "b", "st", "S", "AB", "'", "'s", "'S", "'ll", "'t's", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t",
    "1", "23", "456", "78901", ".", "!", "!?", "/", "//", "\n/", "e", "the", "Xy",
];

/// Characters of two and three bytes of all cases, marks and punctuation, with a few of the others.
#[rustfmt::skip]
const WIDE: &[&str] = &[
    "é", "É", "ß", "б", "Ж", "ж", "א", "س", "中", "文", "の", "ー", "한", "ก", "\u{e34}", "न", "\u{94d}", "\u{301}", "ǅ", "ʰ",
    "ſ", "“", "”", "’", "—", "…", "«", "،", "。", "，", "€", "a", "b", "B", "AB", " ", " ", " ", "  ", "\n", "!", "(", "'s",
    "'", "1", "234", "\u{a0}", "\u{3000}", "٣", "½", "🦊", "\u{fffd}",
];

fn cut_with(text: &[u8], run: impl FnOnce(&mut dyn FnMut(usize, usize))) -> Vec<usize> {
    let mut ends = vec![0];
    run(&mut |start, end| {
        assert_eq!(start, *ends.last().unwrap());
        assert!(end > start);
        ends.push(end);
    });
    assert_eq!(*ends.last().unwrap(), text.len());
    ends
}

pub fn cut(scanner: &Scanner, text: &[u8]) -> Vec<usize> {
    cut_with(text, |piece| scanner.pieces(text, piece).unwrap())
}

/// Splits with the scalar scanner only.
pub fn scalar_cut(kind: Kind, text: &[u8]) -> Vec<usize> {
    let classes = &*CLASSES;
    let each = |next: &dyn Fn(&Classes, &[u8], usize) -> usize| {
        cut_with(text, |piece| {
            let mut at = 0;
            while at < text.len() {
                let end = next(classes, text, at);
                piece(at, end);
                at = end;
            }
        })
    };
    // A fence that is called at every position.
    let everywhere = |find: &dyn Fn(usize) -> Result<usize, usize>| {
        cut_with(text, |piece| fence_scanners::pieces(text, false, piece, |_, _| fence_scanners::UNKNOWN, find))
    };
    match kind {
        Kind::Gpt2 => each(&scalar::gpt2),
        Kind::Cl100k => each(&scalar::cl100k::<true, 3>),
        Kind::Llama3 => each(&scalar::cl100k::<false, 3>),
        Kind::Digits1 => each(&scalar::cl100k::<false, 1>),
        Kind::SpansPlus => each(&spans_plus::spans_plus),
        Kind::O200k => each(&scalar::o200k::<true>),
        Kind::Superbpe => each(&scalar::o200k::<false>),
        Kind::UwPaper => each(&scalar::uw_paper),
        Kind::Whitespace => each(&scalar::whitespace),
        Kind::Phrases => each(&scalar::phrases::<false>),
        Kind::PhrasesFence => each(&scalar::phrases::<true>),
        Kind::Uw2025Fence => everywhere(&|at| fence_scanners::uw_2025(classes, text, at)),
        Kind::UwPaperFence => everywhere(&|at| fence_scanners::uw_paper(classes, text, at)),
        Kind::PunctuationFence => everywhere(&|at| fence_scanners::punctuation(classes, text, at)),
        Kind::DigitsFence => everywhere(&|at| fence_scanners::digits(classes, text, at)),
        Kind::SentenceFence | Kind::Whole => cut(&Scanner::Named(kind), text), // no scalar scanner
    }
}

/// The pattern as a regex, without a hand-written scanner.
pub fn by_regex(pattern: &str) -> Scanner {
    let regex = |line: &str| Scanner::Regex(Box::new(Regex::new(line).unwrap()));
    match pattern.split('\n').collect::<Vec<_>>()[..] {
        [line] => regex(line),
        ref lines => Scanner::Sequence(lines.iter().map(|line| regex(line)).collect()),
    }
}

fn generated(random: &mut Random, alphabet: &[&str], most: usize) -> String {
    let length = 1 + random.below(most);
    (0..length).map(|_| random.of(alphabet)).collect()
}

#[track_caller]
fn assert_alike(name: &str, text: &str, found: Vec<usize>, expected: Vec<usize>) {
    if found != expected {
        let show = |ends: &[usize]| ends.windows(2).map(|e| text[e[0]..e[1]].to_string()).collect::<Vec<_>>();
        panic!("{name} on {text:?}:\n{:?}\n{:?}", show(&found), show(&expected));
    }
}

/// All triples of the characters that matter at ends of sentences, and positions at the ends of blocks.
#[test]
fn sentences_end_like_their_regex() {
    let marks = [".", "!", "?", "…", "؟", "۔", "。", "！", "？", "｡", "।", "॥", "။", "።", "។"];
    let closing = ["\"", "'", ")", "]", "”", "’", "»", "」", "』", "）"];
    let others = [" ", "\n", "\t", "\u{3000}", "\u{2029}", "a", "1", "é", "€", "中", "؞", "ۓ", "、", "＂", "ၐ"];
    let all = [&marks[..], &closing, &others].concat();
    let (_, pattern, kind) = NAMED.iter().find(|(name, _, _)| *name == "sentence-fence").unwrap();
    let slow = by_regex(pattern);
    for first in &all {
        for second in &all {
            let texts = all.iter().map(|third| format!("{first}{second}{third}"));
            let text = texts.collect::<Vec<_>>().join("ab");
            let expected = cut(&slow, text.as_bytes());
            assert_alike("sentence-fence", &text, cut(&Scanner::Named(*kind), text.as_bytes()), expected);
        }
        for letters in 55..70 {
            for second in &others[..6] {
                let text = "x".repeat(letters) + first + second + "yz" + first + "”" + second;
                let expected = cut(&slow, text.as_bytes());
                assert_alike("sentence-fence", &text, cut(&Scanner::Named(*kind), text.as_bytes()), expected);
            }
        }
    }
}

#[test]
fn windows_cut_like_scalar_scanners() {
    let mut random = Random(11);
    for (name, _, kind) in NAMED {
        for i in 0..20_000 {
            let text = match i % 5 {
                0 => generated(&mut random, ASCII, 200),
                1 => generated(&mut random, &ASCII[..16], 200),
                2 => generated(&mut random, WIDE, 120),
                3 => generated(&mut random, &WIDE[..44], 120),
                // Long ASCII with a rare character of another kind.
                _ => (0..6).map(|_| generated(&mut random, ASCII, 40) + random.of(ALPHABET)).collect(),
            };
            let expected = scalar_cut(*kind, text.as_bytes());
            assert_alike(name, &text, cut(&Scanner::Named(*kind), text.as_bytes()), expected.clone());
            let portable = cut_with(text.as_bytes(), |piece| named_pieces::<Portable>(*kind, text.as_bytes(), piece));
            assert_alike(name, &text, portable, expected);
            let (mut line_start, mut expected) = (0, vec![0]);
            for line in text.split_inclusive('\n') {
                let ends = &scalar_cut(*kind, line.as_bytes())[1..];
                expected.extend(ends.iter().map(|end| line_start + end));
                line_start += line.len();
            }
            let scanner = Scanner::Named(*kind);
            let by_line = |piece: &mut dyn FnMut(usize, usize)| {
                scanner.pieces_of(Unit::Line, text.as_bytes(), piece).unwrap();
            };
            assert_alike(name, &text, cut_with(text.as_bytes(), by_line), expected);
        }
    }
}

/// Difficult cases at every position of a window and across its end, in every kind of text.
#[test]
fn windows_cut_like_scalar_scanners_at_every_offset() {
    #[rustfmt::skip]
    let hard = [
        "'s", "'ll", "'LL's", "'t't't", "'ſa", "’s", "'", "''", " 's", "\n", "\r\n", "\n\n", " \n", "\n ", "\n \n",
        "  \n  a", "!\n", "!\n\n ", "!\n \n ", "!\n/", "/\n/\n/", "!\r\n/!", " ", "  ", "          ", "\t", "\t\t ",
        "\u{a0}", " \u{2028} ", "1", "12", "1234", "1234567890123", "1,234", "1.5%", "1e-5", "12\u{fe0f}\u{20e3}",
        " 1\u{20e3}", "#\u{20e3}", "٣", "½", "é", "É", "中", "🦊", "aB", "ABa", "\u{301}", "!", "!!", " !", "?!a",
        "\t!", "\0",
    ];
    for (name, _, kind) in NAMED {
        for hard in hard {
            for before in ["x", " ", "!", "1", "\n", "ab "] {
                for offset in 0..=130 {
                    let text: String = before.chars().cycle().take(offset).chain(hard.chars()).collect();
                    for text in [text.clone() + &"words and ".repeat(8), text + &before.repeat(70)] {
                        let expected = scalar_cut(*kind, text.as_bytes());
                        assert_alike(name, &text, cut(&Scanner::Named(*kind), text.as_bytes()), expected);
                    }
                }
            }
        }
    }
}

#[test]
fn digits_are_cut_like_their_regex() {
    let mut random = Random(15);
    let pattern = format!("{DIGITS}+");
    let (fast, slow) = (Scanner::new(&pattern).unwrap(), by_regex(&pattern));
    let rare = [ALPHABET, &["\u{11DE0}", "\u{16FF5}", "\u{11DEA}", "\u{16FF3}"]].concat();
    for i in 0..20_000 {
        let text: String = match i % 2 {
            0 => generated(&mut random, ASCII, 200),
            _ => (0..6).map(|_| generated(&mut random, ASCII, 40) + random.of(&rare)).collect(),
        };
        assert_alike("digits-fence", &text, cut(&fast, text.as_bytes()), cut(&slow, text.as_bytes()));
        let scalar = scalar_cut(Kind::DigitsFence, text.as_bytes());
        assert_alike("digits-fence", &text, cut(&fast, text.as_bytes()), scalar);
    }
}

#[test]
fn long_runs_are_cut_in_linear_time() {
    for (_, _, kind) in NAMED {
        #[rustfmt::skip]
        let units = [
            "a", " ", "\n", "1", "!", "'", "'s", "٣", "½1", "🦊", "\u{200d}", "🏴\u{e0067}", " \n", "\u{301}",
            "1,234,",
        ];
        for unit in units {
            let text = unit.repeat(400_000);
            let started = std::time::Instant::now();
            cut(&Scanner::Named(*kind), text.as_bytes());
            assert!(started.elapsed().as_secs() < 10, "{kind:?} on many {unit:?}");
        }
    }
}

/// If `cuts_after_words` is true, the parts of a text give the pieces of the whole; if not, they differ for some text.
#[test]
fn text_may_be_cut_after_words() {
    let mut random = Random(13);
    for (name, pattern, _) in NAMED {
        let scanner = Scanner::new(pattern).unwrap();
        let mut differ = 0;
        for i in 0..20_000 {
            let alphabet = if i % 2 == 0 { ASCII } else { ALPHABET };
            let before =
                generated(&mut random, alphabet, 25) + random.of(&["a", "Z", "0", "9", "s", "123", "1,000", "e5"]);
            let behind = random.of(&[" ", "\n"]).to_string() + &generated(&mut random, alphabet, 25);
            let mut parts = cut(&scanner, before.as_bytes());
            parts.extend(cut(&scanner, behind.as_bytes())[1..].iter().map(|end| before.len() + end));
            let text = before + &behind;
            let whole = cut(&scanner, text.as_bytes());
            if scanner.cuts_after_words() {
                assert_alike(name, &text, parts, whole);
            } else {
                differ += usize::from(parts != whole);
            }
        }
        assert!(scanner.cuts_after_words() || differ > 0, "{name} could be cut");
    }
    assert!(!Scanner::new(r"\S+|\s+").unwrap().cuts_after_words());
    assert!(!Scanner::new("a+\nb+").unwrap().cuts_after_words());
}
