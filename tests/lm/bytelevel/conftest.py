"""Paths that the models of one tokenizer share."""

import functools

import pytest

from lm.bytelevel import byte_model
from lm.bytelevel.tokenization_paths import TokenizationPaths


@pytest.fixture(scope="module", autouse=True)
def paths_are_found_once():
    """Finding them takes most of the time: models of one tokenizer share what they have found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_model, "TokenizationPaths", functools.cache(TokenizationPaths))
        yield
