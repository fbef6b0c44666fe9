"""Sweeps through the entry point of the command line, and their tables."""

import json
import subprocess
from dataclasses import replace

import pytest

from experiments import pipeline
from experiments.cli import main
from experiments.cli.sweep import share_out, summarize
from experiments.results import ArmRecord, ComparisonRecord
from experiments.store.records import Record
from tests.experiments.outputs import command
from tests.experiments.outputs import run_until as run
from tokenizer.errors import UserError


def test_cells_and_their_threads_share_the_cores(monkeypatch):
    monkeypatch.setattr("experiments.cli.sweep.thread_count", lambda _: 8)
    for n_jobs, threads, n_cells, jobs, share in (
        (-1, None, 3, 3, 2),
        (-1, None, 100, 8, 1),
        (-1, 4, 100, 2, 4),
        (-1, 16, 100, 1, 16),
        (2, None, 100, 2, 4),
        (-2, None, 100, 7, 1),
        (2, None, 1, 1, 8),
        (4, 2, 100, 4, 2),
    ):
        shares = share_out({"n_jobs": n_jobs}, "joblib", n_cells, threads)
        assert shares == [f"hydra.launcher.n_jobs={jobs}", f"runner.threads={share}"]


def test_a_table_of_cells_done_failed_and_killed(tmp_path, capsys):
    def record(number, results=None, error=None):
        folder = tmp_path / str(number)
        folder.mkdir()
        cell = Record(str(folder), [], [f"superbpe.transition=0.{number}"], number, sweep=str(tmp_path))
        cell.save()
        if error:
            cell.failed(error)
        elif results:
            cell.done([results], tmp_path / "report.html")

    common = {"shards": "shards-1", "heldout": "shards-2", "lms": ["lm-1"], "vocab_size": 400, "bytes_per_token": 4.5}
    common |= {"bits_per_byte": 1.25, "evaluations": ["evaluation-1"]}
    bpe = ArmRecord(
        key="bpe", label="bpe", tokenizer="tokenizer-1", percent=None, percent_interval=None, verdict="", **common
    )
    sides = [bpe, replace(bpe, key="superbpe", percent=-0.125, percent_interval=(-0.5, 0.25), verdict="undecided")]
    record(0, results=ComparisonRecord(arms=sides, confidence=0.95))
    record(1, error=UserError("no pairs;\n use more text"))
    record(2, error=ZeroDivisionError("by zero"))
    record(3)
    worse = [sides[0], replace(sides[1], percent=1.5, percent_interval=(0.5, 2.5), verdict="worse")]
    record(4, results=ComparisonRecord(arms=worse, confidence=0.95))
    record(5, results=ComparisonRecord(arms=worse, confidence=0.95))
    cells = summarize(tmp_path, 7)
    ends = [("done", 0), ("failed", 2), ("failed", 1), ("failed", 1), ("done", 0), ("done", 0)]
    assert [(cell.status, cell.exit_code) for cell in cells] == ends
    told = capsys.readouterr()
    words = ("−0.12 (−0.50", "undecided", "worse", "as above", "transition", "sweep.json", "next:")
    for expected in (*words, str(tmp_path / "report.html")):
        assert expected in told.out
    assert "cell 1 (superbpe.transition=0.1): no pairs; use more text (exit code 2)" in told.err
    assert "cell 2 (superbpe.transition=0.2): ZeroDivisionError: by zero (exit code 1)" in told.err
    assert "cell 3 (superbpe.transition=0.3): the process of this cell was killed" in told.err
    assert [cell.status for cell in summarize(tmp_path, 7, stopped=True)][3] == "interrupted"
    assert "3 of 7 cells failed; 1 of 7 cells did not finish; the same command repeats only what is missing" in told.err
    table = json.loads((tmp_path / "sweep.json").read_text())["cells"]
    assert [arm["percent"] for arm in table[0]["results"]["arms"]] == [None, -0.125]
    assert table[1]["error"] == "no pairs; use more text"
    assert len(table) == 6


