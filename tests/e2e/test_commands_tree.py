"""The whole tree of commands: help with examples, mistakes with a suggestion, nothing heavy."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.cli.main import COMMANDS, GROUPS, main
from hermes.cli.parser import get_command_parser
from hermes.cli.shell_completion import SCRIPTS, list_commands
from tests.kit.home import program

pytestmark = pytest.mark.e2e

HEAVY = ("aiohttp", "prompt_toolkit", "rich", "apsw", "yaml", "ssl", "asyncio")
_WALK = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout

def run(words):
    sys.stdout.flush()
    out = io.StringIO()
    from hermes.cli.main import main
    with redirect_stdout(out), redirect_stderr(out):
        code = main(words)
    heavy = sorted(set(HEAVY) & set(sys.modules))
    return {"rc": code, "out": out.getvalue(), "heavy": heavy}

for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
"""
"""One process for all: the first command that brings something heavy along is the one to blame."""


class Walker:
    """`ask(words)`: what the program does, in a process of helps and mistakes only."""

    def __init__(self, home: Path) -> None:
        code = f"HEAVY = {HEAVY!r}\nimport sys\nsys.path[:0] = {sys.path!r}\n{_WALK}"
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "HERMES_HOME": str(home / "h")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            cwd=home,
            text=True,
        )

    def ask(self, *words: str) -> dict[str, object]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> object:
    made = Walker(tmp_path_factory.mktemp("walk"))
    yield made
    made.close()


def actions(name: str) -> list[str]:
    """The words its first argument may be."""
    for argument in get_command_parser(name).list_arguments():
        if not argument.option_strings and argument.choices:
            return [str(choice) for choice in argument.choices]
    return []


NODES = [(name,) for name in COMMANDS] + [(n, a) for n in COMMANDS for a in actions(n)]


@pytest.mark.parametrize("node", NODES, ids=" ".join)
def test_every_command_explains_itself_and_stays_light(
    walker: Walker, node: tuple[str, ...]
) -> None:
    done = walker.ask(*node, "--help")
    text = str(done["out"])
    assert done["rc"] == 0
    assert text.startswith(f"usage: hermes {node[0]}"), text
    examples = text.partition("\nexamples:\n")[2]
    assert re.search(rf"^  .*hermes.*\b{node[0]}\b", examples, re.MULTILINE), "no example"
    assert done["heavy"] == [], "--help imports heavy modules"
    if len(node) > 1:
        assert re.search(rf"(^|\W){re.escape(node[1])}\b", text), "its action is not explained"
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", list(COMMANDS))
def test_bad_usage_is_exit_2_and_one_sentence_with_a_way_on(walker: Walker, name: str) -> None:
    done = walker.ask(name, "--no-such-option")
    text = str(done["out"])
    assert done["rc"] == 2
    assert text.startswith("hermes: ") and text.count("\n") == 1
    assert f"see hermes {name} --help" in text
    assert done["heavy"] == []


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_slip_names_what_was_meant(walker: Walker, name: str) -> None:
    slip = name[:-1] + ("x" if name[-1] != "x" else "y")
    assert f"did you mean {name}?" in str(walker.ask(slip)["out"])
    assert walker.ask(slip)["rc"] == 2
    options = [
        o for a in get_command_parser(name).list_arguments() for o in a.option_strings if len(o) > 5
    ]
    if options:
        longest = max(options, key=len)
        done = walker.ask(name, longest[:-1] + "q", *(actions(name)[:1]))
        assert done["rc"] == 2
        if name != "auth":  # its words are providers' names
            assert "did you mean --" in str(done["out"]), done["out"]
    for action in actions(name):
        done = walker.ask(name, action + "x")
        assert done["rc"] == 2 and f"did you mean {action}" in str(done["out"])


def test_the_help_lists_every_command_in_groups(walker: Walker) -> None:
    text = str(walker.ask("--help")["out"])
    for title, group in GROUPS.items():
        part = text.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines()] == list(group)
    assert max(map(len, text.splitlines())) <= 80
    assert walker.ask("help")["out"] == text


def test_every_command_is_documented() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    missing = [n for n in COMMANDS if f"hermes {n}" not in docs and f"## {n}" not in docs]
    assert not missing
    for name, action in [node for node in NODES if len(node) == 2]:
        assert re.search(rf"\b{name}\b.*\b{action}\b", docs), f"{name} {action} is not in docs"


# -- completion ------------------------------------------------------------------------------


def complete(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = (
        f"source {script}; COMP_WORDS=(hermes {quoted}); COMP_CWORD={len(words)}; _hermes; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code], capture_output=True, text=True, check=True, timeout=90
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bash") / "hermes.bash"
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["completion", "bash"]) == 0
    file.write_text(out.getvalue(), encoding="utf-8")
    return file


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes(bash_script: Path) -> None:
    assert complete(bash_script, "sess") == ["sessions"]
    assert set(complete(bash_script, "")) >= {*COMMANDS, "help", "--version"}
    assert set(complete(bash_script, "sessions", "")) == set(actions("sessions"))
    assert complete(bash_script, "-p", "work", "sessions", "ex") == ["export"]
    assert "--max-turns" in complete(bash_script, "chat", "--ma")
    assert set(complete(bash_script, "chat", "--output", "")) == {"text", "json", "stream-json"}
    assert complete(bash_script, "chat", "--image", "x") == [], "files are bash's own business"
    assert complete(bash_script, "help", "docto") == ["doctor"]
    assert complete(bash_script, "nonsense", "x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_accepts_its_script(shell: str, tmp_path: Path) -> None:
    text = SCRIPTS[shell](list_commands())
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", text)
    if not (found := shutil.which(shell)):
        pytest.skip(f"there is no {shell}")
    file = tmp_path / "script"
    file.write_text(text, encoding="utf-8")
    subprocess.run([found, "-n", str(file)], check=True, timeout=90, capture_output=True)


def test_the_installed_program_prints_the_same_script(bash_script: Path) -> None:
    done = subprocess.run(
        [*program(), "completion", "bash"], capture_output=True, text=True, check=True, timeout=90
    )
    assert done.stdout == bash_script.read_text(encoding="utf-8")
