"""Byte probabilities of models of `transformers`, against sums over encodings of longer texts by HF `tokenizers`."""

import copy
import functools
import itertools

import numpy as np
import pytest
import torch
import transformers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as HfTokenizer

from lm.bytelevel.byte_model import END, ByteModel
from lm.bytelevel.tokenization_paths import TokenizationPaths
from lm.evaluate.forward import LogitsModel
from lm.hf.first_token import StartToken, start_of
from lm.hf.scoring import PretrainedModel
from lm.model.generation import generate
from lm.model.language_model import LanguageModel
from lm.model.sampling import SamplingConfig
from tests.lm.bytelevel.definition import made_up
from tests.lm.hf.test_scoring import KINDS, made
from tokenizer.errors import UserError
from tokenizer.external.load import load_pretrained

pytestmark = pytest.mark.filterwarnings("ignore:.*its post-processor")

LETTERS = "ab<t>ꙛ1 .\n'"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CACHED = {"GPT2", "Llama", "Qwen3", "Cohere", "Granite", "Mixtral", "OPT"}
ADDED = ("<t>", "a1b")
QUICK = ("GPT2", "Mistral", "Mamba")


def tokenizers(folder, added, special="<s>"):
    """A tokenizer with tokens that are added text, in the software of HF and in ours."""
    made_here = HfTokenizer(models.BPE())
    cuts = pre_tokenizers.Split(Regex(QWEN), "isolated")
    made_here.pre_tokenizer = pre_tokenizers.Sequence([cuts, pre_tokenizers.ByteLevel(False, use_regex=False)])
    made_here.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=290, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made_here.train_from_iterator(made_up(LETTERS.replace("ꙛ", "")), trainer)
    made_here.add_special_tokens([AddedToken(special, special=True, normalized=False)])
    made_here.add_tokens([AddedToken(string, normalized=False) for string in added])
    transformers.PreTrainedTokenizerFast(tokenizer_object=made_here, eos_token=special).save_pretrained(folder)
    theirs = HfTokenizer.from_file(str(folder / "tokenizer.json"))
    theirs.encode_special_tokens = True
    return theirs, load_pretrained(folder).tokenizer


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A folder, and its tokenizer in the software of HF and in ours."""
    folder = tmp_path_factory.mktemp("tokenizer")
    return folder, *tokenizers(folder, ADDED)


@functools.cache
def covering(theirs, added, text, n=3):
    """Beginnings of the encodings of all longer texts, as far as they cover a text."""
    n_bytes = {i: len(name.encode() if name in added else name) for name, i in theirs.get_vocab().items()}
    longer = [text + "".join(more) for size in range(n + 1) for more in itertools.product(LETTERS, repeat=size)]
    found = set()
    for encoding in theirs.encode_batch(longer):
        ends = itertools.accumulate(n_bytes[i] for i in encoding.ids)
        found.add(tuple(encoding.ids[: 1 + next(i for i, end in enumerate(ends) if end >= len(text.encode()))]))
    return found


def language_model(kind, folder, tokenizer, **options):
    """A random model, as given, and as a model that can be scored."""
    model = made(kind, **options)
    scorable = PretrainedModel(copy.deepcopy(model), tokenizer, start_of(folder, tokenizer), tokenizer.end_id)
    scorable.context_tokens = 64
    return model, LanguageModel(scorable, tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("added", "special"),
    [
        (["<t>", "<t>a", "b."], "<s>"),
        (["\n", "<tꙛb"], "<\n<"),  # a special string stays text, and hides what is in it
        (["  ", "a 1"], "'a 1>"),
    ],
)
def test_paths_know_added_tokens(added, special, tmp_path):
    theirs, ours = tokenizers(tmp_path, added, special)
    paths = TokenizationPaths(ours)
    texts = [start + token[:n] + end for token in (*added, special) for start, n, end in SHAPES]
    for text in dict.fromkeys(filter(None, texts)):
        found = {(*group.prefix, last) for group in paths.find(text.encode()) for last in group.last.tolist()}
        assert found == covering(theirs, tuple(added), text), text


SHAPES = [("", 9, ""), ("", 2, ""), ("a", 1, ""), ("b ", 9, " "), ("<", 9, "\n "), ("", 9, "'")]


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k in QUICK else pytest.mark.slow) for k in KINDS if k != "Bert"]
)
def test_every_architecture(kind, shared):
    """With a copied cache and without one, against sums over sequences that whole passes of the model score."""
    folder, theirs, ours = shared
    own, lm = language_model(kind, folder, ours, spread=0.4)

    def log_mass(text):
        sums = []
        for path in covering(theirs, ADDED, text) if text else [()]:
            with torch.no_grad():
                logits = own(torch.tensor([[ours.end_id, *path]])).logits[0, :-1, : ours.vocab_size].double()
            sums.append(logits.log_softmax(-1).gather(1, torch.tensor(path, dtype=torch.long)[:, None]).sum().item())
        return np.logaddexp.reduce(sums)

    requests = [("ab <t>", ["a1b", " ab", "."]), ("", ["<t>", "a 1"]), ("ab <t>b" + " .ab" * 5, ["ab1", "<t>"])]
    results = []
    for cached in (None, False):
        lm.model.cached = cached
        model = ByteModel(lm)
        results.append([*model.choices(requests), model.next_byte("ab <"), *model.choices(requests[:1])])
        assert lm.model.cached == (kind in CACHED and cached is None)
    for after_cache, whole in zip(*results, strict=True):
        np.testing.assert_allclose(after_cache, whole, rtol=1e-6, atol=1e-5)
    for (prompt, answers), scores in zip(requests, results[0], strict=False):
        expected = [log_mass(prompt + answer) - log_mass(prompt) for answer in answers]
        np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-5)


def test_a_function_and_a_model_without_an_end(shared):
    folder, _, ours = shared
    own, lm = language_model("GPT2", folder, ours)
    function = LogitsModel(lambda ids: own(ids).logits.detach().numpy(), ours, context_tokens=64)
    found = ByteModel(LanguageModel(function, ours)).log_prob("ab<t> a")
    assert ByteModel(lm).log_prob("ab<t> a") == pytest.approx(found, abs=1e-5)
    scorable = PretrainedModel(own, ours, StartToken("<s>", ours.end_id, "", everywhere=True), None)
    endless = LanguageModel(scorable, ours)
    assert ByteModel(endless).next_byte("ab")[END] == 0
    with pytest.raises(UserError, match="no end of text"):
        ByteModel(endless).log_prob("ab", end=True)
    assert endless.window([7, 1, 2, 3], 3) == [ours.end_id, 2, 3]


def test_tokens_before_the_first_one_are_in_every_pass(shared):
    """As `[gMASK]` is before `<sop>` in GLM 4."""
    _, _, ours = shared
    own = made("GPT2", spread=0.4)

    def after(ids):
        return own(torch.cat((torch.full((len(ids), 1), 7), ids), 1)).logits[:, 1:].detach()

    function = LogitsModel(after, ours, context_tokens=60, starts_windows=True)
    expected = ByteModel(LanguageModel(function, ours)).choices([("ab <t>", ["a1b", " ab"])])
    start = StartToken("<s>", ours.end_id, "", everywhere=True, before=(7,))
    for cached in (None, False):
        scorable = PretrainedModel(copy.deepcopy(own), ours, start, ours.end_id)
        scorable.cached = cached
        found = ByteModel(LanguageModel(scorable, ours)).choices([("ab <t>", ["a1b", " ab"])])
        assert scorable.cached == (cached is None)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["GPT2", "Mamba"])
def test_generation_equals_whole_passes(kind, shared):
    folder, _, ours = shared
    own, lm = language_model(kind, folder, ours)
    texts = generate(lm, ["ab", "<t> a"], SamplingConfig(temperature=0.0, max_new_tokens=8, max_new_bytes=None))
    for sample in texts:
        ids = [ours.end_id, *ours.encode_ordinary(sample.prompt)]
        for token in [*sample.ids, *([ours.end_id] if sample.finish == "end" else [])]:
            with torch.no_grad():
                logits = own(torch.tensor([ids])).logits[0, -1, : ours.vocab_size]
            assert (
                int(logits.masked_fill(~lm.text_ids & (torch.arange(len(logits)) != lm.eos_id), -1e9).argmax()) == token
            )
            ids.append(token)
