"""Small tokenizers of other kinds than byte-level BPE, made by the software that runs them."""

import io
import json

import pytest

ENGLISH = [f"the quick brown fox jumps over the lazy dog {i} times, and again." for i in range(300)]
OTHERS = ["naïve café déjà vu", "привет мир как дела", "日本語のテキスト", "ἄνθρωπος"] * 50
TEXTS = [
    "the quick brown fox",
    "  leading and trailing  ",
    "CRLF\r\nand\ttab\n\n",
    "e\u0301te\u0301 and a\u0323\u0301 marks",
    "ﬁne ﬂags ½ Ⅳ ＡＢＣ",
    "🙂🙂 👩‍👩‍👧 日本語のテキスト",
    "NUL \x00 and \u200b zero width",
    "a \u2581 literal ▁mark",
    "<s>the</s><unk> [UNK] <0x41> <|endoftext|>",
    "x" * 3000 + " " * 500 + "é" * 300,
    "привет, мир",
    "",
    "   ",
    "\U0010ffff\ud7ff\ufeff",
]


def sentencepiece_model(kind, *, spaces=True, **options):
    """The content of a SentencePiece model, trained on text with or without spaces."""
    spm = pytest.importorskip("sentencepiece")
    out = io.BytesIO()
    options |= {"model_type": kind, "hard_vocab_limit": False, "minloglevel": 2}
    lines = ENGLISH + OTHERS if spaces else " ".join(ENGLISH + OTHERS).split()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, **options)
    return out.getvalue()


def _trained(hf, kind, model, trainer, **parts):
    """A tokenizer of a kind, as the content of its file; `model` and `trainer` are options of theirs."""
    trainer = getattr(hf.trainers, {"BPE": "Bpe"}.get(kind, kind) + "Trainer")(show_progress=False, **trainer)
    tokenizer = hf.Tokenizer(getattr(hf.models, kind)(**model))
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(ENGLISH + OTHERS, trainer)
    return json.loads(tokenizer.to_str())


def unigram(hf):
    """Unigram with NFKC and Metaspace, as T5."""
    return _trained(
        hf,
        "Unigram",
        {},
        {"vocab_size": 250, "unk_token": "<unk>", "special_tokens": ["<unk>", "</s>"]},
        normalizer=hf.normalizers.NFKC(),
        pre_tokenizer=hf.pre_tokenizers.Metaspace(),
        decoder=hf.decoders.Metaspace(),
        post_processor=hf.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)]),
    )


def byte_fallback(hf):
    """BPE with byte fallback and no pre-tokenizer, as Llama 2."""
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    decoders = [hf.decoders.Replace("▁", " "), hf.decoders.ByteFallback(), hf.decoders.Fuse()]
    decoders.append(hf.decoders.Strip(" ", 1, 0))
    found = _trained(
        hf,
        "BPE",
        {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True},
        {"vocab_size": 500, "limit_alphabet": 30, "special_tokens": specials},
        normalizer=hf.normalizers.Sequence([hf.normalizers.Prepend("▁"), hf.normalizers.Replace(" ", "▁")]),
        decoder=hf.decoders.Sequence(decoders),
    )
    found["added_tokens"] = found["added_tokens"][:3]
    return found


def word_pieces(hf):
    """WordPiece, as BERT."""
    return _trained(
        hf,
        "WordPiece",
        {"unk_token": "[UNK]"},
        {"vocab_size": 250, "special_tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]},
        normalizer=hf.normalizers.BertNormalizer(),
        pre_tokenizer=hf.pre_tokenizers.BertPreTokenizer(),
        decoder=hf.decoders.WordPiece(),
    )


def words(hf):
    """One token per word."""
    return _trained(
        hf,
        "WordLevel",
        {"unk_token": "<unk>"},
        {"vocab_size": 50, "special_tokens": ["<unk>"]},
        pre_tokenizer=hf.pre_tokenizers.Whitespace(),
    )


def lowercased_bytes(hf, *cuts, **suffix):
    """Byte-level BPE that our core does not read, since it lower-cases."""
    alphabet = hf.pre_tokenizers.ByteLevel.alphabet()
    return _trained(
        hf,
        "BPE",
        suffix,
        {"vocab_size": 400, "initial_alphabet": alphabet, "special_tokens": ["<|endoftext|>"], **suffix},
        normalizer=hf.normalizers.Lowercase(),
        pre_tokenizer=hf.pre_tokenizers.Sequence([*cuts, hf.pre_tokenizers.ByteLevel(add_prefix_space=False)]),
        decoder=hf.decoders.ByteLevel(),
        post_processor=hf.processors.ByteLevel(trim_offsets=True),
    )


def clip(hf):
    """The same with a suffix that ends words and without white space, as CLIP."""
    cut = hf.pre_tokenizers.Split(hf.Regex(r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"), "removed", invert=True)
    return lowercased_bytes(hf, cut, end_of_word_suffix="</w>")


BYTE_FALLBACK = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
SENTENCEPIECE = {
    "unigram.model": {"kind": "unigram", "vocab_size": 250},
    "byte-fallback.model": {"kind": "bpe", "vocab_size": 480, "character_coverage": 0.98, **BYTE_FALLBACK},
    "no-prefix.model": {"kind": "bpe", "vocab_size": 480, "add_dummy_prefix": False, **BYTE_FALLBACK},
    "no-space.model": {"kind": "bpe", "vocab_size": 480, "add_dummy_prefix": False, "spaces": False, **BYTE_FALLBACK},
}
JSON = {made.__name__: made for made in (unigram, byte_fallback, word_pieces, words, lowercased_bytes, clip)}


def write(folder, name):
    """Write one of them; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name if name in SENTENCEPIECE else f"{name}.json")
    if not path.exists():
        if name in SENTENCEPIECE:
            path.write_bytes(sentencepiece_model(**SENTENCEPIECE[name]))
        else:
            content = JSON[name](pytest.importorskip("tokenizers"))
            path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path