def test_a_sweep_over_groups_lists_and_seeds(tiny, tmp_path, monkeypatch):
    seen = []

    def note(config, *_, **__):
        seen.append((config.pattern, config.bpe.special_tokens, config.budget.train_bytes, config.lm.train.seed))
        return pipeline.Outcome()

    monkeypatch.setattr(pipeline, "run", note)
    sweep = ["bpe.special_tokens=['<|endoftext|>'],['<|endoftext|>','b,c']", "lm.train.seed=range(1,2)"]
    sweep.append("pattern=gpt2,llama3")
    assert run("train_lm", [*tiny, "--multirun", *sweep, "budget.train_bytes=81920"]) == 0
    table = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert table["n_cells"] == len(table["cells"]) == len(seen) == 4
    assert ("llama3", ["<|endoftext|>", "b,c"], 81920, 1) in seen
    for cell in table["cells"]:
        keys = {text.partition("=")[0] for text in cell["swept"]}
        assert (cell["status"], keys) == ("done", {"pattern", "bpe.special_tokens", "lm.train.seed"})


@pytest.mark.slow
def test_cells_at_the_same_time_make_nothing_twice(tiny, tmp_path):
    """Two processes run the same sweep: every stage is made by one of them."""
    sweep = ["--multirun", "superbpe.transition=0.8,0.9"]
    places = [[f"hydra.sweep.dir={tmp_path / name}"] for name in ("one", "two")]
    commands = [command("train-superbpe", [*tiny, *sweep, *place]) for place in places]
    processes = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for words in commands]
    out = "".join(process.communicate()[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    made = [line.split(" s  ")[1].split()[0] for line in out.splitlines() if line.startswith("✓")]
    assert sorted(made) == ["bpe", "count", "phase1", "superbpe", "superbpe"]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_launchers_that_start_processes(tiny, tmp_path, launcher):
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
    tiny = [text for text in tiny if not text.startswith("runner.threads")]
    # Of the four cells one cannot be: a transition at 410 with a vocabulary of 400.
    sweep = ["superbpe.transition=300,410", "bpe.vocab_size=420,400", f"hydra/launcher={launcher}"]
    # From a new process: a fork of this one may inherit locks that threads of earlier tests held.
    words = command("train-superbpe", [*tiny, "--multirun", *sweep])
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    table = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [cell["status"] for cell in table["cells"]].count("failed") == 1
    # The command that started the sweep, not the launcher's own.
    (shown,) = {cell["command"] for cell in table["cells"]}
    assert "-m experiments pipeline --until train-superbpe" in shown
    assert len(list((tmp_path / "artifacts").glob("count-*"))) == 1
    assert "1 of 4 cells failed" in ran.stderr
    threads = {text for cell in table["cells"] for text in cell["overrides"] if text.startswith("runner.threads=")}
    assert len(threads) == (launcher == "joblib")  # whose cells share this machine's cores


@pytest.mark.slow
def test_any_working_folder_runs_and_keeps_the_files_of_others(corpus, tmp_path, monkeypatch, mistake):
    words = ["corpus=files", f"corpus.paths=['{corpus}']", "artifacts=artifacts", "hydra.sweep.dir=sweep"]
    for name in ("it's k=v", "a, [b] back\\slash\\"):
        (folder := tmp_path / name).mkdir()
        monkeypatch.chdir(folder)
        others = {
            "other/run.json": "{}",
            "run.json": "no",
            "1/0/run.json": '{"folder": "", "overrides": [], "number": 0}',
        }
        for other, text in others.items():
            (folder / "sweep" / other).parent.mkdir(parents=True, exist_ok=True)
            (folder / "sweep" / other).write_text(text)
        for sizes in ("400,410,420", "400,410"):
            assert main.run(["pipeline", "-m", "--until", "count", *words, f"bpe.vocab_size={sizes}"]) == 0
            cells = json.loads((folder / "sweep" / "sweep.json").read_text())["cells"]
            assert len(cells) == len(sizes.split(","))
        assert {other: (folder / "sweep" / other).read_text() for other in others} == others
        assert not (folder / "sweep" / "2" / "run.json").exists()
        assert main.run(["status", str(folder / "artifacts")]) == 0
    (folder := tmp_path / "${x}").mkdir()
    monkeypatch.chdir(folder)
    assert "run the command in another folder" in mistake("pipeline", *words)
