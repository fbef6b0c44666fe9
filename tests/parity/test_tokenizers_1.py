"""Every export in `tokenizers` 1.0, which has no regex engine: equal ids, or a card that names the readers.

pip install --target FOLDER --no-deps tokenizers==1.0.0rc3
SUPERBPE_TOKENIZERS_1=FOLDER python -m pytest tests/parity/test_tokenizers_1.py
"""

import json
import os
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

from superbpe import train_superbpe
from superbpe.rules import PHASE1, PRESETS
from tests import texts
from tests.parity.peers import around, joining
from tokenizer import UserError, formats, patterns, train_bpe
from tokenizer.formats.hf import NEEDS_ENGINE, NEWER_TABLES, newest_readers

FOLDER = os.environ.get("SUPERBPE_TOKENIZERS_1", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="SUPERBPE_TOKENIZERS_1 names no folder with tokenizers 1.0"),
]
TEXTS = ["", " ", "a  b\r\n\n 12345 don't", "日本語 テキスト 🙂", "x" * 100, "1" * 9, "<|endoftext|>"]
TEXTS += texts.sample(20_000)
KNOWN = {"llama3", "spans", "digits1", "o200k", "none", "digits-fence", "rules digits", "rules none"}
_ENCODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tokenizers
found, texts = {"version": tokenizers.__version__}, json.load(sys.stdin)
for path in sys.argv[2:]:
    try:
        opened = tokenizers.Tokenizer.from_file(path)
        found[path] = [opened.encode(text, add_special_tokens=False).ids for text in texts]
    except Exception as error:
        found[path] = str(error)
print(json.dumps(found))
"""


def exports():
    documents = texts.sample(60_000)
    for name in patterns.NAMES:
        yield name, train_bpe(documents, 400, pattern=name)
    for name in PRESETS:
        base = train_bpe(documents, 400, pattern=PHASE1[name]["pattern"])
        if PRESETS[name].phase1_fence == "lifted":
            yield f"rules {name}", train_superbpe(base, documents, vocab_size=460, rules=name, transition=350)


def in_version_1(paths, given):
    command = [sys.executable, "-I", "-c", _ENCODE, FOLDER, *paths]
    run = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


@pytest.mark.parametrize("pattern", ["none", "digits-fence", "llama3", "digits1", "o200k"])
def test_ids_of_every_character_are_equal_or_the_difference_is_stated(pattern, scalars, tmp_path):
    """Where ids differ, it is in characters that `tokenizers` before 1.0 does not have in any class."""
    ours, path = joining(pattern), str(tmp_path / "tokenizer.json")
    formats.write(ours, path, "hf")
    given = [around(character) for character in scalars]
    ids, offsets = ours.encode_batch(given)
    expected = [row.tolist() for row in np.split(ids, offsets[1:-1])]
    found = in_version_1([path], given)[path]
    different = [c for c, one, other in zip(scalars, found, expected, strict=True) if one != other]
    if newest_readers(ours) is None:
        assert different == []
    else:
        assert newest_readers(ours) == NEWER_TABLES
        assert 4600 < len(different) < 4800
        assert {unicodedata.category(character) for character in different} <= {"Cn"}


@pytest.mark.filterwarnings("ignore")
def test_every_export_in_both_versions(tmp_path):
    hf = pytest.importorskip("tokenizers")
    paths, engines = {}, {}
    for name, tokenizer in exports():
        paths[name] = str(tmp_path / f"{name}.json")
        formats.write(tokenizer, paths[name], "hf")
        engines[name] = newest_readers(tokenizer) == NEEDS_ENGINE
        card = tmp_path / name / "card" / "README.md"
        try:
            tokenizer.push_to_hub("org/name", to=card.parent)
        except UserError as error:
            pytest.skip(str(error))
        assert (NEEDS_ENGINE in card.read_text(encoding="utf-8")) == engines[name]
        assert (NEWER_TABLES in card.read_text(encoding="utf-8")) == (newest_readers(tokenizer) == NEWER_TABLES)
    found = in_version_1(paths.values(), TEXTS)
    assert found["version"].startswith("1.")
    for name, path in paths.items():
        theirs = hf.Tokenizer.from_file(path)
        if engines[name]:
            assert "needs a system-regex backend" in found[path], name
        else:
            assert found[path] == [theirs.encode(text, add_special_tokens=False).ids for text in TEXTS], name
    assert {name for name, needed in engines.items() if not needed} == KNOWN
