import json
import random
import subprocess
import sys

import pytest

from experiments.cli import main
from experiments.commands import downstream
from tests.experiments.models import write_models

PHRASES = ["the name of the request", "returns a list of items", "the value of the service", "creates an error in the"]


def documents(n):
    rng = random.Random(0)
    sentences = ((" ".join(rng.choices(PHRASES, k=3)).capitalize() + "." for _ in range(6)) for _ in range(n))
    return [" ".join(each) + f" Number {i} ends here." for i, each in enumerate(sentences)]


def results(folder):
    return json.loads((folder / "out" / downstream.RESULTS).read_text(encoding="utf-8"))


def test_mistakes_are_one_line(tmp_path, mistake):
    options = ["downstream", tmp_path, "--out", tmp_path / "out", "--tasks", "a"]
    assert "--limit: '0' is not" in mistake(*options, "--limit", "0")
    for words in (options[:2], options[:4]):
        assert "--tasks NAMES, and a folder for the results with --out FOLDER" in mistake(*words)


def write_task(folder, name, kind, path, extra=""):
    """A task on local data (`json`), or on data of the hub."""
    folder.mkdir(exist_ok=True)
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents(4)), encoding="utf-8")
    yaml = f"task: {name}\ndataset_path: {path}\noutput_type: {kind}\ntest_split: test\ndoc_to_text: ''\n"
    yaml += "doc_to_target: '{{text}}'\n" + extra
    if path == "json":
        yaml += f"dataset_kwargs:\n  data_files:\n    test: {data}\n"
    (folder / f"{name}.yaml").write_text(yaml, encoding="utf-8")


@pytest.fixture
def local_library(monkeypatch, tmp_path):
    """The tasks of a folder instead of lm-eval's own, whose 13,000 files take seconds to list."""
    tasks = pytest.importorskip("lm_eval.tasks")
    monkeypatch.setattr(
        downstream, "_library", lambda folder=None: tasks.TaskManager(None, str(folder or tmp_path / "tasks"), False)
    )


@pytest.mark.slow
def test_tasks_by_name_and_through_lm_eval(tmp_path, capsys, mistake, local_library):
    """Tasks are named, unreachable data are one line, and lm-eval with the model's name gives the same values."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    folder = tmp_path / "tasks"
    metrics = "".join(f"  - metric: {name}\n" for name in ("word_perplexity", "bits_per_byte"))
    write_task(folder, "rolling", "loglikelihood_rolling", "json", f"metric_list:\n{metrics}")
    write_task(folder, "remote", "loglikelihood", "nobody/no-such-data")
    write_task(folder, "other", "loglikelihood_rolling", "json", f"metric_list:\n{metrics}")
    (folder / "group.yaml").write_text(
        "group: both\ntask: [rolling, other]\n"
        "aggregate_metric_list:\n  - metric: bits_per_byte\n    weight_by_size: true\n",
        encoding="utf-8",
    )
    path = write_models(tmp_path / "artifacts", documents(40), transition=300, vocab_size=330)[1]
    assert main.run(["downstream", "--tasks", "list"]) == 0
    assert capsys.readouterr().out.split() == ["both", "other", "remote", "rolling"]
    run = [str(path), "--out", str(tmp_path / "out"), "--device", "cpu", "--tasks"]
    assert "unknown task 'roling' (did you mean 'rolling'?)" in mistake("downstream", *run, "roling")
    error = mistake("downstream", *run, "remote")
    assert "cannot load the task remote" in error
    assert "unset HF_HUB_OFFLINE" in error
    assert main.run(["downstream", *run, "rolling"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    rows = results(tmp_path)["rows"]
    ours = {row["metric"]: row["value"] for row in rows}
    assert {"word_perplexity", "bits_per_byte"} <= ours.keys()
    assert f"{ours['bits_per_byte']:.4f}" in shown

    assert main.run(["downstream", *run, "both"]) == 0
    rows = results(tmp_path)["rows"]
    found = {row["task"]: (row["value"], row["n"]) for row in rows if row["metric"] == "bits_per_byte"}
    assert found.keys() == {"both", "rolling", "other"}
    assert found["both"] == (pytest.approx(found["rolling"][0]), 8)
    (folder / "remote.yaml").unlink()
    assert main.run(["downstream", *run, str(folder)]) == 0
    folder_rows = results(tmp_path)["rows"]
    assert [row for row in folder_rows if row["task"] == "rolling"] == [row for row in rows if row["task"] == "rolling"]

    downstream.register()
    result = simple_evaluate(
        "superbpe",
        model_args=f"path={path},device=cpu",
        tasks=["rolling"],
        task_manager=TaskManager(None, str(folder), False),
        bootstrap_iters=0,
    )
    theirs = result["results"]["rolling"]
    assert {metric: theirs[f"{metric},none"] for metric in ours} == ours
    given = ["--model", "superbpe", "--model_args", f"path={path}", "--tasks", "rolling", "--include_path", str(folder)]
    command = [sys.executable, "-m", "experiments", "downstream", "--lm-eval", "run", *given]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "bits_per_byte" in done.stdout


@pytest.mark.slow
def test_models_run_on_tasks_of_a_folder(tmp_path, mistake):
    pytest.importorskip("lm_eval")
    write_models(tmp_path / "artifacts", documents(40), transition=300, vocab_size=330)
    (tasks := tmp_path / "tasks").mkdir()
    items = []
    for i, text in enumerate(documents(5)):
        words = text.split(" ")
        choices = [" " + " ".join(words[n : n + 3]) for n in (9, 3, 6, 12)]
        items.append({"context": " ".join(words[:9]), "choices": choices, "label": 0, "i": i})
    (tasks / "choice.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    (tasks / "choice.yaml").write_text(
        f"task: choice\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {tasks / 'choice.jsonl'}\n"
        "test_split: test\ndoc_to_text: context\ntarget_delimiter: ''\noutput_type: multiple_choice\n"
        "doc_to_choice: choices\ndoc_to_target: label\n"
        "metric_list:\n  - metric: acc_bytes\n    aggregation: mean\n    higher_is_better: true\n",
        encoding="utf-8",
    )
    options = [str(tmp_path / "artifacts"), "--out", str(tmp_path / "out"), "--device", "cpu", "--tasks", str(tasks)]
    assert main.run(["downstream", *options]) == 0
    found = results(tmp_path)
    assert [model["label"] for model in found["models"]] == ["BPE", "SuperBPE"]
    choice = [row for row in found["rows"] if row["metric"] == "acc_bytes"]
    assert [row["model"] for row in choice] == ["BPE", "SuperBPE"]
    assert all(row["n"] == 5 and 0 <= row["value"] <= 1 and row["stderr"] is not None for row in choice)
    facts = found["models"][1]["tasks"]["choice"]
    assert facts["requests"] == 20
    assert facts["straddles"] > 0  # without a fence, of phrases that are repeated
    assert choice[1]["straddle_share"] == facts["straddles"] / 20
    assert main.run(["downstream", *options, "--limit", "3"]) == 0
    again = results(tmp_path)
    assert {(row["task"], row["n"]) for row in again["rows"]} == {("choice", 3)}
    broken = "task: broken\ndataset_path: json\ndataset_kwargs:\n  data_files: missing.jsonl\n"
    (tasks / "broken.yaml").write_text(broken, encoding="utf-8")
    assert "lm-eval cannot load" in mistake("downstream", *options)
    (tmp_path / "empty").mkdir()
    assert "empty has no lm-eval tasks" in mistake("downstream", *options[:-1], tmp_path / "empty")
