//! Characters of emoji clusters, as parts of regexes.

/// Symbols that start an emoji cluster, as character ranges: properties like `\p{Emoji}` differ between engines.
macro_rules! emoji {
    () => {
        "\u{2194}-\u{2199}\u{21A9}\u{21AA}\u{231A}\u{231B}\u{23CF}\u{23E9}-\u{23FA}\u{2600}-\u{2775}\u{2794}-\u{27BF}\
         \u{2B05}-\u{2B07}\u{2B1B}\u{2B1C}\u{2B50}\u{2B55}\u{1F000}-\u{1F0FF}\u{1F10D}-\u{1F1E5}\u{1F200}-\u{1FAFF}"
    };
}

/// Regional indicators, the letters of flags.
macro_rules! flags {
    () => {
        "\u{1F1E6}-\u{1F1FF}"
    };
}

/// One symbol of a cluster: with a variation selector or a skin tone, and with tags (regional flags).
macro_rules! emoji_symbol {
    () => {
        concat!("[", emoji!(), "](?:\u{FE0F}|[\u{1F3FB}-\u{1F3FF}])?(?:[\u{E0020}-\u{E007E}]+\u{E007F})?")
    };
}

/// All characters that start an emoji cluster, for the class table.
pub const EMOJI_CLASS: &str = concat!("[", emoji!(), flags!(), "]");

pub(super) use {emoji, emoji_symbol, flags};
