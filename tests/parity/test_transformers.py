"""Our folders in `transformers`, and `tokenizer.hf` beside its stock class: the same calls, the same results."""

import json
import pickle
import random
from functools import cache

import numpy as np
import pytest

from tests import texts
from tests.parity.peers import same
from tests.parity.prepared import SEQUENCES, generated, imported
from tests.properties import quick_first
from tokenizer import Tokenizer, UserError

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

ONE_PASS = ["gpt2", "llama3", "superwords", "spans_superwords"]
TWO_PASS = ["two_pass", "two_pass_unfenced"]
EOT = "<|endoftext|>"


def both_classes(folder, **settings):
    """The stock class and ours, opened from one folder."""
    from tokenizer.hf.tokenizer import SuperBPETokenizerFast

    classes = (transformers.PreTrainedTokenizerFast, SuperBPETokenizerFast)
    return [cls.from_pretrained(folder, **settings) for cls in classes]


@pytest.fixture
def hf():
    """The module, with AutoTokenizer as it leaves it; other tests have the stock one."""
    from tokenizer.hf import tokenizer as hf

    stock = transformers.AutoTokenizer.__dict__["from_pretrained"]
    hf.register()
    hf.register()  # the second call changes nothing
    yield hf
    transformers.AutoTokenizer.from_pretrained = stock


# ------------------------------------------------------------------------------------------------- stock classes

# What a model folder says beside the tokenizer; AutoTokenizer reads it, and may guess a class from it.
MODELS = {
    "no model": None,
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
}


def write_model(folder, model):
    if MODELS[model] is not None:
        (folder / "config.json").write_text(json.dumps(MODELS[model] | {"vocab_size": 1200}))


@pytest.mark.parametrize(
    ("name", "model"),
    quick_first([*(("superwords", model) for model in MODELS), *((name, "no model") for name in ONE_PASS[:2])], 2),
)
def test_one_pass_folders_open_with_the_same_ids(name, model, trained, tmp_path):
    ours = trained[name]
    ours.save(tmp_path)
    write_model(tmp_path, model)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.is_fast
    held_out = [*texts.english()[1][:10], *texts.various()]
    ids, offsets = ours.encode_batch(held_out)
    for i, found in enumerate(theirs(held_out)["input_ids"]):
        np.testing.assert_array_equal(ids[offsets[i] : offsets[i + 1]], found, err_msg=repr(held_out[i][:80]))
    for text in texts.various():
        assert theirs.decode(ours.encode_ordinary(text)) == text
    assert (theirs.bos_token_id, theirs.eos_token_id) == (1199, 1199)
    assert len(theirs) == ours.vocab_size
    assert theirs("a<|endoftext|>b")["input_ids"] == ours.encode("a<|endoftext|>b", allowed_special="all")
    same(*(one(held_out, return_offsets_mapping=True) for one in both_classes(tmp_path)))


@pytest.mark.parametrize("name", ["superwords", "gpt2"])
def test_a_folder_saved_by_transformers_still_gives_the_same_ids(name, trained, tmp_path):
    trained[name].save(tmp_path / "ours")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    for text in [*texts.various(), *texts.english()[1][:10]]:
        assert again(text)["input_ids"] == trained[name].encode_ordinary(text)


@pytest.mark.parametrize("model", MODELS)
def test_two_pass_folders_fail_loudly(model, trained, tmp_path):
    trained["superwords"].save(tmp_path)
    trained["two_pass"].save(tmp_path)
    write_model(tmp_path, model)
    with pytest.raises(Exception, match=r"(?i)tokenizer") as error:
        transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(error.value, OSError | ValueError)
    with pytest.raises((OSError, ValueError)):
        transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)


# ----------------------------------------------------------------------------------------------------- our class


@pytest.fixture(scope="module")
def folders(trained, tmp_path_factory):
    """Saved tokenizers, by name."""
    root = tmp_path_factory.mktemp("tokenizers")
    for name in (*ONE_PASS, *TWO_PASS):
        trained[name].save(root / name)
    return root


