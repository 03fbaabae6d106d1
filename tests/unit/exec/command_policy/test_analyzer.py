"""What is denied, asked about, allowed, and what is reported about it."""

from pathlib import Path

import pytest

from hermes.exec.command_policy.hard_denials import find_hard_program
from hermes.exec.command_policy.types import STRICTNESS
from tests.unit.exec.command_policy import command_corpus as corpus
from tests.unit.exec.command_policy.judgements import HOME, WORKSPACE, decision, verdict
from tests.unit.exec.command_policy.ordinary_commands import ORDINARY


def test_the_hard_list_is_denied_everywhere():
    worst = [*corpus.HARD, *corpus.HARD_SCRIPTS, *corpus.AGENT_FILES]
    for sandboxed in (True, False):
        assert [c for c in worst if decision(c, sandboxed=sandboxed) != "deny"] == []


@pytest.mark.parametrize("name", corpus.WRAPPERS)
def test_wrapping_in_literals_does_not_lift_a_denial(name: str):
    worn = [corpus.WRAPPERS[name](command) for command in corpus.HARD]
    assert [command for command in worn if decision(command) != "deny"] == []


@pytest.mark.parametrize("name", corpus.WRAPPERS)
def test_the_syntax_of_the_wrappers_is_not_what_is_stopped(name: str):
    for command in ("ls -la src", "git status", "pytest -q"):
        found = verdict(corpus.WRAPPERS[name](command))
        assert found.decision == "allow", found.reasons
        assert found.understood


@pytest.mark.parametrize(("command", "said"), corpus.LOSES_WORK.items())
def test_losing_what_no_checkpoint_covers_asks(command: str, said: str):
    found = verdict(command)
    assert found.decision == "ask"
    (reason,) = found.reasons
    assert said in reason


def test_everything_else_runs_in_a_sandbox():
    found = {command: verdict(command) for command in corpus.COVERED}
    assert {c: j.reasons for c, j in found.items() if j.decision != "allow"} == {}


def test_ordinary_work_does_not_ask_in_a_sandbox():
    assert len(set(ORDINARY)) >= 500
    found = {command: verdict(command) for command in ORDINARY}
    asked = {c: j.reasons for c, j in found.items() if j.decision != "allow"}
    assert len(asked) <= len(found) / 100, asked
    assert all(len(reasons) == 1 for reasons in asked.values())
    assert "deny" not in {j.decision for j in found.values()}


def test_working_inside_the_agents_home_is_possible():
    inside = HOME / "workspace"
    assert decision("cat notes.md > copy.md", workspace=inside) == "allow"
    assert decision(f"cat {inside}/notes.md", workspace=inside) == "allow"
    assert decision("cat ../config.yaml", workspace=inside) == "deny"


def test_links_out_of_the_workspace_are_followed(tmp_path: Path):
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "out").symlink_to("/etc")
    (workspace / "key").symlink_to("/home/somebody/.ssh/id_rsa")
    assert decision("rm -rf out/", workspace=workspace) == "deny"
    assert decision("cat key", workspace=workspace, sandboxed=False) == "ask"
    assert decision("cat other", workspace=workspace, sandboxed=False) == "allow"


