"""`config set`: only the key changes, files are always whole, no writer loses another's edit."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from hermes.config.key_path import set_at
from hermes.config.load import load_setup
from hermes.config.update import append_items, move_names, set_value
from hermes.config.yaml_edit import render_value, set_key
from hermes.config.yaml_source import parse_scalar, parse_yaml
from hermes.core.errors import ConfigError

COMMENTED = """\
# My configuration.   Keep this line as it is.

model:            # which one
    default: "a b"    # quoted
    base_url:   http://127.0.0.1:8000/v1   # spaced
    # a comment between

providers:
  lab: {base_url: "http://lab/v1",   api_key_env: LAB_KEY}   # flow
  "odd name":
    base_url: 'http://x/v1'
    models:
    - m1     # first
    - m2
fallback_providers:
  - a:b  # one
  - c:d
agent: {}
budget:
# the end
"""


def home_with(root: Path, text: str | bytes | None) -> Path:
    home = root / "h"
    home.mkdir(mode=0o700, exist_ok=True)
    file = home / "config.yaml"
    if text is None:
        file.unlink(missing_ok=True)
    else:
        file.write_bytes(text.encode() if isinstance(text, str) else text)
    return home


def content(home: Path) -> str:
    return (home / "config.yaml").read_bytes().decode()


REPLACED = [
    ("model.default", "new", '"a b"', "new"),
    ("model.base_url", "https://h/v1", "http://127.0.0.1:8000/v1", "https://h/v1"),
    ("providers.lab.base_url", "http://z/v1", '"http://lab/v1"', "http://z/v1"),
    ("providers.odd name.base_url", "http://y", "'http://x/v1'", "http://y"),
    ("agent.max_turns", "5", "agent: {}", "agent: {max_turns: 5}"),
    ("providers.lab.api_mode", "chat", "LAB_KEY}", "LAB_KEY, api_mode: chat}"),
    ("budget.daily_usd", "2.5", "budget:\n", "budget:\n  daily_usd: 2.5\n"),
    ("model.max_tokens", "9", "# spaced\n", "# spaced\n    max_tokens: 9\n"),
    ("terminal.timeout", "9", "budget:\n", "budget:\nterminal:\n  timeout: 9\n"),
    (
        "providers.new.base_url",
        "http://u",
        "    - m2\n",
        "    - m2\n  new:\n    base_url: http://u\n",
    ),
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("key", "value", "old", "new"), REPLACED, ids=[r[0] for r in REPLACED])
def test_every_other_byte_stays(
    tmp_path: Path, key: str, value: str, old: str, new: str, newline: str
) -> None:
    text = COMMENTED.replace("\n", newline)
    home = home_with(tmp_path, text)
    set_value(home, key, value)
    expected = text.replace(old.replace("\n", newline), new.replace("\n", newline), 1)
    assert content(home) == expected != text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fallback_providers", "x:y"),  # a block list with comments inside
        ("providers.odd name.models", "[m3]"),
        ("providers.lab", "{base_url: http://n}"),
    ],
)
def test_replacing_a_block_keeps_comments_elsewhere(tmp_path: Path, key: str, value: str) -> None:
    home = home_with(tmp_path, COMMENTED)
    set_value(home, key, value)
    after = content(home)
    inside = ("# first", "# one")
    for line in COMMENTED.splitlines():
        comment = line[line.index("#") :] if "#" in line else ""
        assert comment in after or comment in inside
    assert load_setup(environ={"HERMES_HOME": str(home)}).config.model.default == "a b"


def test_a_byte_order_mark_survives(tmp_path: Path) -> None:
    home = home_with(tmp_path, "\ufeffagent: {max_turns: 3}\n")
    set_value(home, "agent.max_turns", "4")
    assert content(home) == "\ufeffagent: {max_turns: 4}\n"


@pytest.mark.parametrize("text", [None, "", "\n", "# only this\n", "# no newline"])
def test_the_first_key_of_a_file(tmp_path: Path, text: str | None) -> None:
    home = home_with(tmp_path, text)
    set_value(home, "model.default", "m")
    assert content(home).startswith((text or "").rstrip("\n"))
    assert load_setup(environ={"HERMES_HOME": str(home)}).config.model.default == "m"
    assert stat.S_IMODE((home / "config.yaml").stat().st_mode) == 0o600


VALUES = [
    ("model.default", "true", "true"),
    ("model.default", "12", "12"),
    ("model.default", "null", "null"),
    ("model.default", "a: b # c", "a: b # c"),
    ("model.default", "", ""),
    ("model.default", "grüße '日本' \"x\"\n\t", "grüße '日本' \"x\"\n\t"),
    ("model.default", "- x", "- x"),
    ("model.default", "openrouter:qwen/qwen3-coder", "openrouter:qwen/qwen3-coder"),
    ("model.max_tokens", "4096", 4096),
    ("model.max_tokens", "null", None),
    ("compression.enabled", "off", False),
    ("compression.threshold", "0.25", 0.25),
    ("approvals.mode", "off", "never-ask"),
    ("approvals.mode", "manual", "ask"),
    ("model.api_mode", "chat_completions", "chat"),
    ("fallback_providers", "a:b, c:d", ["a:b", "c:d"]),
    ("fallback_providers", '["a:b"]', ["a:b"]),
    ("fallback_providers", "a:b", ["a:b"]),
    ("mcp_servers.time.args", "[a, 1]", ["a", 1]),
    ("platforms.telegram.enabled", "true", True),
    ("platforms.telegram.note", "plain words", "plain words"),
    ("providers.lab.models.llama-3.3-70b.max_tokens", "10", 10),
]


@pytest.mark.parametrize(("key", "text", "value"), VALUES)
def test_values_mean_what_was_typed(tmp_path: Path, key: str, text: str, value: Any) -> None:
    home = home_with(tmp_path, COMMENTED)
    change = set_value(home, key, text)
    assert change.new == value
    load_setup(environ={"HERMES_HOME": str(home)})
    again = set_value(home, key, text)
    assert again.old == value


REFUSED = [
    ("agent.max_turn", "3", "did you mean agent.max_turns?"),
    ("agent.max_turns", "0", "at least 1"),
    ("agent.max_turns.x", "0", "single value"),
    ("agent", "3", "must be a mapping"),
    ("model.api_key_env", "sk-secret-thing", "name of an environment variable"),
    ("approvals.mode", "maybe", "one of ask, smart, never-ask"),
    ("a..b", "1", "is not a key"),
    ("", "1", "is not a key"),
    ("fallback_providers", "{a: b}", "list of texts"),
]


@pytest.mark.parametrize(("key", "value", "why"), REFUSED)
def test_a_refused_change_touches_nothing(tmp_path: Path, key: str, value: str, why: str) -> None:
    home = home_with(tmp_path, COMMENTED)
    before = (home / "config.yaml").stat()
    with pytest.raises(ConfigError) as caught:
        set_value(home, key, value)
    assert why in str(caught.value) and "sk-secret" not in str(caught.value)
    assert content(home) == COMMENTED
    assert (home / "config.yaml").stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("broken", ["agent: {", "agent: {max_turn: 3}", "a\tb: - c", "- x"])
def test_a_broken_file_is_never_rewritten(tmp_path: Path, broken: str) -> None:
    home = home_with(tmp_path, broken)
    with pytest.raises(ConfigError, match=r"config\.yaml line [12]"):
        set_value(home, "agent.max_turns", "3")
    assert content(home) == broken


def test_the_target_of_a_link_is_written_and_the_link_stays(tmp_path: Path) -> None:
    home = home_with(tmp_path, None)
    real = tmp_path / "dotfiles.yaml"
    real.write_text("agent: {max_turns: 3}\n")
    (home / "config.yaml").symlink_to(real)
    set_value(home, "agent.max_turns", "4")
    assert (home / "config.yaml").is_symlink()
    assert real.read_text() == "agent: {max_turns: 4}\n"


def test_an_edit_of_somebody_else_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor does not know our lock: it saves between our reading and our writing."""
    home = home_with(tmp_path, "agent: {max_turns: 3}\n")
    real, saves = os.fsync, []

    def fsync(handle: int) -> None:
        real(handle)
        if not saves:
            saves.append(1)
            (home / "config.yaml").write_text("agent: {max_turns: 3}\nbudget: {daily_usd: 9}\n")

    monkeypatch.setattr(os, "fsync", fsync)
    set_value(home, "agent.max_turns", "4")
    assert content(home) == "agent: {max_turns: 4}\nbudget: {daily_usd: 9}\n"


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = home_with(tmp_path, COMMENTED)

    def full(handle: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(ConfigError, match="No space left"):
        patch.setattr(os, "write", full)
        set_value(home, "agent.max_turns", "4")
    assert content(home) == COMMENTED
    assert sorted(p.name for p in home.iterdir()) == [".config.lock", "config.yaml"]


# -- properties ---------------------------------------------------------------------------------

_words = st.text(alphabet="abcXYZ019_-", min_size=1, max_size=6)
_comments = st.text(alphabet="abc #:{}'\"-é日", max_size=12).map(lambda text: "# " + text)
_scalars = st.one_of(
    _words,
    st.integers(-99, 99).map(str),
    st.sampled_from(["true", "off", "null", "~", "''", '"q # x"', "'it''s'", "1.5", "12:30", ""]),
)


@st.composite
def blocks(draw: st.DrawFn, indent: int = 0, depth: int = 0) -> list[str]:
    """Lines of a block mapping, with comments, odd spacing, flow collections and lists."""
    lines: list[str] = []
    pad = " " * indent
    step = draw(st.sampled_from([1, 2, 4]))
    for key in draw(st.lists(_words, min_size=1, max_size=4, unique=True)):
        if draw(st.integers(0, 3)) == 0:
            lines.append(draw(st.sampled_from(["", pad + draw(_comments), draw(_comments)])))
        tail = "  " + draw(_comments) if draw(st.booleans()) else ""
        kind = draw(st.integers(0, 5))
        if kind == 0 and depth < 3:
            lines.append(f"{pad}{key}:{tail}")
            lines += draw(blocks(indent + step, depth + 1))
        elif kind == 1:
            flow = ", ".join(f"{k}: {draw(_scalars)}" for k in draw(st.sets(_words, max_size=3)))
            lines.append(f"{pad}{key}:  {{{flow}}}{tail}")
        elif kind == 2:
            lines.append(f"{pad}{key}:{tail}")
            lines += [f"{pad}- {draw(_words)}" for _ in range(draw(st.integers(1, 3)))]
        elif kind == 3:
            lines.append(f"{pad}{key}: |")
            lines += [f"{pad}  {draw(_words)}" for _ in range(draw(st.integers(1, 2)))]
        else:
            lines.append(f"{pad}{key}: {draw(_scalars)}{tail}")
    return lines


def paths_in(data: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(data, dict):
        return [path]
    return [path] + [p for key, item in data.items() for p in paths_in(item, (*path, key))]


_new_values = st.one_of(
    st.text(max_size=12),
    st.integers(),
    st.booleans(),
    st.none(),
    st.lists(_words, max_size=3),
    st.dictionaries(_words, _words, max_size=2),
)


@settings(
    max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(
    blocks(),
    st.data(),
    _new_values,
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "# last", "\n\n"]),
)
def test_any_edit_of_any_file_means_the_edit_and_keeps_every_other_line(
    lines: list[str], data: st.DataObject, value: Any, newline: str, end: str
) -> None:
    """Adding a key changes at most one line that was there: the one it is added to."""
    from hermes.config.update import _check_meaning

    text = newline.join(lines) + newline + end
    try:
        before = parse_yaml(text.encode()).data
    except ConfigError:
        assume(False)
        return
    existing = data.draw(st.sampled_from(paths_in(before)))
    path = existing + tuple(data.draw(st.lists(_words, max_size=2)))
    assume(path)
    expected = parse_yaml(text.encode()).data
    set_at(expected, path, value)
    try:
        after = _check_meaning(set_key(text, path, value), path, expected)
    except ConfigError:
        return
    assert parse_yaml(after.encode()).data == expected
    if path not in paths_in(before):
        old, new = text.splitlines(), after.splitlines()
        head = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(old))
        rest = len(old) - head
        assert new[len(new) - rest :] == old[head:] or new[len(new) - rest + 1 :] == old[head + 1 :]


