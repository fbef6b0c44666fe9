"""Nothing unpickles content or runs a model's code, and the core writes no results. Ruff (S) rejects `eval`, shells."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("tokenizer", "superbpe", "lm", "experiments")
OPTIONS = ("allow_pickle", "weights_only", "trust_remote_code")


def test_weights_and_arrays_are_loaded_without_pickle_and_models_without_their_code():
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for call in (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", "")
            options = {each.arg: ast.unparse(each.value) for each in call.keywords if each.arg in OPTIONS}
            assert options.get("allow_pickle") != "True", path
            if name == "load" and ast.unparse(call.func) == "torch.load":
                assert options.get("weights_only") == "True", path
            loads = name in ("from_pretrained", "from_config", "load_dataset")
            if loads and ast.unparse(call.func) != "super().from_pretrained" and "**options" not in ast.unparse(call):
                assert options.get("trust_remote_code") == "False", (path, call.lineno)


def test_rust_writes_only_spilled_counts():
    """These are named by Python, in a temporary folder (`tokenizer.files.temporary_folder`)."""
    writing = re.compile(r"File::create|create_new|OpenOptions|fs::(write|rename|copy|create_dir|remove)|tempfile")
    rust = [path for path in (ROOT / "native" / "src").rglob("*.rs") if path.name not in ("tests.rs", "properties.rs")]
    found = {path.relative_to(ROOT).as_posix() for path in rust if writing.search(path.read_text(encoding="utf-8"))}
    assert found == {"native/src/count/spill.rs"}
