"""The token that ends a document: the tokenizer's own, a named one, and never one that is added silently."""

import json

import numpy as np
import pytest

from lm.data.sharding import write_shards
from tests import other_tokenizers
from tests.tokenizer.formats.other_formats import write_gpt2
from tokenizer import Batch, Tokenizer, UserError, formats, patterns
from tokenizer.external.load import load_pretrained, load_saved

OURS = "<|endoftext|>"


def byte_level(*specials, **options):
    merges = [(0, 1), (256, 2)]
    return Tokenizer.from_ranks(merges, pattern=patterns.resolve("gpt2"), special_tokens=specials, **options)


def folder(path, tokenizer, config):
    formats.write(tokenizer, path / "tokenizer.json", "hf")
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("token", ["<|eot|>", {"content": "<|eot|>", "lstrip": False, "special": True}])
def test_it_is_the_eos_token_of_the_configuration(tmp_path, token):
    source = folder(tmp_path, byte_level("<|bot|>", "<|eot|>", OURS), {"eos_token": token, "bos_token": "<|bot|>"})
    loaded = load_pretrained(source)
    tokenizer = loaded.tokenizer
    assert (tokenizer.end_of_text, tokenizer.end_id, loaded.added) == ("<|eot|>", 259, ())
    assert loaded.about()["end_of_text"] == "<|eot|>"
    assert load_pretrained(source / "tokenizer.json").tokenizer == tokenizer == Tokenizer.from_file(source)
    # It is part of the tokenizer: of its hash, its folder, and everything that is made of it.
    assert tokenizer != byte_level("<|bot|>", "<|eot|>", OURS)
    tokenizer.save(tmp_path / "saved")
    assert load_saved(tmp_path / "saved") == tokenizer
    assert load_saved(tmp_path / "saved").end_of_text == tokenizer.cut(259 + 1).end_of_text == "<|eot|>"
    config = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert (config["eos_token"], config["bos_token"], config["pad_token"]) == ("<|eot|>", "<|bot|>", "<|eot|>")


def test_a_configured_token_that_does_not_exist_is_not_used(tmp_path):
    ours = byte_level(OURS)
    assert (ours.end_of_text, ours.end_id) == (OURS, 258)
    assert "end_of_text" not in formats.folder.content(ours.definition)
    assert byte_level(OURS, end_of_text=OURS) == ours
    tokenizer = load_pretrained(folder(tmp_path / "a", byte_level(OURS), {"eos_token": "</s>"})).tokenizer
    assert (tokenizer.end_of_text, tokenizer.vocab_size) == (OURS, 259)
    tokenizer = load_pretrained(folder(tmp_path / "b", byte_level("<s>"), {"eos_token": "</s>"})).tokenizer
    assert (tokenizer.end_of_text, tokenizer.vocab_size) == (None, 259)
    with pytest.raises(UserError, match=r"'<s>'.* end_of_text"):
        tokenizer.end_id  # noqa: B018


MAP, CONFIG, ADDED = "special_tokens_map.json", "tokenizer_config.json", "added_tokens.json"
DECODER = {"258": {"content": "<s>", "special": True}, "259": {"content": "<e>", "special": True}}
CLASS = {"tokenizer_class": "PreTrainedTokenizerFast"}


