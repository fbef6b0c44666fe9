"""Imported and exported tokenizers beside HF `tokenizers` and `tiktoken`: the same ids, whatever the merges are."""

import json
import random
import re
import warnings
from dataclasses import replace

import pytest

from tests import texts
from tests.parity.peers import to_encoding
from tests.properties import quick_first
from tests.tokenizer.formats.other_formats import added, byte_level, hf_content, hf_file, sequence, split
from tokenizer import Tokenizer, UserError, formats, patterns
from tokenizer.definition import printable
from tokenizer.formats import hf_json, tiktoken

tokenizers = pytest.importorskip("tokenizers")
theirs = pytest.importorskip("tiktoken")

PATTERNS = [r"[\s\S]+", r" ?\S+|\s+", "[b]", r"a+(?=b)|c"]
ALPHABETS = ["ab", "abc", "a b", "ab é", "aé日"]


def random_tokens(rng, alphabet):
    """Tokens of two bytes or more: unrelated ones, or each made of two that were there before."""
    letters = sorted(set(alphabet.encode()))
    tokens = []
    if rng.random() < 0.5:
        tokens = sorted({bytes(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(rng.randint(1, 20))})
    else:
        known = [bytes([letter]) for letter in letters]
        for _ in range(rng.randint(1, 25)):
            token = rng.choice(known) + rng.choice(known)
            if len(token) <= 12 and token not in known:
                known.append(token)
                tokens.append(token)
    if rng.random() < 0.5:
        rng.shuffle(tokens)
    return tokens


def random_texts(rng, alphabet, tokens):
    words = [*alphabet, *(token.decode(errors="ignore") for token in tokens)]
    return ["".join(rng.choices(words, k=rng.randint(1, 30))) for _ in range(8)]


def random_content(tokens, merges, pattern, *, ignore_merges):
    """A tokenizer.json of these tokens and merges, with added tokens."""
    names = [printable(bytes([i])) for i in range(256)] + [printable(token) for token in tokens]
    absent = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")
    return hf_content(
        added_tokens=[added(string, len(names) + i, special=i == 0) for i, string in enumerate(["<a>", "<a", "<b>"])],
        pre_tokenizer=sequence(split(pattern)),
        post_processor=None,
        decoder=byte_level(use_regex=False),
        model_vocab={name: i for i, name in enumerate(names)},
        model_merges=[[printable(left), printable(right)] for left, right in merges],
        model_ignore_merges=ignore_merges,
        **{f"model_{key}": None for key in absent},
        **dict.fromkeys(("model_fuse_unk", "model_byte_fallback"), False),
    )


@pytest.mark.parametrize("seed", range(2))
def test_any_ranks_give_the_ids_of_tiktoken(seed):
    rng = random.Random(seed)
    unmerged = 0
    for _ in range(50):
        alphabet, pattern = rng.choice(ALPHABETS), rng.choice(PATTERNS)
        tokens = random_tokens(rng, alphabet)
        ranks = {bytes([i]): i for i in range(256)} | {token: 256 + i * 2 for i, token in enumerate(tokens)}
        ours = Tokenizer(*tiktoken.from_ranks(ranks, pattern=pattern, special_tokens={"<s>": 999}))
        cover = tiktoken.covering(ours.pattern)
        encoding = theirs.Encoding("theirs", pat_str=cover, mergeable_ranks=ranks, special_tokens={"<s>": 999})
        for text in random_texts(rng, alphabet, tokens):
            assert ours.encode_ordinary(text) == encoding.encode_ordinary(text), (tokens, pattern, text)
            marked = f"{text}<s>{text}"
            assert ours.encode(marked, allowed_special="all") == encoding.encode(marked, allowed_special="all")
        regex, found, specials = tiktoken.export(ours).values()
        assert found == ranks
        again = Tokenizer(*tiktoken.from_ranks(found, pattern=regex, special_tokens=specials))
        assert (again.vocab, again.merges, again.unmerged) == (ours.vocab, ours.merges, ours.unmerged)
        unmerged += bool(ours.unmerged)
    assert 0 < unmerged < 50


@pytest.mark.filterwarnings("ignore:a superword merge makes a part")
@pytest.mark.parametrize("seed", quick_first(range(5)))
def test_any_merges_give_the_ids_of_hf(seed):
    """Merges in any order, several for one token or none, pairs repeated; also with two levels, split anywhere."""
    rng = random.Random(100 + seed)
    seen = {"several": 0, "unmerged": 0, "exported": 0}
    for _ in range(40):
        alphabet, pattern, ignoring = rng.choice(ALPHABETS), rng.choice(PATTERNS), rng.random() < 0.5
        tokens = random_tokens(rng, alphabet)
        known = {*tokens, *(bytes([i]) for i in range(256))}
        merges = []
        for token in tokens:
            cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if {token[:i], token[i:]} <= known]
            merges += rng.sample(cuts, rng.randint(0, len(cuts)))
        if rng.random() < 0.5:
            rng.shuffle(merges)
        if merges and rng.random() < 0.3:
            merges.append(rng.choice(merges))
        content = random_content(tokens, merges, pattern, ignore_merges=ignoring)
        ours = Tokenizer(*formats.hf_import.parse(content))
        hf = tokenizers.Tokenizer.from_str(json.dumps(content))
        found = random_texts(rng, alphabet, tokens)
        case = (tokens, merges, pattern, ignoring)
        for text in found:
            assert ours.encode_ordinary(text) == hf.encode(text).ids, (case, text)
            marked = f"{text}<a>{text}<ab><b>"
            assert ours.encode(marked, allowed_special="all") == hf.encode(marked).ids, (case, marked)
        assert hf_json(ours) == content
        if not ignoring:
            for phase1 in range(len(merges)):
                levels = {"n_phase1_merges": phase1, "pattern": patterns.resolve("gpt2"), "fence": ours.pattern}
                leveled = Tokenizer(replace(ours.definition, **levels))
                for text in found[:3]:
                    assert leveled.encode_ordinary(text) == ours.encode_ordinary(text), (case, phase1, text)
        with pytest.raises(UserError, match=r"cannot be written for tiktoken.*has added tokens .* '<a'"):
            to_encoding(ours)
        content["added_tokens"] = []
        ours = Tokenizer(*formats.hf_import.parse(content))
        made = ours.merge_ids[:, 2].tolist()
        seen["several"] += len(set(made)) < len(made)
        seen["unmerged"] += bool(ours.unmerged)
        try:
            encoding = to_encoding(ours)
        except UserError:
            continue
        seen["exported"] += 1
        for text in found:
            assert encoding.encode_ordinary(text) == ours.encode_ordinary(text), (case, text)
    assert all(seen.values())


