"""Bodies that are small on the wire and large in memory are refused with little work."""

from __future__ import annotations

import sys

import pytest

from hermes.server.http.errors import ApiError
from hermes.server.http.json_body import decode_json
from hermes.server.routes.chat import ChatRequest
from hermes.server.routes.responses import ResponsesRequest
from tests.server.json_bombs import JSON_BOMBS


def count_calls_until_refused(body: bytes, kind: type[ChatRequest] | type[ResponsesRequest]) -> int:
    """How many functions are called, in Python and in C."""
    calls = 0

    def count_call(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    with pytest.raises(ApiError) as refused:
        sys.setprofile(count_call)
        try:
            decode_json(body, kind)
        finally:
            sys.setprofile(None)
    assert refused.value.status == 400
    return calls


@pytest.mark.parametrize("case", JSON_BOMBS, ids=str)
@pytest.mark.parametrize("kind", [ChatRequest, ResponsesRequest])
def test_bombs_are_refused_with_little_work(
    case: str, kind: type[ChatRequest] | type[ResponsesRequest]
) -> None:
    body = JSON_BOMBS[case]
    if kind is ResponsesRequest:
        body = body.replace(b'"messages"', b'"input"')
        body = body.replace(b"max_tokens", b"max_output_tokens")
    calls = count_calls_until_refused(body, kind)
    assert calls < 10_000, calls