@given(_new_values)
@example("0b_")
def test_a_rendered_value_reads_back_as_itself(value: Any) -> None:
    text = render_value(value)
    assert "\n" not in text
    if not (isinstance(value, str) and any(ch in value for ch in "\x85\u2028\u2029\ufeff")):
        assert parse_scalar(text) == value
        assert yaml.safe_load(text) == value or isinstance(value, (str, list, dict))


# -- lists that grow ----------------------------------------------------------------------------

RULE = {"decision": "allow", "prefix": ["git", "push"]}
LISTS = {
    "none": "model: {default: m}  # kept\n",
    "nothing": "",
    "empty section": "approvals:   # kept\nmodel: {default: m}\n",
    "empty list": "approvals:\n  rules: []  # kept\n",
    "flow": "approvals: {mode: ask, rules: [{decision: deny, prefix: [rm]}]}  # kept\n",
    "block": "approvals:\n  rules:  # mine\n  # first\n  - decision: deny  # never\n"
    "    prefix: rm   # kept\n    # the end of it\n  mode: ask\nmodel: {default: m}  # kept\n",
    "deep block": "approvals:\n    rules:\n        - {decision: deny, prefix: [rm]}  # kept\n",
    "crlf": "approvals:\r\n  rules:\r\n  - {decision: deny, prefix: rm}  # kept\r\n",
    "no end": "approvals:\n  rules:\n  - decision: deny\n    prefix: rm  # kept",
}


