"""Other software on hostile files: a limit on time and memory while loading, Ctrl-C while encoding."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import hostile_tokenizers as hostile
from tests import other_tokenizers
from tests.tokenizer.formats.other_formats import added
from tokenizer import UserError, formats, train_bpe
from tokenizer.external import software
from tokenizer.external.load import load_pretrained, load_saved

pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")


# Each takes the second that a load may take.
OFTEN = ["doubling_normalizer", "swelling_model"]
RARELY = [pytest.param(kind, marks=pytest.mark.slow) for kind in hostile.FILES if kind not in OFTEN]


@pytest.mark.slow
@pytest.mark.parametrize("kind", OFTEN + RARELY)
def test_hostile_files_are_rejected_in_one_line(kind, tmp_path):
    hostile.case(random.Random(kind), tmp_path, kind)


def test_memory_is_limited_and_a_crash_is_an_error(tmp_path, monkeypatch):
    path = other_tokenizers.write(tmp_path, "words")
    load_pretrained(path).tokenizer.save(tmp_path / "saved")
    monkeypatch.setattr(software, "GIGABYTES", 0)
    for load, source in ((load_pretrained, path), (load_saved, tmp_path / "saved")):
        with pytest.raises(UserError, match="damaged or hostile"):
            load(source)


@pytest.mark.parametrize("kind", hostile.CLASSES)
def test_no_class_is_built_for_a_warning(kind, tmp_path):
    formats.write(train_bpe(["a b"], 258), tmp_path / "tokenizer.json", "hf")
    config = {"tokenizer_class": kind, "extra_ids": 10**9}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    code = f"""if True:
        import resource, sys
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        from tokenizer.external.load import load_pretrained
        load_pretrained({str(tmp_path)!r})
        assert "transformers" not in sys.modules"""
    if kind == hostile.CLASSES[0]:  # the others take the same way
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    load_pretrained(tmp_path)


ENCODE = """if True:
    from pathlib import Path
    from tokenizer.external.software import HuggingFace
    from tokenizer.external.tokenizer import ExternalTokenizer
    tokenizer = ExternalTokenizer(HuggingFace(Path("hard/tokenizer.json").read_bytes(), "hard", tried=True))
    print("encoding", flush=True)
    tokenizer.encode_ordinary("a" * 120_000)"""
COMMAND = """if True:
    import sys, threading, time
    from tokenizer.external import software
    software._try = lambda *_: None
    def report():
        time.sleep(1)
        while not software.running:
            time.sleep(0.1)
        print("encoding", flush=True)
    threading.Thread(target=report, daemon=True).start()
    sys.argv = ["superbpe", *sys.argv[1:]]
    from experiments.__main__ import main
    main()"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("words", ["", pytest.param("encode hard text.txt --to to", marks=pytest.mark.slow)])
def test_ctrl_c_ends_a_process_in_which_other_software_encodes(words, tmp_path):
    (tmp_path / "hard").mkdir()
    content = json.loads(hostile.long_words(random.Random(0)))
    content["model"]["vocab"] = {"?": 0, "a": 1, "##a": 2, "<|endoftext|>": 3}
    content["added_tokens"] = [added("<|endoftext|>", 3)]
    (tmp_path / "hard" / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "text.txt").write_text("a" * 120_000)
    code = COMMAND if words else ENCODE
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(
        [sys.executable, "-c", code, *words.split()],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as run:
        try:
            said = next((line for line in run.stdout if line == "encoding\n"), "")
            assert said, run.returncode
            began = time.monotonic()
            run.send_signal(signal.SIGINT)
            rest, _ = run.communicate(timeout=20)
            assert time.monotonic() - began < 5, rest  # about 1 s on an idle machine
        finally:
            run.kill()
    assert run.returncode == (130 if words else -signal.SIGINT), rest