@pytest.fixture(scope="module")
def both(folders):
    return lambda name, **settings: both_classes(folders / name, **settings)


@pytest.fixture(scope="module")
def padded(both):
    """Pairs that many calls share: every call leaves them as they were."""
    return [both(name, pad_token=EOT) for name in ("superwords", "llama3")]


@cache
def batch(seed=0):
    """Short texts of every kind, with special strings and strings that tests add as tokens among them."""
    choose = random.Random(seed)
    found = [text[:150] for text in texts.various()] + [document[:300] for document in texts.english()[1][:8]]
    for i in range(0, len(found), 3):
        at = choose.randrange(len(found[i]) + 1)
        found[i] = found[i][:at] + choose.choice([EOT, f" {EOT} ", EOT + EOT, "<|tool|>", "newword"]) + found[i][at:]
    return found


MASK, OFFSETS = {"return_special_tokens_mask": True}, {"return_offsets_mapping": True}
CALLS = [
    {},
    {"padding": True},
    {"padding": "max_length", "max_length": 40},
    {"padding": "max_length", "max_length": 40, "truncation": True},
    {"padding": True, "pad_to_multiple_of": 8},
    {"padding": True, "padding_side": "left", "return_offsets_mapping": True, "return_special_tokens_mask": True},
    {"padding": True, "return_tensors": "np", "return_offsets_mapping": True},
    {"padding": True, "return_tensors": "pt", "return_length": True},
    {"return_tensors": "np"},
    {"padding": True, "padding_side": "left", "return_tensors": "np", "return_token_type_ids": True},
    {"truncation": True, "max_length": 9, "padding": "max_length", "return_tensors": "pt", **MASK},
    {"truncation": True, "max_length": 7},
    {"truncation": "only_first", "max_length": 7, "return_overflowing_tokens": True},
    {"truncation": True, "max_length": 9, "stride": 3, "return_overflowing_tokens": True, "padding": True},
    {"truncation": True, "max_length": 9, "stride": 6, "return_overflowing_tokens": True, **OFFSETS},
    {"truncation": True, "max_length": 2, "return_overflowing_tokens": True},
    {"return_token_type_ids": True, "return_attention_mask": False, "return_length": True},
    {"add_special_tokens": False, "return_special_tokens_mask": True},
    {"split_special_tokens": True, "return_offsets_mapping": True},
]


