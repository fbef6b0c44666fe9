"""Components of tokenizer.json that are not applied: a warning names those with which HF gives something else."""

import re
import warnings

import pytest

from tests.tokenizer.formats.other_formats import added, hf_file
from tokenizer import Tokenizer, formats

tokenizers = pytest.importorskip("tokenizers")

TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [260], "tokens": ["<s>"]}},
}
NO_TOKENS = TEMPLATE | {"single": [{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {}}
WORD_PIECE = {"type": "WordPiece", "prefix": "##", "cleanup": True}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
TRUNCATION = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    "strategy": {"Fixed": 40},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "a",
}


@pytest.mark.parametrize(
    ("part", "value", "warning"),
    [
        ("post_processor", None, None),
        ("post_processor", BYTE_LEVEL, None),
        ("post_processor", NO_TOKENS, None),
        ("post_processor", TEMPLATE, "post-processor TemplateProcessing .* adds special tokens"),
        (
            "post_processor",
            {"type": "Sequence", "processors": [BYTE_LEVEL, TEMPLATE]},
            "post-processor TemplateProcessing .* adds special tokens",
        ),
        (
            "post_processor",
            {"type": "BertProcessing", "sep": ["<s>", 260], "cls": ["<s>", 260]},
            "post-processor BertProcessing",
        ),
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