@pytest.mark.parametrize("options", [{"use_regex": True}, {"use_regex": False}])
def test_tokenizers_that_hf_trained_are_read_with_their_ids(options, tmp_path):
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, **options)
    model.pre_tokenizer = byte_level
    if not options["use_regex"]:
        cut = tokenizers.pre_tokenizers.Split(tokenizers.Regex(patterns.resolve("llama3").regex), "isolated")
        model.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([cut, byte_level])
    model.decoder = tokenizers.decoders.ByteLevel()
    model.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1000,
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
    )
    model.train_from_iterator(texts.sample(60_000), trainer)
    model.add_tokens(["<tool>"])
    model.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_file(tmp_path)
    assert ours.special_tokens == {"<s>": 0, "</s>": 1}
    assert ours.preparation.added_tokens == {"<tool>": 1000}
    for text in [*texts.various(), *texts.english()[1][:20]]:
        assert ours.encode(text + "<tool>a</s>", allowed_special="all") == model.encode(text + "<tool>a</s>").ids
        model.encode_special_tokens = True
        assert ours.encode_ordinary(text + "<tool>") == model.encode(text + "<tool>").ids
        model.encode_special_tokens = False
    formats.write(ours, tmp_path / "again.json", "hf")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    cut = ours.cut(700)
    assert cut.vocab == [*ours.vocab[:699], b"<tool>"]
    again = tokenizers.Tokenizer.from_str(json.dumps(hf_json(cut.extended([(300, 301)]))))
    for text in texts.various():
        assert again.encode(text).ids == cut.extended([(300, 301)]).encode_ordinary(text)


