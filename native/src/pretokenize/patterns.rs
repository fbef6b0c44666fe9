//! The named patterns: their regexes, and equivalent spellings of other projects.

use super::emoji::{emoji, emoji_symbol, flags};

/// The hand-written scanners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gpt2,
    Cl100k,
    Llama3,
    Digits1,
    SpansPlus,
    O200k,
    Superbpe,
    UwPaper,
    Whitespace,
    Phrases,
    Uw2025Fence,
    UwPaperFence,
    PunctuationFence,
    /// `DIGITS+`
    DigitsFence,
    SentenceFence,
    PhrasesFence,
    Whole,
}

macro_rules! llama3 {
    ($contractions:expr, $numbers:literal, $end:literal) => {
        concat!(
            $contractions,
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $numbers,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|",
            $end,
            r"\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

macro_rules! o200k {
    ($suffix:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $suffix,
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

macro_rules! phrases {
    ($words:literal) => {
        concat!(
            contractions!(),
            r"|[^\r\n\p{L}\p{N}]?",
            $words,
            r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
        )
    };
}

macro_rules! contractions {
    () => {
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    };
}

/// Llama 3's pattern with additions, in the order in which they are tried: contractions with either apostrophe; one
/// emoji cluster (flag, keycap, or symbols joined by U+200D); after a number, an exponent, a group of thousands with
/// its separator, or the first decimals with their point; words; up to three digits; a percent sign stays with its
/// digits; punctuation, which stops at an emoji.
const SPANS_PLUS: &str = concat!(
    "['\u{2019}](?:[sStTmMdD]|[lL]{2}|[vVrR][eE])",
    "| ?(?:[",
    flags!(),
    "]{1,2}|[0-9#*]\u{FE0F}?\u{20E3}|",
    emoji_symbol!(),
    "(?:\u{200D}",
    emoji_symbol!(),
    ")*)",
    r"|(?<=\p{N})[eE][+-]?\p{N}{1,3}(?![\p{L}\p{N}])",
    r"|(?<=\p{N})[,_]\p{N}{3}(?!\p{N})%?",
    r"|(?<=\p{N})\.\p{N}{1,3}%?",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+",
    r"|\p{N}{1,3}%?",
    r"| ?[^\s\p{L}\p{N}",
    emoji!(),
    flags!(),
    r"]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Ends of sentences, as positions: after the last mark and a closing quote or bracket, and after a blank line. The
/// marks themselves may merge with the words before them. Abbreviations end sentences too: some superwords are lost,
/// but none crosses an end.
const SENTENCES: &str = concat!(
    // White space must follow; otherwise 3.14 would contain two sentences.
    r#"(?<=[.!?…؟۔])(?=\s)|(?<=[.!?…؟۔][\"'”’»)\]])(?=\s)"#,
    // These need no white space.
    r"|(?<=[。！？｡।॥။።។])(?![」』”’）])|(?<=[。！？｡][」』”’）])",
    r"|(?<=\n\n)(?!\n)"
);

/// The characters of HF's `Digits`, which are those of Unicode 17: `\p{N}` of 16, and what 17 adds.
pub const DIGITS: &str = "[\\p{N}\u{11DE0}-\u{11DE9}\u{16FF4}-\u{16FF6}]";

/// Names, regexes and scanners, in the order in which users see them. The regexes mean the same in Python's `regex`,
/// Oniguruma and Rust engines.
pub const NAMED: &[(&str, &str, Kind)] = &[
    ("gpt2", r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", Kind::Gpt2),
    // tiktoken writes `\s++$`; a look-ahead means "end of text" in every engine.
    ("cl100k", llama3!(contractions!(), r"\p{N}{1,3}", r"\s+(?![\s\S])|"), Kind::Cl100k),
    ("llama3", llama3!(contractions!(), r"\p{N}{1,3}", ""), Kind::Llama3),
    // Qwen2's and Qwen2.5's: every digit on its own.
    ("digits1", llama3!(contractions!(), r"\p{N}", ""), Kind::Digits1),
    ("spans-plus", SPANS_PLUS, Kind::SpansPlus),
    ("o200k", o200k!(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"), Kind::O200k),
    // The first stage of the released SuperBPE (2025), and the fence of its second stage.
    ("superbpe", o200k!(""), Kind::Superbpe),
    ("uw-2025-fence", r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)", Kind::Uw2025Fence),
    // The same for the SuperBPE paper: runs of digits on their own, cut into triples from the right.
    ("uw-paper", "\\p{N}+\n(?=(\\d{3})+(?!\\d))| ?\\p{L}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", Kind::UwPaper),
    ("uw-paper-fence", "\\p{N}+\n(?=(\\d{3})+(?!\\d))", Kind::UwPaperFence),
    ("whitespace", r" ?\S+|\s+(?!\S)|\s+", Kind::Whitespace),
    // The words of `phrases-fence` one by one.
    ("phrases", phrases!(r"(?:\p{L}\p{M}*)+"), Kind::Phrases),
    // Phase 2 stops at any punctuation.
    ("punctuation-fence", r" ?[^\s\p{L}\p{N}]+[\r\n]*", Kind::PunctuationFence),
    ("sentence-fence", SENTENCES, Kind::SentenceFence),
    // K-EXAONE's: words that single spaces join. llama.cpp's type `exaone-moe`.
    ("phrases-fence", phrases!(r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+"), Kind::PhrasesFence),
    ("none", "", Kind::Whole),
];

/// Other spellings of named patterns for Rust engines, with their origin.
pub const EQUIVALENT: &[(&str, Kind)] = &[
    // GPT-2's release and HF's ByteLevel; then tiktoken's quotation of it.
    (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", Kind::Gpt2),
    (r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", Kind::Gpt2),
    // tiktoken's r50k_base.
    (r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s", Kind::Gpt2),
    // tiktoken's cl100k_base, and that of an earlier release without the end of text.
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        Kind::Cl100k,
    ),
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        Kind::Llama3,
    ),
    // The same two with the first contractions and repeated line breaks of cl100k.
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]+|\s+(?!\S)|\s+",
        Kind::Cl100k,
    ),
    (llama3!(r"'(?i:[sdmt]|ll|ve|re)", r"\p{N}{1,3}", ""), Kind::Llama3),
    (llama3!(r"'(?i:[sdmt]|ll|ve|re)", r"\p{N}", ""), Kind::Digits1),
];
