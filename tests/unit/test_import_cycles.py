"""No module imports itself by way of others, not even inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import hermes

SOURCE = Path(hermes.__file__).parent
PACKAGES = tuple("agent app cli config core exec llm net server store tools".split())
TYPED_PACKAGES = tuple(package for package in PACKAGES if package != "cli")
"""Here imports for type checkers must not make a cycle either."""


def find_modules(package: str) -> dict[str, Path]:
    found = {}
    for path in sorted((SOURCE / package).rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if path.stem == "__init__" else parts)] = path
    return found


def find_imports(node: ast.AST, modules: dict[str, Path], *, types: bool = False) -> Iterator[str]:
    """The modules imported anywhere below a node; those for type checkers only with `types`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test) and not types:
            for other in child.orelse:
                yield from find_imports(other, modules)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield inner if inner in modules else child.module or ""
        else:
            yield from find_imports(child, modules, types=types)


def import_graph(modules: dict[str, Path], *, types: bool = False) -> dict[str, set[str]]:
    graph = {}
    for name, path in modules.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = find_imports(tree, modules, types=types)
        graph[name] = {m for m in imports if m in modules and m != name}
    return graph


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_cycles(package: str) -> None:
    types = package in TYPED_PACKAGES
    try:
        TopologicalSorter(import_graph(find_modules(package), types=types)).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_a_cycle_would_be_found(tmp_path: Path) -> None:
    modules = {"m.a": tmp_path / "a.py", "m.b": tmp_path / "b.py"}
    modules["m.a"].write_text("def work():\n    from m import b\n")
    modules["m.b"].write_text("if TYPE_CHECKING:\n    import m.a\n")
    assert import_graph(modules) == {"m.a": {"m.b"}, "m.b": set()}
    assert import_graph(modules, types=True) == {"m.a": {"m.b"}, "m.b": {"m.a"}}
    modules["m.b"].write_text("from m.a import work\n")
    with pytest.raises(CycleError):
        TopologicalSorter(import_graph(modules)).prepare()
