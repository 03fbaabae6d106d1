"""What a person is told before answering "always"."""

from __future__ import annotations

import pytest

from hermes.cli.terminal.approval_prompt import describe_rule


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ("{decision: allow, prefix: [git, push]}", '"always" will allow every `git push …`'),
        ("{decision: allow, prefix: [a b, c]}", "\"always\" will allow every `'a b' c …`"),
        ("{decision: allow, prefix: [a], exact: true}", '"always" will allow exactly `a`'),
        ("{decision: allow, prefix: [[a, b], c]}", None),
        ("{decision: ask, prefix: [git]}", None),
        ("{decision: allow, prefix: [git], match: [git x]}", None),
        ("{not yaml", None),
    ],
)
def test_a_rule_is_described_or_shown_as_it_is(rule: str, shown: str | None) -> None:
    assert describe_rule(rule) == (shown or f'"always" will save the rule: {rule}')
