"""No module of llm imports itself through others, imports inside functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import hermes.llm

FOLDER = Path(hermes.llm.__path__[0])
MODULES = {
    ".".join(("hermes.llm", *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in FOLDER.rglob("*.py")
}


def imported(node: ast.AST) -> Iterator[str]:
    """Names of the modules that are imported in and below a node, except for type checking."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                yield full if full in MODULES else child.module
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        yield from imported(child)


def cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_the_check_finds_a_cycle() -> None:
    assert cycle({"a": {"b"}, "b": {"a"}})
    source = "if TYPE_CHECKING:\n    import x\ndef f():\n    import y\n    from z import w\n"
    assert list(imported(ast.parse(source))) == ["y", "z"]


def test_there_is_none() -> None:
    graph = {
        name: {found for found in imported(ast.parse(path.read_text())) if found in MODULES}
        - {name}
        for name, path in MODULES.items()
    }
    assert len(graph) > 60 and graph["hermes.llm.client"]
    assert cycle(graph) == []
