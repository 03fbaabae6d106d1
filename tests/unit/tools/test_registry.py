"""Which tools there are, and what they declare."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from hermes.core.errors import ConfigError
from hermes.tools import registry
from hermes.tools.registry import select_tools


def test_core_is_declared_in_a_stable_order() -> None:
    names = list(select_tools(["core"]))
    assert {"read_file", "terminal", "write_file"} <= set(names)
    assert names == sorted(names) == [spec.name for spec in select_tools(None).list_specs()]
    assert all(t.name == name and t.toolset == "core" for name, t in select_tools(["core"]).items())


def test_tools_by_name_in_an_order_that_is_not_the_askers() -> None:
    assert list(select_tools(["write_file", "read_file"])) == ["read_file", "write_file"]
    assert list(select_tools(["read_file", "read_file"])) == ["read_file"]
    assert set(select_tools(["all"])) >= set(select_tools(None))
    assert list(select_tools(["file"])) == ["patch", "read_file", "search_files", "write_file"]


def test_none_is_none() -> None:
    assert select_tools(["none"]) == select_tools([]) == {}


@pytest.mark.parametrize(("word", "hint"), [("cor", "'core'"), ("Read_File", "'read_file'")])
def test_an_unknown_toolset_names_the_nearest(word: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"{word}.*Did you mean {hint}"):
        select_tools([word])


def test_an_unknown_toolset_far_from_all_lists_them() -> None:
    with pytest.raises(ConfigError, match=r"Valid: core, .*terminal"):
        select_tools(["xyzzy"])


def test_a_folder_is_a_toolset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in ("a.py", "_private.py", "registry.py", "notes.txt", "web/search.py", "_x/y.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "registry.py"))
    monkeypatch.setattr(registry, "_added_modules", {"web": {"other": "hermes.elsewhere"}})
    assert registry.list_toolsets.__wrapped__() == {
        "core": {"a": "hermes.tools.a"},
        "web": {"other": "hermes.elsewhere", "search": "hermes.tools.web.search"},
    }


def test_only_what_is_selected_is_imported_and_it_is_light() -> None:
    code = (
        "import sys; from hermes.tools.registry import select_tools; select_tools(['read_file']);"
        "assert 'hermes.tools.terminal' not in sys.modules; select_tools(None).list_specs();"
        "heavy = {'tempfile', 'shutil', 'difflib', 'mimetypes', 'ctypes'};"
        "heavy.add('hermes.exec.process.local');"
        "print(sorted(heavy & set(sys.modules)))"
    )
    env = {"PYTHONPATH": str(Path(registry.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_schemas_are_short_and_say_only_what_works() -> None:
    sizes = {
        tool.name: len(orjson.dumps([tool.name, tool.spec.description, tool.spec.parameters]))
        for tool in select_tools(["core"]).values()
    }
    room = {"process": 550, "terminal": 820, "memory": 700}
    assert {n: size for n, size in sizes.items() if size >= room.get(n, 350)} == {}
    assert sum(sizes.values()) < 4.1 * 1024
    shown = select_tools(["terminal"])["terminal"].spec.parameters["properties"]
    assert set(shown) == {"command", "timeout", "workdir", "background", "pty", "escalate"}