@pytest.mark.parametrize("number", quick_first(range(len(CALLS)), 9))
def test_a_call_equals_the_stock_class(padded, number):
    call, bos_eos = CALLS[number], number % 2 == 0
    found = batch()[::3] if "stride" in call else batch()  # overflow multiplies
    theirs, ours = padded[number // 2 % 2]
    for side in ("right", "left") if "truncation" in call else ("right",):
        for one in (theirs, ours):
            one.truncation_side = side
            one.add_bos_token = one.add_eos_token = bos_eos
        same(theirs(found, **call), ours(found, **call))
    for text in ["", "a", batch()[3]]:
        same(theirs(text, **call), ours(text, **call))


PAIRS = [
    {},
    {"padding": True, "return_token_type_ids": True, "return_offsets_mapping": True},
    {"truncation": "longest_first", "max_length": 12, "return_overflowing_tokens": True, "stride": 2},
    {"truncation": "only_first", "max_length": 60},
    {"truncation": "only_second", "max_length": 300, "return_special_tokens_mask": True},
]


@pytest.mark.parametrize("call", quick_first(PAIRS, 2), ids=str)
def test_pairs(both, call):
    theirs, ours = both("superwords", pad_token=EOT)
    theirs.add_bos_token = ours.add_bos_token = True
    step = 3 if "stride" in call else 1  # overflow multiplies
    first, second = ([text[:30] for text in batch(seed)[::step]] for seed in (1, 2))
    if call.get("truncation", "").startswith("only"):  # which must leave something
        first, second = ["of the operation " * 30] * 3, ["the resource that " * 30, "x" * 300, texts.code()[:900]]
        if call["truncation"] == "only_first":
            second = ["b"] * 3
        else:
            first = ["a"] * 3
    same(theirs(first, second, **call), ours(first, second, **call))
    same(theirs(list(zip(first, second, strict=True)), **call), ours(list(zip(first, second, strict=True)), **call))
    same(theirs(first[0], second[0], **call), ours(first[0], second[0], **call))


def test_words(both):
    theirs, ours = both("superwords", pad_token=EOT)
    rows = [["Of", " the", " opération"], [], [EOT, "x"], ["  ", "🙂 a"]]
    call = {"is_split_into_words": True, "padding": True, "return_offsets_mapping": True}
    same(theirs(rows, **call), ours(rows, **call))
    same(theirs(rows[0], is_split_into_words=True), ours(rows[0], is_split_into_words=True))


def test_added_tokens(both):
    theirs, ours = both("superwords")
    for one in (theirs, ours):
        assert one.add_tokens(["newword", "new"]) == 2
        assert one.add_special_tokens({"pad_token": "<|pad|>", "extra_special_tokens": ["<|tool|>"]}) == 2
        assert one.add_tokens(["newword"]) == 0
    found = [*batch(), "anewword newnew <|tool|><|pad|>", "new"]
    for call in ({}, {"split_special_tokens": True}, {"padding": True, "return_offsets_mapping": True}):
        same(theirs(found, **call), ours(found, **call))
    assert len(theirs) == len(ours) == 1204
    ids = ours("<|tool|>a newword").input_ids
    for skip in (False, True):
        assert theirs.decode(ids, skip_special_tokens=skip) == ours.decode(ids, skip_special_tokens=skip)
    assert theirs.batch_decode([ids, ids[:1]]) == ours.batch_decode([ids, ids[:1]])
    assert theirs.convert_ids_to_tokens(ids) == ours.convert_ids_to_tokens(ids) == ours.tokenize("<|tool|>a newword")


@pytest.mark.parametrize("trim", [False, True])
def test_an_imported_tokenizer_keeps_its_post_processor(folders, tmp_path, trim):
    path = folders / "llama3" / "tokenizer.json"
    told = json.loads(path.read_text())
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": trim, "use_regex": True}
    template = tokenizers.processors.TemplateProcessing(
        single=f"{EOT} $A", pair=f"{EOT} $A {EOT}:1 $B:1", special_tokens=[(EOT, 1199)]
    )
    processors = [byte_level, json.loads(template.__getstate__())]
    told["post_processor"] = {"type": "Sequence", "processors": processors}
    told["model"]["ignore_merges"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(told))
    Tokenizer.from_file(tmp_path / "tokenizer.json").save(tmp_path / "ours")
    theirs, ours = both_classes(tmp_path / "ours", pad_token=EOT)
    for call in (CALLS[0], CALLS[5], CALLS[12], {"add_special_tokens": False, "return_offsets_mapping": True}):
        same(theirs(batch(), **call), ours(batch(), **call))
    same(theirs("a b", " c ", return_offsets_mapping=True), ours("a b", " c ", return_offsets_mapping=True))


@pytest.mark.parametrize("name", TWO_PASS)
def test_two_pass_tokenizers_give_our_ids(hf, trained, folders, name):
    expected = trained[name]
    ours = transformers.AutoTokenizer.from_pretrained(folders / name, pad_token=EOT)
    assert type(ours) is hf.SuperBPETokenizerFast
    found = batch()
    ids = [expected.encode(text, allowed_special="all") for text in found]
    assert ours(found)["input_ids"] == ids
    assert ours(found, split_special_tokens=True)["input_ids"] == [expected.encode_ordinary(text) for text in found]
    assert len(ours) == ours.vocab_size == expected.vocab_size
    padded = ours(found, padding=True, return_tensors="np", return_offsets_mapping=True)
    for row, mask, spans, text, its in zip(*padded.values(), found, ids, strict=True):
        assert row[mask == 1].tolist() == its
        # Tokens of whole characters spell the text of their span.
        for i, (start, stop) in zip(row, spans, strict=True):
            if ours.decode([i]).isascii() and stop > start:
                assert ours.decode([i]) == text[start:stop]
    for text, its in zip(found, ids, strict=True):
        assert ours.decode(its) == text
        assert ours.decode(its, skip_special_tokens=True) == text.replace(EOT, "")
    encodings = ours(found).encodings
    assert [encoding.ids for encoding in encodings] == ids
    pair = ours("of the operation", "b", return_token_type_ids=True)
    assert pair["input_ids"] == expected.encode("of the operation") + expected.encode("b")
    assert pair["token_type_ids"] == [0] * len(expected.encode("of the operation")) + [1]
    with pytest.raises(Exception, match=r"(?i)unk"):  # it cannot encode, and says so
        ours.backend_tokenizer.encode("of the operation")
    unsaved = hf.SuperBPETokenizerFast.from_tokenizer(expected, pad_token=EOT)
    assert unsaved.eos_token == EOT
    assert unsaved("of the operation")["input_ids"] == expected.encode("of the operation")


@pytest.mark.parametrize("name", ["superwords", "two_pass"])
def test_saved_and_opened_again(hf, folders, tmp_path, name):
    ours = hf.SuperBPETokenizerFast.from_pretrained(folders / name)
    ours.add_tokens(["newword"])
    ours.add_special_tokens({"pad_token": "<|pad|>"})
    ours.add_bos_token = True
    ours.chat_template = "{% for m in messages %}<|tool|>{{ m['content'] }}{% endfor %}"
    ours.save_pretrained(tmp_path / "a")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    assert type(again) is hf.SuperBPETokenizerFast
    call = {"padding": True, "return_offsets_mapping": True, "return_special_tokens_mask": True}
    same(ours(batch(), **call), again(batch(), **call))
    assert len(again) == len(ours) == 1202
    chat = [{"role": "user", "content": "of the operation"}]
    assert again.apply_chat_template(chat) == ours.apply_chat_template(chat)
    # The folder is a whole one of ours, as well.
    tokenizer = Tokenizer.load(tmp_path / "a")
    assert [1199, *tokenizer.encode("a newword", allowed_special="all")] == ours("a newword")["input_ids"]
    again.save_pretrained(tmp_path / "b")
    files = [{path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} for folder in "ab"]
    assert files[0] == files[1]
    if name == "superwords":
        stock = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "a")
        same(stock(batch(), **call), again(batch(), **call))


