"""Files are written through `tokenizer.storage` alone, and nothing executes or unpickles content."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("tokenizer", "superbpe", "lm", "experiments")

MAY_WRITE = {
    "tokenizer/storage.py": "the file operations themselves",
    "tokenizer/files.py": "a temporary folder for spilled counts, which no result refers to",
    "lm/hf/fresh_process.py": "an answer to the parent process, in its temporary folder",
    "lm/hf/export_check.py": "a question to a fresh process, in a temporary folder",
    "lm/hf/export.py": "a temporary folder that is renamed through the storage once it is verified",
    "experiments/extend_model.py": "the same",
    "tokenizer/external/push.py": "a temporary folder that is uploaded",
    "experiments/store/measured.py": "/proc/self/clear_refs, which resets the peak memory",
    "experiments/benchmarks/": "measurements in temporary folders, outside the store",
}
"""Files and folders that may write in other ways, with the reason."""
WRITING_METHODS = {"write_text", "write_bytes", "unlink", "rename", "mkdir", "rmdir", "touch", "symlink_to", "tofile"}
WRITING_MODULES = {"shutil", "tempfile"}
WRITING_OS = {"open", "replace", "rename", "remove", "unlink", "mkdir", "makedirs", "rmdir", "fsync", "link", "symlink"}

EXECUTES = {
    "tests/parity/test_transformers_fast.py": "pickles and unpickles its own tokenizers",
    "tests/tokenizer/test_objects.py": "pickles and unpickles its own objects",
    "tests/tokenizer/corpus/test_parts.py": "pickles and unpickles its own parts",
    "tests/tokenizer/test_definition.py": "pickles and unpickles its own tokenizers",
    "tests/tokenizer/pretrained/test_push.py": "executes the examples of a model card",
    "tests/test_docs_examples.py": "executes the code blocks of the documentation",
}


def sources(*folders: str) -> dict[str, str]:
    """Every module of some folders, by its path."""
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def name_of(call: ast.Call) -> tuple[str, str]:
    """What is called, as (object, name): `os.path.join(a)` is ("os.path", "join")."""
    if isinstance(call.func, ast.Attribute):
        return ast.unparse(call.func.value), call.func.attr
    return "", ast.unparse(call.func)


def writes(source: str) -> list[str]:
    """Calls that write, rename or delete files without `tokenizer.storage`."""
    found = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        owner, name = name_of(call)
        modes = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
        modes += [each.value.value for each in call.keywords if isinstance(each.value, ast.Constant)]
        writing = any(isinstance(mode, str) and re.fullmatch(r"[rbt]*[wax+][wabtx+]*", mode) for mode in modes)
        if (
            (name in WRITING_METHODS and owner not in ("storage.disk", "comparing"))
            or owner in WRITING_MODULES
            or (owner == "os" and name in WRITING_OS)
            or (name == "replace" and len(call.args) == 1 and not call.keywords)  # `str.replace` has two
            or (name == "open" and owner != "storage.disk" and writing)
            or (
                name in ("save", "savez", "savez_compressed")
                and owner == "np"
                and not isinstance(call.args[0], ast.Name)
            )
        ):
            found.append(f"line {call.lineno}: {ast.unparse(call)}")
    return found


def executes(source: str) -> list[str]:
    """Calls that execute, or unpickle, what they are given."""
    found = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        owner, name = name_of(call)
        keywords = {each.arg: ast.unparse(each.value) for each in call.keywords}
        if (
            (owner == "" and name in ("eval", "exec"))
            or owner in ("pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve")
            or (owner == "yaml" and name not in ("safe_load", "safe_dump", "dump"))
            or (owner == "torch" and name == "load" and keywords.get("weights_only") != "True")
            or keywords.get("allow_pickle") == "True"
            or keywords.get("shell") == "True"
            or (owner == "os" and name in ("system", "popen"))
        ):
            found.append(f"line {call.lineno}: {ast.unparse(call)}")
    return found


def test_files_are_written_through_the_storage_alone() -> None:
    found = {path: calls for path, source in sources(*PACKAGES).items() if (calls := writes(source))}
    assert {path: calls for path, calls in found.items() if not path.startswith(tuple(MAY_WRITE))} == {}
    assert [start for start in MAY_WRITE if not any(path.startswith(start) for path in found)] == []


def test_nothing_executes_or_unpickles_content() -> None:
    found = {path: calls for path, source in sources(*PACKAGES, "tests").items() if (calls := executes(source))}
    assert {path: calls for path, calls in found.items() if path not in EXECUTES} == {}
    assert EXECUTES.keys() - found.keys() == set()


def test_rust_writes_only_spilled_counts() -> None:
    """These are named by Python, in a temporary folder (`tokenizer.files.temporary_folder`)."""
    writing = re.compile(r"File::create|create_new|OpenOptions|fs::(write|rename|copy|create_dir|remove)|tempfile")
    rust = [path for path in (ROOT / "native" / "src").rglob("*.rs") if path.name not in ("tests.rs", "properties.rs")]
    found = {path.relative_to(ROOT).as_posix() for path in rust if writing.search(path.read_text(encoding="utf-8"))}
    assert found == {"native/src/count/spill.rs"}


@pytest.mark.parametrize(
    "source",
    [
        "path.open('w')",
        "open(path, mode='ab')",
        "path.write_text(text)",
        "path.replace(other)",
        "os.replace(a, b)",
        "shutil.rmtree(a)",
        "np.save(folder / 'x.npy', array)",
    ],
)
def test_a_write_is_found(source: str) -> None:
    assert writes(source)


def test_reading_is_not_writing() -> None:
    assert writes("path.open('rb'); 'a'.replace('b', 'c'); storage.disk.open(path, 'wb'); Shards.open(folder)") == []


@pytest.mark.parametrize(
    "source",
    [
        "eval(text)",
        "pickle.loads(text)",
        "yaml.load(file)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(command, shell=True)",
    ],
)
def test_a_dangerous_call_is_found(source: str) -> None:
    assert executes(source)


def test_a_method_called_eval_is_not_dangerous() -> None:
    assert executes("model.eval(); torch.load(path, weights_only=True); yaml.safe_load(text)") == []
