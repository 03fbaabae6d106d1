"""The command policy, measured on a corpus: what it stops, what it lets pass, how much it works."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.exec.command_policy import command_corpus as corpus
from tests.unit.exec.command_policy.judgements import decision, verdict
from tests.unit.exec.command_policy.ordinary_commands import ORDINARY

pytestmark = pytest.mark.timeout(600)  # thousands of commands: a busy machine may take its time


# The acceptance rates


def test_the_hard_list_is_denied_in_every_readable_disguise():
    plain = [*corpus.HARD, *corpus.HARD_SCRIPTS]
    worn = [d(seed) for seed in corpus.HARD for d in corpus.RESOLVABLE.values()]
    missed = [command for command in (*plain, *worn) if decision(command) != "deny"]
    print(f"hard list: {len(plain)} plain, {len(worn)} disguised, {len(missed)} not denied")
    assert missed == []
    unboxed = [command for command in plain if decision(command, sandboxed=False) != "deny"]
    assert unboxed == []


def test_dangerous_seeds_ask_or_are_denied_in_every_disguise():
    seeds = [*corpus.SEEDS, *corpus.HARD]
    disguises = {**corpus.RESOLVABLE, **corpus.OPAQUE}
    assert len(seeds) >= 60
    assert len(disguises) >= 20
    variants = [*seeds, *corpus.SCRIPTS]
    variants += [disguise(seed) for seed in corpus.SEEDS for disguise in disguises.values()]
    variants += [disguise(seed) for seed in corpus.HARD for disguise in corpus.OPAQUE.values()]
    leaks = [command for command in variants if decision(command) == "allow"]
    rate = 100 * (1 - len(leaks) / len(variants))
    print(f"dangerous: {len(variants)} variants, {len(leaks)} allowed, {rate:.2f} % stopped")
    assert rate >= 99.5, leaks[:20]


def test_everyday_work_seldom_asks():
    assert len(set(ORDINARY)) >= 500
    found = {command: verdict(command) for command in ORDINARY}
    stopped = {c: j.reasons for c, j in found.items() if j.decision != "allow"}
    rate = 100 * len(stopped) / len(found)
    print(f"ordinary: {len(found)} commands, {len(stopped)} ask ({rate:.1f} %)")
    assert rate <= 3, stopped
    assert "deny" not in {j.decision for j in found.values()}


def test_the_syntax_of_the_disguises_is_not_what_asks():
    """Else the rates above would only show that nothing with a bracket is ever allowed."""
    syntax = (
        "bash -c", "sh -c twice", "double quotes", "backslash", "absolute", "env", "nohup",
        "timeout", "command", "chain", "or", "group", "subshell", "function", "if", "loop", "case",
        "inside quotes", "assignment", "process substitution", "newline", "trap", "heredoc body",
        "time",
    )  # fmt: skip
    for name, command in itertools.product(syntax, ("ls -la src", "git status", "pytest -q")):
        disguised = corpus.RESOLVABLE[name](command)
        assert decision(disguised) == "allow", (disguised, verdict(disguised).reasons)


def test_importing_the_package_loads_no_parser():
    code = (
        "import sys; from hermes.exec.command_policy import CommandRules; "
        "CommandRules.load_rules([]); "
        "print([m for m in sys.modules if 'tree_sitter' in m"
        " or m.startswith('hermes.exec.command_policy.')"
        " and m.rpartition('.')[2] not in ('rules', 'types')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# Work, counted instead of timed


def _count_calls(command: str) -> int:
    """Calls of functions, of Python and of C, while a command is judged."""
    calls = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        verdict(command)
    finally:
        sys.setprofile(None)
    return calls


def _ordinary_text(size: int) -> str:
    text = "\n".join(line for line in ORDINARY if "\n" not in line)
    while len(text) < size:
        text += "\n" + text
    return text[:size].rpartition("\n")[0]


def _repeat(unit: str, before: str = "", after: str = "") -> Callable[[int], str]:
    return lambda size: before + unit * (size // len(unit)) + after


SHAPES: dict[str, Callable[[int], str]] = {
    "ordinary": _ordinary_text,
    "long chain": _repeat("ls -la foo && git status | grep bar\n"),
    "words": _repeat("word ", "echo "),
    "quoted variables": _repeat('echo "$a" "$b" '),
    "words of an unknown program": _repeat("rm -rf x ", "foo "),
    "find": _repeat("-exec rm {} \\; ", "find . "),
    "written and run": _repeat("echo rm -rf x > a.sh; bash a.sh; "),
    "look-alikes": _repeat("\uff52\uff4d -rf x; "),
    "braces": _repeat("{a,b}", "echo "),
    "a file": _repeat("    return value(1, x)\n", "cat > f.py <<'END'\n", "END"),
    "semicolons": _repeat(";"),
    "assignments": _repeat("x=1; "),
    "pipes": _repeat("a|"),
    "nested": _repeat("$("),
    "closed": lambda size: "$(" * (size // 4) + "a" + ")" * (size // 4),
    "one word": _repeat("a"),
    "quotes": _repeat('"', after='"'),
    "here-documents": _repeat("cat <<E\n"),
    "tests": _repeat("[[ ! "),
    "comment": _repeat("x", "# "),
    "suspects": lambda size: "".join(f"rm -rf a{n}; " for n in range(size // 12)),
    "variables": _repeat("$a"),
    "joined lines": _repeat("l\\\n"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_work_grows_with_the_length_and_has_an_end(shape: str):
    """Some 20 calls per byte are usual; what grows faster, or without end, is far beyond this."""
    verdict("ls")
    for size in (2048, 8192, 16_384, 65_536, 131_072, 200_000):
        calls = _count_calls(SHAPES[shape](size))
        assert calls < 40 * size, (size, calls)
        assert calls < 600_000, (size, calls)
