"""Shape check: providers and platforms are rows and adapters, so the code that serves them all
never names one; and the environment is read by hermes.config alone.

    python scripts/shape_check.py [ROOT]
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

# Providers whose name is also the name of a wire, which is a protocol and may be spoken of.
WIRES = {"anthropic", "bedrock", "gemini"}
NAMELESS = ("llm/wire", "agent", "app")
ENVIRONMENT = {"environ", "environb", "getenv", "putenv", "unsetenv"}


def stems(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}


def docstrings(tree: ast.Module) -> set[int]:
    """Ids of the string nodes that are docstrings (or stand alone, like field docstrings)."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def names_in(tree: ast.Module, names: set[str]) -> Iterator[tuple[int, str]]:
    skip = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in names and id(node) not in skip:
            yield node.lineno, f"names {node.value!r}: make it a quirk or a row"


def environment_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr in ENVIRONMENT:
                yield node.lineno, f"os.{attr}: only hermes.config reads the environment"
            case ast.ImportFrom(module="os", names=aliases):
                for alias in aliases:
                    if alias.name in ENVIRONMENT:
                        yield node.lineno, f"os.{alias.name}: only hermes.config reads it"


def problems(package: Path) -> Iterator[str]:
    providers = stems(package / "llm" / "providers") - WIRES
    platforms = stems(package / "gateway" / "platforms")
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found: list[tuple[int, str]] = []
        if any(inside.startswith(folder + "/") for folder in NAMELESS):
            found += names_in(tree, providers | platforms)
        if not inside.startswith("config/"):
            found += environment_in(tree)
        yield from (f"{path}:{line}: {what}" for line, what in sorted(found))


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(problems(root / "src" / "hermes"))
    print("\n".join(found) if found else "Shape: kept.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
