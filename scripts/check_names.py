"""Names check: functions say what they do, modules are nouns, a class name means one class.

python scripts/check_names.py [ROOT]        measures src/hermes against the limits below
python scripts/check_names.py --list KIND   the names behind a figure: one-word, participles,
                                            modules, classes, packages, methods, files
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MIN_WORDS = 1.9
MAX_ONE_WORD = 0.4
MAX_PARTICIPLES = 0.01
MAX_ING_MODULES = 0
MAX_CLASS_COLLISIONS = 10
MAX_SIBLINGS = 20
MAX_METHODS = 25
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

REGISTRIES = (
    "app/commands",
    "cli/commands",
    "gateway/platforms",
    "llm/providers",
    "server/routes",
    "tools",
)
"""Packages where each file is one entry of a registry: they may have any number of them."""

SHARED_CLASS_NAMES = frozenset({"Params", "Encoder", "Decoder"})
"""One per tool or wire, always read together with its module."""

NAMED_WITH_MODULE = ("api.py",)
"""So are public names (`hermes.NAME`)."""

PARTICIPLES = frozenset(
    "told said kept held given shown meant made done gone known seen taken written sent left lost "
    "bound brought built caught chosen drawn driven fallen felt found frozen grown hidden laid led "
    "met paid risen sold sought spent stood stolen struck stuck taught thought torn thrown "
    "understood woken won worn aside elsewhere whole rest one through alone apart".split()
)
VERBS_IN_ED = frozenset({"feed", "need", "seed", "speed", "embed", "shed", "exceed", "proceed"})


@dataclass(frozen=True)
class Function:
    where: str
    name: str

    @property
    def words(self) -> int:
        return len([word for word in self.name.split("_") if word]) or 1

    @property
    def is_participle(self) -> bool:
        name = self.name.strip("_")
        if self.words > 1:
            return False
        return name in PARTICIPLES or (name.endswith("ed") and name not in VERBS_IN_ED)


@dataclass(frozen=True)
class Names:
    """Everything the limits are about."""

    functions: list[Function]
    modules: list[str]
    classes: dict[str, list[str]]
    packages: dict[str, int]
    methods: dict[str, int]
    oversized: list[str]


def collect_names(package: Path) -> Names:
    functions: list[Function] = []
    classes: dict[str, list[str]] = defaultdict(list)
    methods: dict[str, int] = {}
    oversized: list[str] = []
    modules = sorted(package.rglob("*.py"))
    for path in modules:
        inside = path.relative_to(package).as_posix()
        source = path.read_text(encoding="utf-8")
        if (lines := source.count("\n")) > MAX_FILE_LINES:
            oversized.append(f"{inside}: {lines} lines")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                where = f"{inside}:{node.lineno}"
                if not node.name.startswith("__"):
                    functions.append(Function(where, node.name))
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    oversized.append(f"{where} {node.name}: {lines} lines")
            elif isinstance(node, ast.ClassDef):
                if inside not in NAMED_WITH_MODULE:
                    classes[node.name].append(inside)
                methods[f"{inside} {node.name}"] = count_methods(node)
    names = [path.relative_to(package).as_posix() for path in modules if path.stem != "__init__"]
    return Names(functions, names, dict(classes), count_siblings(package), methods, oversized)


def count_methods(node: ast.ClassDef) -> int:
    """Methods with different names: a property and its setter are one."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return len({child.name for child in node.body if isinstance(child, kinds)})


def count_siblings(package: Path) -> dict[str, int]:
    """Modules and packages directly inside each package."""
    siblings: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        thing = path.parent if path.stem == "__init__" else path
        if thing != package:
            siblings[thing.parent.relative_to(package).as_posix()] += 1
    return dict(siblings)


def check_limits(names: Names) -> Iterator[tuple[str, float, float, bool]]:
    """Each figure: what it is, its value, its limit, whether it is kept."""
    count = len(names.functions)
    words = sum(f.words for f in names.functions) / count
    yield "words per function name", words, MIN_WORDS, words >= MIN_WORDS
    shares = [
        ("functions named by one word", [f for f in names.functions if f.words == 1], MAX_ONE_WORD),
        ("bare participles", [f for f in names.functions if f.is_participle], MAX_PARTICIPLES),
    ]
    for what, found, limit in shares:
        yield what, len(found) / count, limit, len(found) / count <= limit
    figures: list[tuple[str, int, int]] = [
        ("modules named ...ing", len(list_ing_modules(names)), MAX_ING_MODULES),
        ("class names defined twice", len(list_collisions(names)), MAX_CLASS_COLLISIONS),
        ("most siblings in a package", max(list_packages(names).values()), MAX_SIBLINGS),
        ("most methods in a class", max(names.methods.values()), MAX_METHODS),
        ("files or functions too long", len(names.oversized), 0),
    ]
    for what, value, limit in figures:
        yield what, value, limit, value <= limit


def list_ing_modules(names: Names) -> list[str]:
    return [name for name in names.modules if Path(name).stem.endswith("ing")]


def list_collisions(names: Names) -> dict[str, list[str]]:
    return {
        name: places
        for name, places in names.classes.items()
        if len(places) > 1 and name not in SHARED_CLASS_NAMES
    }


def list_packages(names: Names) -> dict[str, int]:
    return {name: count for name, count in names.packages.items() if name not in REGISTRIES}


def list_behind(names: Names, kind: str) -> list[str]:
    """The names behind one figure, for whoever wants to lower it."""
    match kind:
        case "one-word":
            return [f"{f.where} {f.name}" for f in names.functions if f.words == 1]
        case "participles":
            return [f"{f.where} {f.name}" for f in names.functions if f.is_participle]
        case "modules":
            return list_ing_modules(names)
        case "classes":
            return [f"{n}: {', '.join(w)}" for n, w in sorted(list_collisions(names).items())]
        case "packages":
            return [f"{n or '.'} {c}" for n, c in sorted(list_packages(names).items())]
        case "methods":
            rows = sorted(names.methods.items(), key=lambda row: -row[1])
            return [f"{count} {name}" for name, count in rows[:20]]
        case "files":
            return names.oversized
    return [f"unknown kind {kind!r}"]


def main(arguments: list[str]) -> int:
    root = Path(__file__).resolve().parent.parent
    if arguments and arguments[0] != "--list":
        root = Path(arguments[0])
    names = collect_names(root / "src" / "hermes")
    if arguments and arguments[0] == "--list":
        print("\n".join(list_behind(names, arguments[1] if len(arguments) > 1 else "")))
        return 0
    broken = False
    for what, value, limit, kept in check_limits(names):
        broken |= not kept
        print(f"{'ok  ' if kept else 'FAIL'} {what}: {value:.4g} (limit {limit:.4g})")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