@pytest.mark.parametrize("end", ["<e>", "<｜end▁of｜>"])
@pytest.mark.parametrize("listed", [True, False])  # among the added tokens, or only in the model's vocabulary
@pytest.mark.parametrize(
    "files",
    [
        {MAP: {"eos_token": "END"}, CONFIG: CLASS},
        {MAP: {"eos_token": {"content": "END", "lstrip": False}}, CONFIG: CLASS | {"eos_token": "<s>"}},
        {MAP: {"eos_token": "<s>"}, CONFIG: CLASS | {"eos_token": "END", "added_tokens_decoder": DECODER}},
        {CONFIG: CLASS | {"eos_token": "END"}},
    ],
)
def test_it_is_the_token_that_transformers_finds(tmp_path, files, listed, end):
    transformers = pytest.importorskip("transformers")
    source = folder(tmp_path, byte_level("<s>", end), {})
    content = json.loads((source / "tokenizer.json").read_text())
    if not listed:
        content["model"]["vocab"] |= {token["content"]: token["id"] for token in content.pop("added_tokens")}
        (source / "tokenizer.json").write_text(json.dumps(content | {"added_tokens": []}))
    for name, part in files.items():
        (source / name).write_text(json.dumps(part, ensure_ascii=False).replace("END", end).replace("<e>", end))
    theirs = transformers.AutoTokenizer.from_pretrained(source).eos_token_id
    if end.isascii() or listed:
        loaded = load_pretrained(source)
        assert (loaded.tokenizer.end_id, loaded.tokenizer.vocab_size, loaded.added) == (theirs, 260, ())
        assert theirs == 259
        assert 259 not in loaded.tokenizer.encode_ordinary(f"a{end}")
    if end.isascii() and not listed:  # a named token keeps its id, too
        for name in files:
            (source / name).unlink()
        named = load_pretrained(source, end_of_text=end)
        assert (named.tokenizer.end_id, named.tokenizer.vocab_size, named.added) == (259, 260, ())


def test_gpt2_files_and_other_models_name_it_in_the_same_places(tmp_path):
    write_gpt2(byte_level(), tmp_path)
    for files in (
        {ADDED: {"<s>": 258, "<e>": 259}, MAP: {"eos_token": "<e>"}},
        {CONFIG: {"added_tokens_decoder": DECODER, "eos_token": "<e>"}},
    ):
        for name, part in files.items():
            (tmp_path / name).write_text(json.dumps(part))
        tokenizer = load_pretrained(tmp_path).tokenizer
        assert (tokenizer.special_tokens, tokenizer.end_id) == ({"<s>": 258, "<e>": 259}, 259)
        for name in files:
            (tmp_path / name).unlink()
    (tmp_path / "unigram").mkdir()
    path = other_tokenizers.write(tmp_path, "unigram").rename(tmp_path / "unigram" / "tokenizer.json")
    content = json.loads(path.read_text())
    end = content["model"]["vocab"][-1][0]  # not an added token
    (path.parent / MAP).write_text(json.dumps({"eos_token": end}))
    loaded = load_pretrained(path.parent)
    assert (loaded.tokenizer.end_id, loaded.added) == (len(content["model"]["vocab"]) - 1, ())


