"""The modules of the Rust core use each other without cycles, and only the binding knows Python."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "native" / "src"

# Rooms of the core, each of which uses only those before it.
ROOMS = ["runtime", "vocabulary", "text", "pretokenize", "count", "encode", "train", "files", "python", "properties"]


def module(path: Path) -> tuple[str, ...]:
    """The module that a file is: ("text", "batch") for text/batch.rs, ("text",) for text/mod.rs, () for lib.rs."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def code(text: str) -> str:
    """The source without comments, strings and unit tests."""
    text = text.partition("#[cfg(test)]\nmod tests {")[0]
    return re.sub(r'//[^\n]*|r#".*?"#|"(?:\\.|[^"\\])*"', "", text, flags=re.DOTALL)


def paths(tree: str) -> list[str]:
    """The paths of a `use` tree: a::{b, c::{self, d}} gives a::b, a::c::self and a::c::d."""
    start, brace, rest = tree.strip().partition("{")
    if not brace:
        return [start.strip()]
    items, depth = [""], 0
    for character in rest[: rest.rindex("}")]:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and not depth:
            items.append("")
        else:
            items[-1] += character
    return [start + path for item in items if item.strip() for path in paths(item)]


def used(name: tuple[str, ...], text: str, modules: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """The other modules whose items a module names by a path from `crate` or `super`."""
    found = set()
    trees = re.findall(r"\buse\s+((?:crate|super)\b[^;]*);", text)
    inline = re.findall(r"\b(?:crate|super)(?:::\w+)+", re.sub(r"\buse\s[^;]*;", "", text))
    for path in [path for tree in trees for path in paths(tree)] + inline:
        parts = path.split("::")
        base = [] if parts[0] == "crate" else list(name)
        while parts[0] in ("crate", "super"):
            base = base[:-1] if parts[0] == "super" else base
            parts = parts[1:]
        full = (*base, *parts)
        found.add(next(full[:n] for n in range(len(full), -1, -1) if full[:n] in modules))
    return found - {name}


def graph() -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Every module and those that it uses."""
    texts = {module(path): code(path.read_text()) for path in SOURCE.rglob("*.rs") if path.name != "tests.rs"}
    return {name: used(name, text, set(texts)) for name, text in texts.items()}


def test_modules_have_no_import_cycle() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " uses ".join("::".join(name) or "crate" for name in reversed(error.args[1])))


def test_packages_use_only_earlier_packages() -> None:
    wrong = [
        f"{'::'.join(name)} uses {'::'.join(other)}"
        for name, others in graph().items()
        for other in others
        if name and other and ROOMS.index(other[0]) > ROOMS.index(name[0])
    ]
    assert not wrong


def test_a_parent_only_declares_its_children() -> None:
    """Otherwise a child that uses an item of its parent would make a cycle."""
    for path in [SOURCE / "lib.rs", *SOURCE.rglob("mod.rs")]:
        if module(path) != ("python",):  # it registers what its children define
            assert not re.search(r"\b(fn|struct|enum|trait|impl|const|static|type|use)\b", code(path.read_text())), path


def test_only_the_binding_uses_python() -> None:
    for path in SOURCE.rglob("*.rs"):
        if module(path)[:1] != ("python",):
            assert not re.search(r"\b(pyo3|numpy)\b", code(path.read_text())), path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("use crate::a::b::{self, C};\nuse super::d::{x, e::{Y, Z}};", {("a", "b"), ("r", "d"), ("r", "d", "e")}),
        ("fn f() { crate::a::b::g(super::d::K) }", {("a", "b"), ("r", "d")}),
        ('let s = "crate::a::b"; // crate::a::b', set()),
        ("#[cfg(test)]\nmod tests {\n    use crate::a::b;\n}", set()),
    ],
)
def test_paths_are_resolved(text: str, expected: set[tuple[str, ...]]) -> None:
    modules = {(), ("a",), ("a", "b"), ("r",), ("r", "d"), ("r", "d", "e"), ("r", "me")}
    assert used(("r", "me"), code(text), modules) == expected
