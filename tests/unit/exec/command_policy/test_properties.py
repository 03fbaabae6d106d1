"""The command policy against generated commands, and against what bash really runs."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.exec.command_policy import CommandRule, CommandRules
from hermes.exec.command_policy.types import STRICTNESS
from tests.unit.exec.command_policy import command_corpus as corpus
from tests.unit.exec.command_policy.judgements import HOME, decision, verdict
from tests.unit.exec.command_policy.ordinary_commands import ORDINARY

pytestmark = pytest.mark.timeout(600)  # hundreds of examples: a busy machine may take its time

_PIECES = st.sampled_from(
    [
        *"abc ls rm -rf / ~ .. $x ${x:-y} $( ` ( ) { } [[ ]] (( )) | || && & ; ;; > >> <".split(),
        *"<<E <<< ' \" \\ # * ? [a] {a,b} {1..3} if then fi for do done while case esac in".split(),
        *"x=1 eval bash -c xargs find -exec sed awk $'\\x72m' \u200b é \ud800 f() !".split(),
        *("\0", "\n", "\t", "E\n", "\\\n"),
    ]
)
_SOUP = st.lists(_PIECES, max_size=30).flatmap(
    lambda parts: st.sampled_from([" ", ""]).map(lambda glue: glue.join(parts))
)
_KNOWN = [*corpus.HARD, *corpus.HARD_SCRIPTS, *corpus.LOSES_WORK, *corpus.COVERED, *ORDINARY]
_ANY = st.one_of(_SOUP, st.text(max_size=200), st.sampled_from(_KNOWN))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_ANY, st.booleans())
def test_it_never_raises(command: str, sandboxed: bool):
    found = verdict(command, sandboxed=sandboxed)
    assert found.decision in STRICTNESS
    assert found.decision == "allow" or found.reasons
    assert not (found.read_only and found.decision != "allow")


def test_no_letter_crashes_the_parser():
    """`{` before a code point far from ASCII used to, in some processes. So: in one of its own."""
    code = (
        "from pathlib import Path\n"
        "from hermes.exec.command_policy import judge_command, CommandRules\n"
        "for point in range(0x80, 0x110000, 0x777):\n"
        "    letter = chr(point) if not 0xD800 <= point < 0xE000 else 'x'\n"
        "    for text in ('{' + letter, '$' + letter + '[', '<<' + letter, letter * 3 + '=('):\n"
        "        judge_command(text, workspace=Path('/w'), home=Path('/h'), rules=CommandRules(),"
        " sandboxed=True)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


_PARTS = st.sampled_from(_KNOWN)


@settings(max_examples=200, deadline=None)
@given(_PARTS, _PARTS, st.sampled_from([";", "&&", "||", "|", "&", "\n"]))
def test_two_commands_are_judged_at_least_as_strictly_as_each(
    first: str, second: str, operator: str
):
    if {"cd", "pushd", "(cd"} & {*first.split(), *(second.split() if operator == "|" else ())}:
        return  # then the second is another command than it is alone
    if "\n" in first or first.rstrip().endswith("&"):
        operator = "\n"
    glue = operator if operator == "\n" else f" {operator} "
    together = verdict(first + glue + second)
    for part in (first, second):
        alone = verdict(part)
        assert STRICTNESS[together.decision] >= STRICTNESS[alone.decision], part
        assert alone.read_only or not together.read_only


@settings(max_examples=200, deadline=None)
@given(st.permutations(["ls -l", "rm -rf ~", "git stash drop", "make", "cat x"]), st.booleans())
def test_the_order_of_a_pipeline_does_not_matter(parts: list[str], sandboxed: bool):
    found = verdict(" | ".join(parts), sandboxed=sandboxed)
    assert found.decision == "deny"
    mild = verdict(" | ".join(p for p in parts if not p.startswith("rm")), sandboxed=sandboxed)
    assert mild.decision == "ask"
    assert any("stashed changes" in reason for reason in mild.reasons)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([*corpus.HARD, *corpus.LOSES_WORK]),
    st.sampled_from(list(corpus.WRAPPERS)),
    st.sampled_from(["", "bash -c", "sh -c twice", "eval", "heredoc", "subshell", "if"]),
)
def test_no_wrapper_makes_a_command_more_welcome(command: str, inner: str, outer: str):
    worn = corpus.WRAPPERS[inner](command)
    if outer and "\n" not in worn and not worn.endswith("&"):
        worn = corpus.WRAPPERS[outer](worn)
    assert STRICTNESS[decision(worn)] >= STRICTNESS[decision(command)], worn


_NAMES = st.sampled_from(["pa", "pb", "pc", "pd"])
_ODD = r"""
x -y "$v" $v a=b --z=1 2 {1,2} ~ '' $((1+2)) #no a#b \; ! [ ] -n2 x:$v = $'a\'b'
${v}x % - -- { } if in do \ $v:$v @(a) $"t" ${v/a/`pa`} ${#v}
"""
_WORDS = st.one_of(
    st.sampled_from([*_ODD.split(), "\\\t", "'q q'", '"d d"', "a\\ b"]),
    _NAMES.map(lambda name: f"$({name})"),
    _NAMES.map(lambda name: f"`{name} x`"),
    _NAMES.map(lambda name: f'"$({name} y)"'),
    _NAMES.map(lambda name: "${v:-$(" + name + ")}"),
)
_REDIRECTIONS = st.sampled_from(
    "|> f|2>&1|>f 2>&1|2>/dev/null|< /dev/null|&> f|>&2|<<< x|3>&1|2> f x|< /dev/null x".split("|")
)
_BLANKS = st.sampled_from([" ", " ", " ", "  ", "\t", " \\\n", " \\\n  "])
_SIMPLE = st.builds(
    lambda blank, before, name, words, to, after: blank.join(
        part for part in (before, name, *words, to, *after) if part
    ),
    _BLANKS,
    st.sampled_from(["", "", "", "v=1", "v=pz", "V=$(pa)", "> f"]),
    _NAMES,
    st.lists(_WORDS, max_size=3),
    _REDIRECTIONS,
    st.lists(_WORDS, max_size=1),
)
_CHAIN = st.builds(
    lambda parts, glue: glue.join(parts),
    st.lists(_SIMPLE, min_size=1, max_size=4),
    st.sampled_from([" | ", "|", " |& ", " |\n", " && ", "||", " &&\n"]),
)
_STATEMENT = st.recursive(
    _CHAIN,
    lambda inner: st.one_of(
        st.builds("if {}; then {}\nfi".format, _CHAIN, inner),
        st.builds("for v in x y; do {}\ndone".format, inner),
        st.builds("( {}\n)".format, inner),
        st.builds("{{ {}\n}}".format, inner),
        st.builds("case x in x) {}\n;; *) pa;; esac".format, inner),
        st.builds("f() {{ {}\n}}\nf x".format, inner),
        st.builds("pa $({}\n)".format, inner),
        st.builds("# it's {}\npb".format, _SIMPLE),
        st.builds("pa <<E\n{}\nE".format, st.sampled_from(["t", "$(pb)", "`pb`", "\\`x", "it's"])),
        st.builds("pa <<'E' | {}\n$(pb)\nE".format, _NAMES),
    ),
    max_leaves=3,
)
_REAL = st.builds(
    lambda parts, glue: glue.join(parts),
    st.lists(_STATEMENT, min_size=1, max_size=3),
    st.sampled_from(["\n", "\n", "; ", "\n\n", "\n# c 'x\n", "\n\\\n", " ;\n", "\n<<< x "]),
)


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs a command for real, with no program to be found: what was called is written down."""
    folder = tmp_path_factory.mktemp("bash")
    hook = folder / "hook"
    hook.write_text(
        'command_not_found_handle() { local w o=; for w in "$@"; do o+="$w"$\'\\037\'; done; '
        'printf "%s\\036" "$o" >> "$LOG"; }\n'
    )
    number = itertools.count()

    def run(command: str) -> set[tuple[str, ...]]:
        log = folder / f"log{next(number)}"
        log.write_text("")
        environment = {
            "PATH": "/nonexistent",
            "BASH_ENV": str(hook),
            "LOG": str(log),
            "HOME": str(HOME.parent),
        }
        subprocess.run(
            ["/bin/bash", "-c", command + "\nwait"], env=environment, cwd=folder, timeout=60,
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
        calls = log.read_text(encoding="utf-8", errors="replace").split("\x1e")[:-1]
        return {tuple(call.split("\x1f")[:-1]) for call in calls}

    return run


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="compares with bash")
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(_REAL)
def test_bash_runs_exactly_what_was_read(bash: Any, command: str):
    """Only what is allowed is compared: there the reading must have been complete."""
    known = CommandRules([CommandRule("allow", (name,)) for name in ("pa", "pb", "pc", "pd")])
    found = verdict(command, rules=known, sandboxed=False)
    if found.decision != "allow":
        return
    unseen = [
        call
        for call in bash(command)
        if call[0].startswith("p") and not any(_could_be(argv, call) for argv in found.commands)
    ]
    assert not unseen, found.commands


def _could_be(argv: tuple[str, ...], call: tuple[str, ...]) -> bool:
    return argv == call or (argv[:1] == call[:1] and ("…" in "".join(argv) or "@(" in argv))