def test_an_added_token_that_ends_documents_is_special(tmp_path):
    source = folder(tmp_path, byte_level("<|eot|>"), {"eos_token": "<|eot|>"})
    content = json.loads((source / "tokenizer.json").read_text())
    content["added_tokens"][0]["special"] = False
    (source / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = load_pretrained(source).tokenizer
    assert (tokenizer.special_tokens, tokenizer.end_id) == ({"<|eot|>": 258}, 258)
    assert 258 not in tokenizer.encode_ordinary("<|eot|>")


def test_a_named_token_comes_before_all_others_and_a_new_one_is_reported(tmp_path):
    source = folder(tmp_path, byte_level("<s>", "</s>"), {"eos_token": "</s>"})
    named = load_pretrained(source, end_of_text="<s>")
    assert (named.tokenizer.end_of_text, named.tokenizer.vocab_size, named.added) == ("<s>", 260, ())
    new = load_pretrained(source, end_of_text="<|eot|>")
    assert (new.tokenizer.end_id, new.tokenizer.vocab_size, new.added) == (260, 261, ("<|eot|>",))
    new.tokenizer.save(tmp_path / "new")
    assert load_pretrained(tmp_path / "new").tokenizer == new.tokenizer


def test_an_export_keeps_it_or_says_that_it_is_lost(tmp_path):
    tokenizer = byte_level("<s>", "</s>", end_of_text="</s>")
    formats.write(tokenizer, tmp_path / "x.tiktoken", "tiktoken")
    assert Tokenizer.from_file(tmp_path / "x.tiktoken").end_of_text == "</s>"
    with pytest.warns(UserWarning, match="x.json does not say that '</s>' ends documents; a folder does"):
        formats.write(tokenizer, tmp_path / "x.json", "hf")


def test_merges_and_superwords_on_top_keep_it(tmp_path):
    superbpe = pytest.importorskip("superbpe")
    from tokenizer import train_bpe

    source = folder(tmp_path, byte_level("<s>", "</s>"), {"eos_token": "</s>"})
    start, text = Tokenizer.from_pretrained(source), ["of the low of the low"] * 9
    longer = train_bpe(text, 264, start=start)
    both = superbpe.train_superbpe(longer, text, vocab_size=266, rules="uw-2025", keep_ids=True)
    assert (longer.end_of_text, both.end_of_text, both.end_id) == ("</s>", "</s>", 259)
    own = byte_level("<s>", "</s>", end_of_text="</s>")
    assert train_bpe(text, 264, start=own).end_of_text == "</s>"
    cut = superbpe.train_superbpe(own, text, vocab_size=264, rules="uw-2025", transition=258)
    assert (cut.end_of_text, cut.end_id) == ("</s>", 263)


@pytest.mark.slow
def test_a_sentencepiece_model_names_its_own(tmp_path):
    path = other_tokenizers.write(tmp_path, "byte-fallback.model")
    loaded = load_pretrained(path)
    tokenizer = loaded.tokenizer
    assert (tokenizer.end_of_text, tokenizer.end_id, loaded.added) == ("</s>", 2, ())
    named = load_pretrained(path, end_of_text=OURS)
    assert (named.tokenizer.end_id, named.added) == (tokenizer.vocab_size, (OURS,))
    assert named.tokenizer.sha256 != tokenizer.sha256 != load_pretrained(path, end_of_text="<s>").tokenizer.sha256
    for each in (tokenizer, named.tokenizer):
        each.save(tmp_path / each.name)
        assert load_saved(tmp_path / each.name).end_of_text == each.end_of_text
        assert load_pretrained(tmp_path / each.name).tokenizer == each


def test_other_software_takes_it_from_the_configuration(tmp_path):
    other_tokenizers.write(tmp_path, "unigram").rename(tmp_path / "tokenizer.json")
    assert load_pretrained(tmp_path).tokenizer.end_of_text is None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    loaded = load_pretrained(tmp_path)
    assert (loaded.tokenizer.end_of_text, loaded.tokenizer.end_id, loaded.added) == ("</s>", 1, ())
    write_shards(tmp_path / "shards", loaded.tokenizer, [Batch.from_texts(["the fox"])])
    manifest = json.loads((tmp_path / "shards" / "shards.json").read_text())
    assert (manifest["eos_id"], manifest["end_of_text"]) == (1, "</s>")
    # A Unigram model finds its control tokens in text: no document may contain the token that ends documents.
    with pytest.raises(UserError, match=r"document 1 contains text that .* as its end of text, '</s>'"):
        write_shards(tmp_path / "other", loaded.tokenizer, [Batch.from_texts(["the fox", "the </s> fox"])])


@pytest.mark.slow
def test_shards_scores_and_exports_agree(tmp_path):
    pytest.importorskip("transformers")
    from lm.hf.export import export_hf
    from lm.model.language_model import LanguageModel
    from tests.lm import tiny

    tokenizer = load_pretrained(folder(tmp_path, byte_level("<s>", "</s>"), {"eos_token": "</s>"})).tokenizer
    write_shards(tmp_path / "shards", tokenizer, [Batch.from_texts(["of the low"])])
    assert np.fromfile(tmp_path / "shards" / "tokens-00000.bin", np.uint16)[0] == 259
    model = tiny.model(tokenizer.vocab_size, sha256=tokenizer.sha256)
    assert LanguageModel(model, tokenizer).eos_id == 259
    export_hf(model, tokenizer, tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert [config[name] for name in ("bos_token", "eos_token", "pad_token")] == ["</s>"] * 3
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["eos_token_id"] == 259
