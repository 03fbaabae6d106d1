"""How much work a judgement is, counted instead of timed."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.unit.exec.command_policy.judgements import verdict
from tests.unit.exec.command_policy.ordinary_commands import ORDINARY


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


def _count_calls(command: str) -> int:
    """Calls of functions, of Python and of C, while a command is judged."""
    calls = 0

    def profile(frame: object, event: str, argument: object) -> None:
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
    "paths": _repeat("a/b/c ", "rm -rf "),
    "quoted variables": _repeat('echo "$a" "$b" '),
    "words of an unknown program": _repeat("rm -rf x ", "foo "),
    "find": _repeat("-exec rm {} \\; ", "find . "),
    "wrappers": _repeat("sudo ", after="ls"),
    "shells": _repeat("bash -c 'a'; "),
    "look-alikes": _repeat("\uff52\uff4d -rf x; "),
    "braces": _repeat("{a,b}", "echo "),
    "a file": _repeat("    return value(1, x)\n", "cat > f.py <<'END'\n", "END"),
    "semicolons": _repeat(";"),
    "assignments": _repeat("x=1; "),
    "pipes": _repeat("a|"),
    "nested": _repeat("$("),
    "closed": lambda size: "$(" * (size // 4) + "a" + ")" * (size // 4),
    "stray brackets": _repeat("echo a ) "),
    "one word": _repeat("a"),
    "quotes": _repeat('"', after='"'),
    "here-documents": _repeat("cat <<E\n"),
    "tests": _repeat("[[ ! "),
    "comment": _repeat("x", "# "),
    "different commands": lambda size: "".join(f"rm -rf a{n}; " for n in range(size // 12)),
    "variables": _repeat("$a"),
    "joined lines": _repeat("l\\\n"),
    "options of wrappers": _repeat("sudo -a ", after="ls"),
    "places of find": lambda size: f"find {'a' * (size // 2)} -exec {'{}' * (size // 4)} ;",
    "places of xargs": lambda size: f"echo {'a' * (size // 2)} | xargs {'{} ' * (size // 6)}",
    "substitutions": _repeat("sh <(", after="ls"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_work_has_an_end(shape: str):
    """About 30 calls per byte are usual, and a millisecond is some 8,000 of them."""
    verdict("ls")
    _count_calls(SHAPES[shape](256))  # patterns are compiled at their first use
    for size in (2048, 8192, 16_384, 65_536, 131_072, 200_000):
        text = SHAPES[shape](size)
        calls = _count_calls(text)
        assert calls < 60 * size + 5000, (size, calls)
        assert calls < 200_000, (size, calls)
