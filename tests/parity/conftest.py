"""Fixtures of several comparisons with other software."""

import pytest


@pytest.fixture
def hf():
    """The module, with AutoTokenizer as it leaves it; other tests have the stock one."""
    import transformers

    from tokenizer.hf import tokenizer as hf

    stock = transformers.AutoTokenizer.__dict__["from_pretrained"]
    hf.register()
    hf.register()  # the second call changes nothing
    yield hf
    transformers.AutoTokenizer.from_pretrained = stock