@pytest.mark.parametrize("layout", ["last", "first", "after-bytes"])
def test_special_tokens_keep_their_ids_in_hf_whatever_the_layout(layout, trained):
    plain = trained["gpt2"]
    names = ["<s>", "</s>", "<pad>"]
    ours = Tokenizer.from_ranks(plain.ranks(), pattern=plain.pattern, special_tokens=names, special_layout=layout)
    hf = tokenizers.Tokenizer.from_str(json.dumps(hf_json(ours)))
    assert {name: hf.token_to_id(name) for name in names} == ours.special_tokens
    assert hf.get_vocab_size() == ours.vocab_size
    text = "a <s> b</s><pad>\n"
    assert hf.encode(text).ids == ours.encode(text, allowed_special="all")


@pytest.mark.parametrize("name", ["superwords", "unfenced"])
def test_superwords_give_the_same_ids_in_tiktoken(name, trained):
    encoding = to_encoding(trained[name])
    for text in [*texts.various(), *texts.english()[1], texts.code()]:
        assert encoding.encode_ordinary(text) == trained[name].encode_ordinary(text)
        assert encoding.decode(encoding.encode_ordinary(text)) == text


def test_bytes_outside_utf8_need_no_token(trained):
    """As in the released SuperBPE vocabularies."""
    content = hf_json(trained["superwords"])
    vocab = content["model"]["vocab"]
    for byte in (0xC0, 0xC1, *range(0xF5, 0x100)):
        del vocab[printable(bytes([byte]))]
    content["added_tokens"] = []
    ours = Tokenizer(*formats.hf_import.parse(content))
    hf = tokenizers.Tokenizer.from_str(json.dumps(content))
    for text in [*texts.various(), *texts.english()[1][:10]]:
        assert ours.encode_ordinary(text) == hf.encode(text).ids
    with pytest.raises(UserError, match="a byte has no token"):
        ours.ranks()
    del vocab["Ā"]
    with pytest.raises(UserError, match="byte 0 has no token"):
        Tokenizer(*formats.hf_import.parse(content))


@pytest.mark.parametrize("forms", [(), ("NFKC",)])
def test_an_added_token_may_be_an_ordinary_token_too(forms, trained, tmp_path):
    content = hf_json(trained["gpt2"])
    content["normalizer"] = {"type": forms[0]} if forms else None
    hf = tokenizers.Tokenizer.from_str(json.dumps(content))
    names = [name for name in content["model"]["vocab"] if name.isascii() and name.isalpha()]
    hf.add_tokens(["e", *names[-20::4], *(tokenizers.AddedToken(name, normalized=False) for name in names[60:70:2])])
    ours = Tokenizer(*formats.hf_import.parse(json.loads(hf.to_str())))
    assert len(ours.preparation.added_tokens) == 11
    ours.save(tmp_path / "ours")
    written = tokenizers.Tokenizer.from_file(str(tmp_path / "ours" / "tokenizer.json"))
    for text in [*texts.various(), *texts.english()[1][:10], *(f"x{name}y {name}" for name in names), "\uff45\uff54h"]:
        ids = ours.encode_ordinary(text)
        assert ids == hf.encode(text).ids == written.encode(text).ids
        assert forms or ours.decode(ids) == text
    assert Tokenizer.load(tmp_path / "ours").sha256 == ours.sha256
    (tmp_path / "ours" / "superbpe.json").unlink()
    assert Tokenizer.from_file(tmp_path / "ours" / "tokenizer.json").sha256 == ours.sha256
    hf.add_tokens([name for name in content["model"]["vocab"] if name.startswith("Ġ") and len(name) > 2][:1])
    with pytest.raises(UserError, match=r"token 'Ġ.*' is an ordinary token too, so its id would stand for the b"):
        formats.hf_import.parse(json.loads(hf.to_str()))


# ---------------------------------------------------------------------------------------------- pre-tokenizers


