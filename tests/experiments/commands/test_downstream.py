import json
import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as HfTokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from experiments.cli import main
from experiments.commands import downstream
from experiments.given_models import Loading
from experiments.store.trained_models import open_model
from lm.bytelevel.byte_model import ByteModel
from lm.hf.export import export_hf
from lm.model.language_model import LanguageModel
from tests.experiments.models import write_models
from tests.lm.hf.test_scoring import made
from tokenizer.errors import UserError

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
    assert "missing: --tasks NAMES, --out FOLDER" in mistake(*options[:2])
    assert "missing: --out FOLDER" in mistake(*options[:2], *options[4:])


def test_models_whose_tokenizers_are_not_byte_level_bpe_are_rejected(tmp_path):
    made("GPT2").save_pretrained(tmp_path / "gpt")
    words = HfTokenizer(WordLevel({"a": 0, "<eos>": 1}, unk_token="<eos>"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>").save_pretrained(tmp_path / "gpt")
    with pytest.raises(UserError, match=r"gpt cannot be scored in bytes.*WordLevel"):
        downstream.opened([str(tmp_path / "gpt")], Loading("cpu"))


@pytest.mark.parametrize(
    ("kind", "gold", "place"),
    [
        ("multiple_choice", 1, 1),
        ("multiple_choice", " bc", 1),
        ("multiple_choice", [0, 1], None),
        ("multiple_choice", 5, None),
        ("loglikelihood", " a", 0),
        ("loglikelihood_rolling", " a", None),
    ],
)
@pytest.mark.parametrize("of_contexts", [False, True])
def test_right_answers_in_bits_per_byte(kind, gold, place, of_contexts):
    class Task:
        OUTPUT_TYPE, multiple_input = kind, 2 * of_contexts

        def doc_to_choice(self, doc):
            return [" a", " bc"]

        def doc_to_text(self, doc):
            return gold

    answers = [("x", " a"), ("x", " bé")]
    target = "of all contexts" if of_contexts else gold
    sample = {"doc": {}, "target": target, "arguments": answers, "resps": [[(-2.0, False)], [(-3.0, True)]]}
    expected = None if place is None else [2.0 / 2, 3.0 / 4][place] / np.log(2)
    assert downstream._gold_bits(Task(), sample) == pytest.approx(expected)


def write_task(folder, name, rows, **config):
    """A task of lm-eval on these rows; YAML may be JSON."""
    folder.mkdir(exist_ok=True)
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    kwargs = {"data_files": {"test": str(data)}}
    config = {"task": name, "dataset_path": "json", "dataset_kwargs": kwargs, "test_split": "test", **config}
    (folder / f"{name}.yaml").write_text(json.dumps(config), encoding="utf-8")


@pytest.fixture
def local_library(monkeypatch, tmp_path):
    """The tasks of a folder instead of lm-eval's own, whose 13,000 files take seconds to list."""
    tasks = pytest.importorskip("lm_eval.tasks")

    def library(folder=None):
        return tasks.TaskManager(None, str(folder or tmp_path / "tasks"), False)

    monkeypatch.setattr(downstream, "_library", library)


@pytest.mark.slow
def test_tasks_by_name_and_through_lm_eval(tmp_path, capsys, mistake, local_library):
    """Tasks are named, unreachable data are one line, and lm-eval with the model's name gives the same values."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    folder = tmp_path / "tasks"
    texts = [{"text": text} for text in documents(4)]
    metrics = [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}]
    whole = {"doc_to_text": "", "doc_to_target": "{{text}}", "metric_list": metrics}
    for name in ("rolling", "other"):
        write_task(folder, name, texts, output_type="loglikelihood_rolling", **whole)
    write_task(folder, "remote", [], output_type="loglikelihood", **whole | {"dataset_path": "nobody/no-such-data"})
    group = {"group": "both", "task": ["rolling", "other"]}
    group["aggregate_metric_list"] = [{"metric": "bits_per_byte", "weight_by_size": True}]
    (folder / "group.yaml").write_text(json.dumps(group), encoding="utf-8")
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
    manager = TaskManager(None, str(folder), False)
    words = {"model_args": f"path={path},device=cpu", "tasks": ["rolling"], "task_manager": manager}
    result = simple_evaluate("superbpe", **words, bootstrap_iters=0)
    theirs = result["results"]["rolling"]
    assert {metric: theirs[f"{metric},none"] for metric in ours} == ours
    given = ["--model", "superbpe", "--model_args", f"path={path}", "--tasks", "rolling", "--include_path", str(folder)]
    capsys.readouterr()
    assert main.run(["downstream", "--lm-eval", "run", *given]) == 0
    assert "bits_per_byte" in capsys.readouterr().out


@pytest.mark.slow
def test_models_run_on_tasks_of_a_folder(tmp_path, mistake, monkeypatch):
    pytest.importorskip("lm_eval")
    write_models(tmp_path / "artifacts", documents(40), transition=300, vocab_size=330)
    tasks, items = tmp_path / "tasks", []
    for text in documents(5):
        words = text.split(" ")
        choices = [" " + " ".join(words[n : n + 3]) for n in (9, 3, 6, 12)]
        items.append({"context": " ".join(words[:9]), "choices": choices, "label": 0})
    config = {"output_type": "multiple_choice", "doc_to_text": "context", "doc_to_choice": "choices"}
    config |= {"doc_to_target": "label", "target_delimiter": ""}
    metric = {"metric": "acc_bytes", "aggregation": "mean", "higher_is_better": True}
    write_task(tasks, "choice", items, **config, metric_list=[metric])
    for artifact in sorted((tmp_path / "artifacts").glob("lm-*")):  # the same models from elsewhere
        lm = LanguageModel(*open_model(artifact, device="cpu"))
        export_hf(lm.model, lm.tokenizer, tmp_path / f"hf-{artifact.name}")
    exported = sorted(map(str, tmp_path.glob("hf-*")))
    options = [str(tmp_path / "artifacts"), *exported, "--out", str(tmp_path / "out"), "--device", "cpu"]
    options += ["--tasks", str(tasks)]
    monkeypatch.chdir(tmp_path)
    assert main.run(["downstream", *options]) == 0
    found = results(tmp_path)
    labels = ["BPE", "SuperBPE", *(Path(place).name for place in exported)]
    assert [model["label"] for model in found["models"]] == labels
    assert all(model["lm"].startswith("model-") for model in found["models"][2:])
    values = {}
    for row in found["rows"]:
        values.setdefault(row["metric"], []).append(row["value"])
    for metric, of_models in values.items():
        assert of_models[2:] == pytest.approx(of_models[:2], abs=1e-5), metric
    model = ByteModel(lm)
    nats = [model.log_prob(item["choices"][0], item["context"]) / len(item["choices"][0].encode()) for item in items]
    assert values["gold_bits_per_byte"][1] == pytest.approx(-np.mean(nats) / np.log(2), abs=1e-5)
    choice = [row for row in found["rows"] if row["metric"] == "acc_bytes"]
    assert [row["model"] for row in choice] == labels
    assert all(row["n"] == 5 and 0 <= row["value"] <= 1 and row["stderr"] is not None for row in choice)
    facts = found["models"][1]["tasks"]["choice"]
    assert facts["requests"] == 20
    assert facts["straddles"] > 0  # without a fence, of phrases that are repeated
    assert choice[1]["straddle_share"] == facts["straddles"] / 20
    assert main.run(["downstream", *options, "--limit", "3"]) == 0
    assert {(row["task"], row["n"]) for row in results(tmp_path)["rows"]} == {("choice", 3)}
    write_task(tasks, "broken", [], dataset_kwargs={"data_files": "missing.jsonl"})
    assert "lm-eval cannot load" in mistake("downstream", *options)
    (tmp_path / "empty").mkdir()
    assert "empty has no lm-eval tasks" in mistake("downstream", *options[:-1], tmp_path / "empty")
