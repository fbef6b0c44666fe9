import json
import xml.etree.ElementTree as ET

import pyarrow.parquet as pq
import pytest

from experiments.cli import main
from experiments.commands import inspect as command
from superbpe import train_superbpe
from superbpe.inspection import history
from tests import texts
from tokenizer import Batch, count_pretokens, train_bpe

TEXT = "\n".join(text[:1000] for text in texts.english()[0][:6])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A text, and the folders of a plain tokenizer and one with superwords."""
    root = tmp_path_factory.mktemp("history")
    (root / "text.txt").write_text(TEXT)
    batch = Batch.from_texts([TEXT])
    phase1 = train_bpe(count_pretokens([batch], "superbpe", unit="line"), 256 + 40 + 1)
    both = train_superbpe(phase1, lambda: [batch], vocab_size=256 + 60 + 1, rules="uw-2025", transition_merges=30)
    phase1.save(root / "bpe")
    both.save(root / "superbpe")
    return root, phase1, both


def test_writes_a_log_per_tokenizer_and_a_plot(folders, tmp_path, capsys):
    root, _, both = folders
    arguments = [str(root / "bpe"), str(root / "superbpe"), "--text", str(root / "text.txt"), "--out", str(tmp_path)]
    assert main.run(["history", *arguments]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["curve.svg", "merges-bpe.parquet", "merges-superbpe.parquet"]
    )
    log = pq.read_table(tmp_path / "merges-superbpe.parquet").to_pylist()
    assert len(log) == 60
    assert log[-1]["tokens"] == len(both.encode_ordinary(TEXT))
    drawn = "".join(ET.parse(tmp_path / "curve.svg").getroot().itertext())
    assert "superbpe (superbpe, uw-2025-fence)" in drawn
    assert "SuperBPE, t = 80k" in drawn
    assert "tokens saved" in capsys.readouterr().out


def test_json_lines_and_no_published_curves(folders, tmp_path):
    root, _, _ = folders
    arguments = [str(root / "superbpe"), "--text", str(root / "text.txt"), "--out", str(tmp_path), "--jsonl"]
    assert main.run(["history", *arguments, "--no-published"]) == 0
    lines = (tmp_path / "merges-superbpe.jsonl").read_text().splitlines()
    assert [json.loads(line)["phase"] for line in lines] == [1] * 30 + [2] * 30
    assert "t = 80k" not in (tmp_path / "curve.svg").read_text()


def test_names_fields_and_separators(folders, tmp_path, capsys):
    root, phase1, _ = folders
    (tmp_path / "body.jsonl").write_text(json.dumps({"body": "some of the text"}) + "\n")
    arguments = [
        f"mine={root / 'bpe'}",
        "--text",
        str(tmp_path / "body.jsonl"),
        "--out",
        str(tmp_path),
        "--no-published",
    ]
    assert main.run(["history", *arguments, "--field", "body"]) == 0
    assert pq.read_table(tmp_path / "merges-mine.parquet").num_rows == len(phase1.merge_ids)
    assert main.run(["history", *arguments, "--field", "body"]) == 2
    assert "add --overwrite" in capsys.readouterr().err
    (tmp_path / "two.txt").write_text("some of\n\nthe text")
    arguments[2] = str(tmp_path / "two.txt")
    assert main.run(["history", *arguments, "--overwrite", "--separator", "\\n\\n"]) == 0
    log = pq.read_table(tmp_path / "merges-mine.parquet").to_pylist()
    assert log[-1]["tokens"] == len(phase1.encode_ordinary("some of")) + len(phase1.encode_ordinary("the text"))
    assert main.run(["history", str(root / "bpe"), str(root / "bpe"), *arguments[1:]]) == 2
    assert "write NAME=PATH" in capsys.readouterr().err
    assert main.run(["history", f"a/b={root / 'bpe'}", *arguments[1:]]) == 2
    assert "cannot be a file name" in capsys.readouterr().err


@pytest.mark.parametrize(("tokenizer", "text"), [("nowhere", "text.txt"), ("bpe", "nowhere.txt")])
def test_a_missing_file_is_named(folders, tmp_path, capsys, tokenizer, text):
    root, _, _ = folders
    assert main.run(["history", str(root / tokenizer), "--text", str(root / text), "--out", str(tmp_path)]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_points_of_a_curve_include_the_transition_and_the_end(folders):
    _, _, both = folders
    rows = command.curve_rows(history.measure(both, [Batch.from_texts([TEXT])]), "x")
    sizes = [row["vocab_size"] for row in rows]
    assert sizes == sorted(set(sizes))
    assert {256 + 30 + 1, 256 + 60 + 1} <= set(sizes)