def steps(name):
    """As in the released files of StarCoder, SuperBPE's paper (both phases) and DeepSeek."""
    pre = tokenizers.pre_tokenizers
    triples = r"(?=(\d{3})+(?!\d))"
    words = triples + r"| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    latin = (
        r"[!\"#%&'()*+,\-./:;<=>?@]?[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )

    def split(regex):
        return pre.Split(tokenizers.Regex(regex), "isolated")

    cuts = {
        "starcoder": [pre.Digits(individual_digits=True)],
        "uw-paper": [pre.Digits(individual_digits=False), split(words)],
        "uw-paper-fence": [pre.Digits(individual_digits=False), split(triples)],
        "deepseek": [split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(latin)],
    }[name]
    return pre.Sequence([*cuts, pre.ByteLevel(add_prefix_space=False, use_regex=name == "starcoder")])


@pytest.mark.parametrize("name", ["starcoder", "uw-paper", "uw-paper-fence", "deepseek"])
def test_sequences_give_hf_ids_and_round_trip(name, trained):
    model = tokenizers.Tokenizer.from_str(json.dumps(hf_json(trained["none"])))
    model.pre_tokenizer = steps(name)
    content = json.loads(model.to_str())
    ours = Tokenizer(*formats.hf_import.parse(content))
    held_out = [*texts.various(), *texts.english()[1][:40], "1234567 a12345b 12 1,000,000", "日本語123テスト abc"]
    for text in held_out:
        assert ours.encode_ordinary(text) == model.encode(text).ids
    assert hf_json(ours) == content
    ours.provenance = {}
    again = tokenizers.Tokenizer.from_str(json.dumps(hf_json(ours)))
    for text in held_out:
        assert again.encode(text).ids == ours.encode_ordinary(text)


# -------------------------------------------------------------------------- components that are not applied

TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [260], "tokens": ["<s>"]}},
}
NO_TOKENS = TEMPLATE | {"single": [{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {}}
BERT = {"type": "BertProcessing", "sep": ["<s>", 260], "cls": ["<s>", 260]}
WORD_PIECE = {"type": "WordPiece", "prefix": "##", "cleanup": True}
BYTE_LEVEL = byte_level(use_regex=True)
TRUNCATION = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
PADDING = {"strategy": {"Fixed": 40}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0}
PADDING |= {"pad_token": "a"}
ADDS = "post-processor TemplateProcessing .* adds special tokens"


@pytest.mark.parametrize(
    ("part", "value", "warning"),
    [
        ("post_processor", None, None),
        ("post_processor", BYTE_LEVEL, None),
        ("post_processor", NO_TOKENS, None),
        ("post_processor", TEMPLATE, ADDS),
        ("post_processor", {"type": "Sequence", "processors": [BYTE_LEVEL, TEMPLATE]}, ADDS),
        ("post_processor", BERT, "post-processor BertProcessing"),
        ("decoder", BYTE_LEVEL, None),
        ("decoder", {"type": "Sequence", "decoders": [BYTE_LEVEL]}, None),
        ("decoder", None, "decoder null .* makes decoded text differ"),
        ("decoder", WORD_PIECE, "decoder WordPiece .* makes decoded text differ"),
        ("truncation", TRUNCATION, "truncation is kept for export but not applied: in HF it drops ids"),
        ("padding", PADDING, "padding is kept for export but not applied: in HF it appends ids"),
    ],
)
def test_components_that_change_hfs_ids_are_named(part, value, warning, tmp_path):
    path = hf_file(tmp_path, added_tokens=[added("<s>", 260)], **{part: value})
    theirs = tokenizers.Tokenizer.from_file(str(path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = Tokenizer.from_file(path)
    text = "abc bc  xab"
    same = theirs.encode(text).ids == ours.encode(text) and theirs.decode(ours.encode(text)) == text
    assert same == (warning is None)
    assert len(caught) == (0 if same else 1)
    if warning is not None:
        assert re.search(rf"tokenizer\.json: its {warning}", str(caught[0].message))
    assert formats.hf_json(ours)[part] == value
