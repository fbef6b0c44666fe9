"""Two small lm-eval tasks made from held-out documents; they depend only on the text and the seed.

- `heldout_cloze`: predict the last word of a sentence from the preceding text. A model is right if the word's bytes are
  the most probable ones.
- `heldout_choice`: choose the continuation of a passage among continuations of other passages of similar length, by
  log-probability per byte.

Answers start with a space. There, superwords often span the boundary between prompt and answer; plain BPE tokens
hardly ever do.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenizer import storage
from tokenizer.durable import write_whole
from tokenizer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CLOZE, CHOICE = "heldout_cloze", "heldout_choice"
_CONTEXT_BYTES = 300
_ANSWER_BYTES = 40
_N_CHOICES = 4
# A word of letters that ends a sentence.
_LAST_WORD = re.compile(r" [A-Za-z]{3,}(?=[.!?](?:\s|$))")
_SPACE = re.compile(r"(?<=[A-Za-z,]) (?=[A-Za-z])")
_YAML = """\
task: {task}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
doc_to_text: context
target_delimiter: ""
"""
_CLOZE_YAML = """\
output_type: loglikelihood
doc_to_target: answer
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: perplexity
    aggregation: perplexity
    higher_is_better: false
"""
_CHOICE_YAML = """\
output_type: multiple_choice
doc_to_choice: choices
doc_to_target: label
metric_list:
  - metric: acc_bytes
    aggregation: mean
    higher_is_better: true
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


def write_tasks(folder: Path, documents: Iterable[str], *, n: int, seed: int) -> dict[str, int]:
    """Write both tasks, `NAME.yaml` and `NAME.jsonl`, for `TaskManager(include_path=folder)`.

    Args:
        folder: Folder to write, created if needed; existing files are replaced.
        documents: Held-out text. Each document yields at most one item per task.
        n: Maximum number of items per task.
        seed: Seed for choosing positions and distractors.

    Returns:
        Number of items of each task.

    Raises:
        UserError: If the documents do not contain enough passages for distractors.
    """
    cloze: list[dict[str, Any]] = []
    passages: list[tuple[str, str]] = []
    for document in documents:
        if len(cloze) >= n and len(passages) >= n:
            break
        # Seeded by the text and not by its position: removing other documents does not change this item.
        digest = hashlib.sha256(f"{seed}\n{document}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        words = [m for m in _LAST_WORD.finditer(document) if m.start() >= _CONTEXT_BYTES // 4]
        if words and len(cloze) < n:
            word = words[int(rng.integers(len(words)))]
            cloze.append({"context": _before(document, word.start()), "answer": word[0]})
        places = [m.start() for m in _SPACE.finditer(document) if m.start() >= _CONTEXT_BYTES // 4]
        if places and len(passages) < n:
            place = places[int(rng.integers(len(places)))]
            stop = next((p for p in places if p >= place + _ANSWER_BYTES), None)
            if stop is not None:
                passages.append((_before(document, place), document[place:stop]))
    answers = sorted({answer for _, answer in passages})
    if not cloze or len(answers) < _N_CHOICES:
        raise UserError(
            f"the text has only {len(cloze)} sentences and {len(answers)} passages to make tasks from; at least "
            f"{_N_CHOICES} documents of a few hundred characters are required"
        )
    rng = np.random.default_rng(seed)
    choice = []
    for context, answer in passages:
        others = [other for other in answers if other != answer]
        # Distractors of similar length, so that length does not give the answer away.
        others.sort(key=lambda other: abs(len(other.encode()) - len(answer.encode())))
        near = others[: 8 * _N_CHOICES]
        drawn = [near[i] for i in rng.choice(len(near), _N_CHOICES - 1, replace=False)]
        label = int(rng.integers(_N_CHOICES))
        choice.append({"context": context, "choices": [*drawn[:label], answer, *drawn[label:]], "label": label})
    storage.disk.make_folder(folder)
    for name, items, yaml in ((CLOZE, cloze, _CLOZE_YAML), (CHOICE, choice, _CHOICE_YAML)):
        file = folder.resolve() / f"{name}.jsonl"
        write_whole(file, "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items))
        head = _YAML.format(task=name, file=json.dumps(str(file)))
        write_whole(folder / f"{name}.yaml", head + yaml)
    return {CLOZE: len(cloze), CHOICE: len(choice)}


def _before(document: str, place: int) -> str:
    """The context before a position, starting at a word boundary, without leading white space."""
    start = max(0, place - _CONTEXT_BYTES)
    if start:
        start = document.find(" ", start, place) + 1 or start
    return document[start:place].lstrip()