def test_the_auto_class_opens_ours_with_ours_and_others_with_theirs(hf, folders, tmp_path):
    auto = transformers.AutoTokenizer.from_pretrained
    assert type(auto(folders / "superwords")) is hf.SuperBPETokenizerFast
    assert type(auto(str(folders / "two_pass"), padding_side="left")) is hf.SuperBPETokenizerFast
    stock = transformers.PreTrainedTokenizerFast.from_pretrained(folders / "superwords")
    stock.save_pretrained(tmp_path)
    assert type(auto(tmp_path)) is transformers.PreTrainedTokenizerFast
    with pytest.raises(OSError, match=r"(?i)offline|no-such"):  # in the stock class's words
        auto("no-such/repository")
    with pytest.raises(UserError, match=r"has no superbpe.json"):
        hf.SuperBPETokenizerFast.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["superwords", "two_pass"])
def test_pickles_are_the_same_whatever_was_encoded(both, folders, hf, name):
    hashing = pytest.importorskip("datasets.fingerprint").Hasher
    ours = hf.SuperBPETokenizerFast.from_pretrained(folders / name, pad_token=EOT)
    before = hashing.hash(ours)
    ours(batch(), padding=True, truncation=True, max_length=5)
    ours(batch(), batch(), padding=True, truncation=True, max_length=50).word_ids(0)
    again = pickle.loads(pickle.dumps(ours))
    assert hashing.hash(ours) == hashing.hash(again) == before
    assert hashing.hash(hf.SuperBPETokenizerFast.from_pretrained(folders / name, pad_token=EOT)) == before
    same(ours(batch(), padding=True), again(batch(), padding=True))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [None, 2])
