"""Old module names are accepted with a warning."""

import importlib
import subprocess
import sys

import pytest

from tokenizer.moved import MOVED

OPTIONAL = {"lm.harness", "tokenizer.hf_batches", "tokenizer.hf_encoding"}  # need an extra


@pytest.mark.parametrize("old", sorted(MOVED.keys() - OPTIONAL))
def test_an_old_name_gives_the_module(old, monkeypatch):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=MOVED[old]):
        module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert module.__spec__.name == MOVED[old]


def test_old_names_in_a_module_that_became_a_package():
    with pytest.warns(DeprecationWarning, match=r"lm\.model\.transformer"):
        from lm.model import Transformer
    from lm.model.transformer import Transformer as New

    assert Transformer is New
    with pytest.raises(ImportError, match="no_such_name"):
        from lm.model import no_such_name  # noqa: F401


@pytest.mark.slow
def test_new_names_do_not_warn():
    code = "import tokenizer, superbpe, lm.train.loop, experiments.config"
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", code], check=True)
