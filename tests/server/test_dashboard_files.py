"""The static files of the dashboard: their weight, and what they must not contain."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from hermes.server.dashboard.assets import STATIC, Assets

OWN = sorted(
    f for f in STATIC.iterdir() if f.suffix in (".js", ".css", ".html") and "vendor" not in f.name
)
PAGE = STATIC / "page.html"
_IMPORT = re.compile(r"""^import (?:[^"']* from )?["']\./([\w-]+\.js)["']""", re.MULTILINE)


def list_imports(name: str) -> set[str]:
    """The module and all that it imports when it is loaded."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += _IMPORT.findall((STATIC / module).read_text())
    return found


def measure(*names: str) -> int:
    return sum(len(gzip.compress((STATIC / name).read_bytes())) for name in names)


def test_the_first_load_is_light() -> None:
    loaded = {*list_imports("main.js"), "page.html", "style.css"}
    assert len(loaded) <= 14
    assert measure(*loaded) <= 60_000
    assert measure("vendor-highlight.js") <= 28_000
    assert sum(f.stat().st_size for f in STATIC.iterdir()) <= 600_000


def test_the_page_names_every_module_of_the_first_load() -> None:
    """So that none of them is asked for only when another has arrived."""
    named = re.findall(r'(?:src|href)="assets/{assets}/([\w-]+\.js)"', PAGE.read_text())
    assert sorted(named) == sorted(list_imports("main.js"))


@pytest.mark.parametrize("page", [f.name for f in STATIC.glob("page-*.js")])
def test_another_page_is_light(page: str) -> None:
    assert measure(*(list_imports(page) - list_imports("main.js"))) <= 12_000


@pytest.mark.parametrize("file", OWN, ids=lambda f: f.name)
def test_no_file_can_run_or_fetch_what_is_not_ours(file: Path) -> None:
    text = file.read_text()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert word not in text
    assert "dangerouslySetInnerHTML" not in text and 'style="' not in text
    assert not re.search(r"""(?:src|href|from|import\()\s*=?\s*["'`](?:https?:)?//""", text)
    assert not re.search(r"fetch\([\"'`](https?:)?/", text)


@pytest.mark.parametrize("file", [f for f in OWN if f.suffix == ".js"], ids=lambda f: f.name)
def test_modules_and_functions_are_short(file: Path) -> None:
    lines = file.read_text().splitlines()
    assert len(lines) <= 400 and lines[0].startswith("/**")
    begin = 0
    for number, line in enumerate(lines):
        if re.match(r"(export )?(default )?(async )?function ", line):
            begin = number
        elif line == "}" and begin:
            assert number - begin < 60, f"{file.name}:{begin + 1}"
            begin = 0


def test_every_module_that_is_named_exists() -> None:
    for file in STATIC.glob("*.js"):
        for name in re.findall(r"""import\(["']\./([\w-]+\.js)["']\)""", file.read_text()):
            assert (STATIC / name).exists(), name
        list_imports(file.name)


def test_the_hash_changes_with_any_file(tmp_path: Path) -> None:
    for file in STATIC.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    first = Assets(tmp_path).hash
    assert first == Assets(STATIC).hash
    (tmp_path / "main.js").write_text("// other")
    assert Assets(tmp_path).hash != first
    page = gzip.decompress(Assets(tmp_path).page.body).decode()
    assert f"assets/{Assets(tmp_path).hash}/main.js" in page and "{assets}" not in page