def test_a_data_set_is_mapped(hf, folders, processes):
    datasets = pytest.importorskip("datasets")
    ours = hf.SuperBPETokenizerFast.from_pretrained(folders / "two_pass")
    data = datasets.Dataset.from_dict({"text": batch() * 3})
    mapped = data.map(lambda rows: ours(rows["text"]), batched=True, batch_size=20, num_proc=processes)
    assert mapped["input_ids"][:] == ours(batch() * 3)["input_ids"]


def test_what_is_not_supported_is_rejected(hf, folders):
    ours = hf.SuperBPETokenizerFast.from_pretrained(folders / "two_pass")
    with pytest.raises(UserError, match="lstrip=True, which is not supported"):
        ours.add_tokens([tokenizers.AddedToken("<x>", lstrip=True)])
    with pytest.raises(UserError, match="'a' is already a token"):
        ours.add_tokens(["a"])
    with pytest.raises(UserError, match="train_new_from_iterator is not supported"):
        ours.train_new_from_iterator([["a"]], 300)
    with pytest.raises(UserError, match="filename_prefix='x' is not supported"):
        ours.save_pretrained(folders / "two_pass", filename_prefix="x")
    with pytest.raises(ValueError, match="padding=True"):
        ours(["a", "of the operation"], return_tensors="pt")
    for wrong in (1, [1], [["a", 2]], np.array(["a"])):
        with pytest.raises(ValueError, match="text input must be of type"):
            ours(wrong)
    with pytest.raises(ValueError, match="does not match batch length"):
        ours(["a", "b"], ["c"])


def test_control_tokens_in_user_messages_are_ordinary_text(both):
    theirs, ours = both("superwords")
    for one in (theirs, ours):
        one.chat_template = "{% for m in messages %}<|endoftext|>{{ m['content'] }}{% endfor %}"
    chat = [{"role": "user", "content": f"of the {EOT} operation"}]
    for options in ({}, {"sanitize_control_tokens": True}):
        assert theirs.apply_chat_template(chat, **options) == ours.apply_chat_template(chat, **options)


# ---------------------------------------------------------------------------------- normalisers and added tokens

PREPARED_CALLS = [
    {},
    {"return_offsets_mapping": True, "return_special_tokens_mask": True},
    {"split_special_tokens": True, "return_offsets_mapping": True},
    {"truncation": True, "max_length": 5, "stride": 2, "return_overflowing_tokens": True},
]


@pytest.mark.parametrize("forms", SEQUENCES[:3])
def test_calls_with_normalisers_and_added_tokens_equal_the_stock_class(forms, trained, tmp_path):
    rng = random.Random(str(forms))
    for number in range(2):
        folder = tmp_path / str(number)
        _, ours = imported(trained, rng, forms)
        ours.save(folder)
        pair = both_classes(folder)
        for one in pair:
            one.add_tokens(["newword", "\u212b<"])
            one.add_special_tokens({"eos_token": "<eos>"})
        found = [generated(rng) + rng.choice(["", "newword", "<eos>", "\u212b<", "\u00c5<"]) for _ in range(25)]
        for call in PREPARED_CALLS:
            same(pair[0](found, **call), pair[1](found, **call))
        same(pair[0](found[:8], found[8:16]), pair[1](found[:8], found[8:16]))
        with pytest.raises(UserError, match="'word' has lstrip=True, which is not supported"):
            pair[1].add_tokens([transformers.AddedToken("word", lstrip=True)])


def test_added_tokens_survive_saving(hf, trained, tmp_path):
    _, ours = imported(trained, random.Random(2), ("NFC",))
    fast = hf.SuperBPETokenizerFast.from_tokenizer(ours)
    fast.add_tokens(["newword"])
    fast.save_pretrained(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.preparation.added_tokens == {**ours.preparation.added_tokens, "newword": ours.vocab_size}
    assert loaded.special_tokens == ours.special_tokens
    assert json.loads((tmp_path / "tokenizer.json").read_text())["normalizer"] == {"type": "NFC"}
    text = "e\u0301 newword"
    assert loaded.encode_ordinary(text) == fast(text)["input_ids"]