@pytest.mark.parametrize("text", LISTS.values(), ids=LISTS)
def test_an_item_is_added_and_nothing_else_changes(tmp_path: Path, text: str) -> None:
    home = home_with(tmp_path, text)
    before = yaml.safe_load(text) or {}
    old = (before.get("approvals") or {}).get("rules") or []
    assert append_items(home, "approvals.rules", [RULE], lambda _: None) == [RULE]
    after = (home / "config.yaml").read_bytes().decode()
    assert yaml.safe_load(after)["approvals"]["rules"] == [*old, RULE]
    for line in text.splitlines():
        assert "#" not in line or line[line.index("#") :] in after
    assert append_items(home, "approvals.rules", [RULE], lambda _: None) == []
    assert (home / "config.yaml").read_bytes().decode() == after


def test_an_item_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    home = home_with(tmp_path, LISTS["block"])

    def refuse(items: list[Any]) -> None:
        raise ConfigError(f"{len(items)} are too many")

    with pytest.raises(ConfigError, match="2 are too many"):
        append_items(home, "approvals.rules", [RULE], refuse)
    assert (home / "config.yaml").read_text() == LISTS["block"]


# -- several writers, and writers that die ------------------------------------------------------

SETTER = """
import sys
from pathlib import Path
from hermes.config.update import set_value
home, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for i in range(count):
    set_value(home, f"platforms.{name}.k{i}", str(i))
    print(i, flush=True)
"""


