import json

import pytest

from tests import texts
from tests.parity import at_scale
from tests.tokenizer.corpus.corpora import write_jsonl


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    documents = [*texts.sample(300_000), *texts.various(), *texts.prose()[:10]]
    return write_jsonl(tmp_path_factory.mktemp("parity") / "a.jsonl", [{"text": text} for text in documents if text])


def run(corpus, capsys, n_bytes):
    code = at_scale.main([str(corpus), "--bytes", n_bytes, "--train-bytes", "300kB", "--vocab-size", "1200"])
    return code, capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_no_id_differs(corpus, capsys):
    code, lines = run(corpus, capsys, "5MB")
    assert code == 0, lines
    assert [line.split(":")[0] for line in lines[:-1]] == [
        f"{name}, {library}"
        for name in (*at_scale.PATTERNS, at_scale.SUPERWORDS)
        for library in (at_scale.HF, at_scale.TIKTOKEN)
    ]
    assert not any(", 0 documents" in line for line in lines)


def test_a_difference_is_found(corpus, capsys, monkeypatch):
    real = at_scale.formats.hf_json

    def other(tokenizer):
        text = json.dumps(real(tokenizer))
        return json.loads(text.replace("{1,3}", "{1,2}"))

    monkeypatch.setattr(at_scale.formats, "hf_json", other)
    monkeypatch.setattr(at_scale, "PATTERNS", ("llama3", "superbpe"))
    code, lines = run(corpus, capsys, "300kB")
    assert code == 1
    assert lines[0].startswith("llama3, tokenizers: ")
    assert not lines[0].endswith(" 0 differences")
    assert len(lines) > 7  # with some of the text