def test_a_link_that_may_not_be_read_is_no_crash(monkeypatch: pytest.MonkeyPatch):
    def refused(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.path.realpath", refused)
    assert decision("wc < /proc/1/exe", sandboxed=False) in STRICTNESS


# Without a sandbox


def test_git_is_free_only_in_the_projects_own_repository(tmp_path: Path):
    """Others obey settings that a tool may have written, and those name programs to run."""
    for folder in (".git", "src", "bare/objects", "bare/refs", "nested/.git"):
        (tmp_path / "work" / folder).mkdir(parents=True)
    (tmp_path / "work" / "bare" / "HEAD").write_text("ref: refs/heads/main")
    (tmp_path / "work" / "out").symlink_to(tmp_path)

    def judge(command: str) -> str:
        return decision(command, workspace=tmp_path / "work", sandboxed=False)

    assert judge("git status") == judge("cd src && git log") == "allow"
    for folder in ("bare", "bare/objects", "nested", "out", "missing", ".."):
        assert judge(f"cd {folder} && git status") == "ask", folder


@pytest.mark.parametrize("command", corpus.READ_ONLY)
def test_reading_needs_no_sandbox(command: str):
    found = verdict(command, sandboxed=False)
    assert found.decision == "allow", found.reasons
    assert found.read_only and verdict(command).read_only


@pytest.mark.parametrize("command", corpus.NOT_READ_ONLY)
def test_without_a_sandbox_everything_else_asks(command: str):
    found = verdict(command, sandboxed=False)
    assert found.decision == "ask"
    assert found.reasons and not found.read_only
    assert not verdict(command).read_only


def test_the_reason_names_the_effect():
    for command, said in {
        "git push origin main": "it publishes commits to another machine",
        "npm publish": "it publishes a package",
        "make deploy": "make deploy may change files",
        "cat ~/.ssh/id_rsa": "it reads /home/somebody/.ssh/id_rsa, which holds credentials",
        "echo x > out": "it writes out",
        "cat $X": "what cat reads is known only at run time",
        "ls *.md": "what ls reads is known only at run time",
        "git reset --hard": "it discards changes",
        "curl -s https://a.example": "it uses the network",
        "python3 - <<'E'\nprint(1)\nE": "it is not known to only read",
        "make # all": "it is not known to only read",
        "make $(ls)": "parts of it are known only at run time",
    }.items():
        assert any(said in r for r in verdict(command, sandboxed=False).reasons), command


# What is reported


def test_what_is_shown_is_what_was_found():
    found = verdict("cd src && grep -n 'a b' *.py | head -3 > /dev/null; echo $UNKNOWN")
    assert found.commands == (
        ("cd", "src"),
        ("grep", "-n", "a b", "*.py"),
        ("head", "-3"),
        ("echo", "…"),
    )


def test_commands_that_others_run_are_found():
    found = verdict(
        "sudo -u me env A=1 timeout 5 bash -c 'nice make x; f=$(pwd)' && find . -exec rm {} +"
    )
    assert {"make", "pwd", "rm", "nice", "timeout"} <= {argv[0] for argv in found.commands}


@pytest.mark.parametrize(
    ("command", "commits"),
    [
        ("git add -A && git commit -m x", True),
        ("git -C sub commit -m x", True),
        ("bash -c 'git stash'", True),
        ("git log", False),
        ("echo git commit", False),
    ],
)
def test_writing_to_the_repository_is_reported(command: str, commits: bool):
    assert verdict(command).commits is commits


@pytest.mark.parametrize(
    "mark", ["\u200b", "\u202e", "\u00a0", "\ufeff", "\r", "\x1b", "\U000e0041"]
)
def test_characters_that_deceive_the_reader_ask_without_a_sandbox(mark: str):
    found = verdict(f"echo a{mark}b", sandboxed=False)
    assert found.decision == "ask"
    assert f"U+{ord(mark):04X}" in found.reasons[0]


def test_other_languages_do_not_ask():
    for text in ("Исправить ошибку", "修复:分页", "größer – «ça»", "日本語のテスト", "🎉 done"):
        assert decision(f"echo '{text}'", sandboxed=False) == "allow", text
    assert decision("саt README.md", sandboxed=False) == "ask"


# What cannot be read


def test_what_cannot_be_read_is_said_so():
    for command in ("echo $(", ";" * 5000, "if then fi (", "x" * 200_000):
        assert not verdict(command).understood
        found = verdict(command, sandboxed=False)
        assert found.decision == "ask" and "cannot be checked" in found.reasons[0]
    assert verdict("rm -rf /").understood


def test_what_cannot_be_read_asks_in_a_sandbox_only_when_it_names_the_worst():
    """Where nobody is asked it is refused then. Ordinary commands are not."""
    assert [c for c in ORDINARY if not verdict(c).understood] == []
    for text in (
        "if then /bin/rm -rf x (",
        "echo $( ; dd if=a",
        "( ;; mkfs.ext4 x",
        "'\nkill -9 1",
        "x=1\n" * 5000 + "rm -rf ~",
    ):
        assert not verdict(text).understood, text
        assert decision(text) == "ask"
        assert find_hard_program(text), text
    for text in ("if then fi (", "echo $( killer rm-old x.rm --rm=1 format", "(( warm cp2 $("):
        assert not verdict(text).understood, text
        assert decision(text) == "allow"
        assert not find_hard_program(text), text


def test_the_folder_counts():
    assert decision("rm -rf app", cwd=WORKSPACE.parent) == "ask"
    assert decision("cd / && rm -rf *") == "deny"
    assert decision("(cd /); rm -rf x/*") == "allow"
    assert decision("cd /; ls | (cd build && rm -rf ./x)") == "allow"
