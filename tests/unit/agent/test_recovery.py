"""The recovery table is closed: every kind has a row and a code, every lesson is a real quirk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hermes.agent.error_messages import LIMIT, describe_failure
from hermes.agent.recovery import PARAMETERS, POLICY
from hermes.core.errors import CODES, Failure, Kind
from hermes.core.message import Target, user_message
from hermes.core.provider import Settings
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.errors.patterns import FIELDS
from hermes.llm.provider_spec import Quirks, overlay_quirks
from tests.wire.talk import TOOLS, Talk

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
        assert set(lesson) <= set(Quirks.__struct_fields__)


def _keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {*value, *(k for v in value.values() for k in _keys(v))}
    return {k for v in value for k in _keys(v)} if isinstance(value, list) else set()


ASKED = Settings(max_output=4000, temperature=0.5, effort="high", stop=("x",))
FULL: list[tuple[str, Quirks]] = [
    ("chat", Quirks(effort="effort", cache="envelope", thinking_switch="asked")),
    ("chat", Quirks(effort="object")),
    ("responses", Quirks(effort="effort")),
    ("anthropic", Quirks(effort="adaptive", cache="native")),
    ("anthropic", Quirks(effort="budget")),
    ("gemini", Quirks(effort="level")),
    ("gemini", Quirks(effort="budget")),
    ("bedrock", Quirks(effort="adaptive")),
]


@pytest.mark.parametrize(("wire", "quirks"), FULL, ids=lambda x: x if isinstance(x, str) else "")
def test_what_an_endpoint_refused_is_not_in_the_next_request(wire: str, quirks: Quirks) -> None:
    """Whatever field a refusal may name: what is learned from it takes it out."""
    body = Talk(wire, quirks).body(user_message("x"), tools=TOOLS, settings=ASKED)
    named = _keys(body) & {*FIELDS.split("|"), "strict"} - {"max_tokens", "maxOutputTokens"}
    assert len(named) > 1
    for name in named:
        learned = overlay_quirks(quirks, PARAMETERS.get(name, {"drop": (name,)}))
        less = Talk(wire, learned).body(user_message("x"), tools=TOOLS, settings=ASKED)
        assert name not in _keys(less), name


class _Endpoint:
    target = Target("acme", "acme-large-with-a-long-name-2026-11-15", "chat")
    endpoint = ModelEndpoint(target, "https://user:pw@api.acme.example/v1")
    credentials = SimpleNamespace(key_source="ACME_API_KEY", is_login=False)


@pytest.mark.parametrize("kind", list(Kind), ids=lambda k: k.value)
@pytest.mark.parametrize("said", ["", "short", "long words " * 200])
def test_every_failure_is_one_bounded_sentence_that_says_what_to_do(kind: Kind, said: str) -> None:
    text = describe_failure(Failure(kind, said, retry_after=3600.0), _Endpoint()).error  # type: ignore[arg-type]
    assert 40 < len(text) <= LIMIT
    assert "\n" not in text
    assert "pw" not in text
    assert "{" not in text
    lowered = text.lower()
    assert "lost" in lowered or "kept" in lowered or "not run" in lowered


def test_an_empty_answer_is_not_quoted() -> None:
    text = describe_failure(Failure(Kind.SERVER, " {} "), _Endpoint()).error  # type: ignore[arg-type]
    assert "tries. Nothing was lost." in text


def test_where_no_key_is_set_none_is_said_to_be_wrong() -> None:
    class Keyless(_Endpoint):
        credentials = SimpleNamespace(key_source="", is_login=False)

    text = describe_failure(Failure(Kind.AUTH, "no words " * 90), Keyless()).error  # type: ignore[arg-type]
    assert "none is set" in text and text.endswith("send the message again.")
    assert "model.api_key_env" in text
