"""The recovery table is closed: every kind has a row and a code, every lesson is a real quirk."""

from __future__ import annotations

import pytest

from hermes.agent.recovery import PARAMETERS, POLICY, QUIRKS
from hermes.agent.report import LIMIT, sentence
from hermes.core.errors import CODES, Failure, Kind
from hermes.core.message import Target

PUBLIC_CODES = set(
    "auth billing rate_limited overloaded server_error network stalled tls context_overflow "
    "payload_too_large bad_request model_not_found content_policy output_truncated "
    "thinking_exhausted empty_response max_turns tool_loop unknown_tools budget interrupted "
    "config internal".split()
)


def test_every_kind_has_a_ladder() -> None:
    assert set(POLICY) == set(Kind)


def test_every_kind_has_a_public_code() -> None:
    assert set(CODES) == set(Kind)
    assert set(CODES.values()) <= PUBLIC_CODES


def test_what_a_rejected_parameter_teaches_is_a_quirk() -> None:
    for lesson in PARAMETERS.values():
        assert set(lesson) <= QUIRKS


class _Endpoint:
    target = Target("acme", "acme-large-with-a-long-name-2026-11-15", "chat")
    base_url = "https://user:pw@api.acme.example/v1"
    key_source = "ACME_API_KEY"


@pytest.mark.parametrize("kind", list(Kind), ids=lambda k: k.value)
@pytest.mark.parametrize("said", ["", "short", "long words " * 200])
def test_every_failure_is_one_bounded_sentence_that_says_what_to_do(kind: Kind, said: str) -> None:
    text = sentence(Failure(kind, said, retry_after=3600.0), _Endpoint())  # type: ignore[arg-type]
    assert 40 < len(text) <= LIMIT
    assert "\n" not in text
    assert "pw" not in text
    assert "{" not in text
    lowered = text.lower()
    assert "lost" in lowered or "kept" in lowered or "not run" in lowered