def setter(home: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    args = [sys.executable, "-c", SETTER, str(home), name, str(count)]
    return subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_names_that_several_writers_move_are_all_there(tmp_path: Path) -> None:
    names = [f"name{n}" for n in range(12)]
    (tmp_path / "config.yaml").write_text(f"plugins: {{enabled: [{', '.join(names)}]}}  # mine\n")

    def disable(name: str) -> None:
        move_names(tmp_path, [name], into="plugins.disabled", out_of="plugins.enabled")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(disable, names))
    found = load_setup("", {"HERMES_HOME": str(tmp_path)}).config.plugins
    assert sorted(found.disabled) == sorted(names) and not found.enabled
    assert "# mine" in (tmp_path / "config.yaml").read_text()


def test_two_writers_at_once_both_keep_their_edits(tmp_path: Path) -> None:
    home = home_with(tmp_path, COMMENTED)
    writers = [setter(home, name, 12) for name in ("a", "b")]
    for writer in writers:
        _, errors = writer.communicate(timeout=90)
        assert writer.returncode == 0, errors
    platforms = load_setup(environ={"HERMES_HOME": str(home)}).config.platforms
    assert platforms["a"] == platforms["b"] == {f"k{i}": i for i in range(12)}
    for line in COMMENTED.splitlines():
        assert line in content(home).splitlines()


GROWER = """
import sys
from pathlib import Path
from hermes.config.update import append_items
home, name = Path(sys.argv[1]), sys.argv[2]
for i in range(10):
    rule = {"decision": "allow", "prefix": [name, str(i)]}
    append_items(home, "approvals.rules", [rule], lambda _: None)
"""
SWITCHER = """
import sys
from hermes.cli.main import main
sys.exit(main(["tools", "disable", *sys.argv[2:]]))
"""


@pytest.mark.parametrize(
    ("script", "first", "second"),
    [(GROWER, ("a",), ("b",)), (SWITCHER, ("todo", "patch"), ("clarify", "terminal"))],
    ids=["rules", "tools"],
)
def test_two_that_read_and_write_back_lose_nothing(
    tmp_path: Path, script: str, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    home = home_with(tmp_path, COMMENTED)
    env = {**os.environ, "HERMES_HOME": str(home)}
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(home), *names], env=env, stderr=-1)
        for names in (first, second)
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=90)
        assert writer.returncode == 0, errors
    config = load_setup(environ={"HERMES_HOME": str(home)}).config
    if script == GROWER:
        assert len(config.approvals.rules) == 20
    else:
        assert set(config.tools.disabled) == {*first, *second}


def test_a_writer_killed_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    home = home_with(tmp_path, COMMENTED)
    for round_ in range(8):
        writer = setter(home, f"r{round_}", 400)
        assert writer.stdout is not None
        acknowledged = int(writer.stdout.readline())
        time.sleep(0.011 * round_)
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate(timeout=90)
        if rest.split():
            acknowledged = max(acknowledged, *(int(n) for n in rest.splitlines() if n))
        found = load_setup(environ={"HERMES_HOME": str(home)}).config.platforms[f"r{round_}"]
        assert len(found) in (acknowledged + 1, acknowledged + 2)
        assert content(home).startswith(COMMENTED.removesuffix("# the end\n"))
    set_value(home, "agent.max_turns", "4")
    assert stat.S_IMODE((home / "config.yaml").stat().st_mode) == 0o600
    assert not (home / ".config.yaml.new").exists()
