"""The modules of the Rust core use each other without cycles, and only the binding knows Python."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "native" / "src"

# Rooms of the core, each of which uses only those before it.
ROOMS = ["runtime", "vocabulary", "text", "pretokenize", "count", "encode", "train", "files", "python", "properties"]
Name = tuple[str, ...]


def sources():
    """Each module's source without comments, strings and unit tests: ("text", "batch") is text/batch.rs."""
    found = {}
    for path in (path for path in SOURCE.rglob("*.rs") if path.name != "tests.rs"):
        *parents, last = path.relative_to(SOURCE).with_suffix("").parts
        text = path.read_text(encoding="utf-8").partition("#[cfg(test)]\nmod tests {")[0]
        name = (*parents, *([] if last in ("mod", "lib") else [last]))
        found[name] = re.sub(r'//[^\n]*|r#".*?"#|"(?:\\.|[^"\\])*"', "", text, flags=re.DOTALL)
    return found


def used(name, modules):
    """The other modules whose items a module names by a path from `crate` or `super`."""
    text = modules[name]
    # a::{b, c::{self, d}} is a::b, a::c::self and a::c::d; the innermost braces first.
    while found := re.search(r"((?:\w+::)+)\{([^{}]*)\}", text):
        items = [item.strip() for item in found[2].split(",") if item.strip()]
        text = text[: found.start()] + ", ".join(found[1] + item for item in items) + text[found.end() :]
    others = set()
    for path in re.findall(r"\b(?:crate|super)(?:::\w+)+", text):
        parts = path.split("::")
        base = [] if parts[0] == "crate" else list(name)
        while parts[0] in ("crate", "super"):
            base = base[:-1] if parts[0] == "super" else base
            parts = parts[1:]
        full = (*base, *parts)
        others.add(next(full[:n] for n in range(len(full), -1, -1) if full[:n] in modules))
    return others - {name}


def test_modules_have_no_import_cycle_and_use_only_earlier_rooms():
    modules = sources()
    graph = {name: used(name, modules) for name in modules}
    assert len(graph) > 30
    assert sum(map(len, graph.values())) > 60
    TopologicalSorter(graph).prepare()
    for name, others in graph.items():
        for other in (other for other in others if name and other):
            assert ROOMS.index(other[0]) <= ROOMS.index(name[0]), f"{'::'.join(name)} uses {'::'.join(other)}"


def test_a_parent_only_declares_its_children():
    """Otherwise a child that uses an item of its parent would make a cycle."""
    modules = sources()
    for name in {child[:n] for child in modules for n in range(len(child))}:
        if name != ("python",):  # it registers what its children define
            assert not re.search(r"\b(fn|struct|enum|trait|impl|const|static|type|use)\b", modules[name]), name


def test_only_the_binding_uses_python():
    for name, text in sources().items():
        assert name[:1] == ("python",) or not re.search(r"\b(pyo3|numpy)\b", text), name
