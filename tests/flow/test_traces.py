"""Traces: what a collector gets, checked with OpenTelemetry's own definitions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hermes.app.agents import Options
from hermes.app.live import stored_trace
from hermes.app.live.spans import encode_spans
from tests.flow.loop_parts import work
from tests.kit import Received, Reply, call, say, status
from tests.kit.bodies import messages
from tests.kit.rig import rig


class Collector:
    """Takes OTLP/HTTP requests."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.url = ""
        self._came = asyncio.Condition()

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/json"
        async with self._came:
            self.bodies.append(await request.json())
            self._came.notify_all()
        return web.json_response({})

    async def wait_spans(self, count: int) -> list[dict[str, Any]]:
        """The spans as soon as there are so many."""
        async with asyncio.timeout(90), self._came:
            await self._came.wait_for(lambda: len(list_spans(self.bodies)) >= count)
        return list_spans(self.bodies)


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    found = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


def list_spans(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All spans, read with the protobuf definitions, with their attributes as a dict."""
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans = []
    for body in bodies:
        ParseDict(_use_base64(body), ExportTraceServiceRequest())
        for resource in body["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                spans += scope["spans"]
    return [
        {
            **span,
            "attributes": {row["key"]: _read_value(row["value"]) for row in span["attributes"]},
        }
        for span in spans
    ]


def _use_base64(value: Any) -> Any:
    """OTLP writes ids as hexadecimal digits, where JSON of protobuf has base64."""
    from base64 import b64encode

    if isinstance(value, list):
        return [_use_base64(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: b64encode(bytes.fromhex(item)).decode()
        if key in ("traceId", "spanId", "parentSpanId")
        else _use_base64(item)
        for key, item in value.items()
    }


def _read_value(value: dict[str, Any]) -> Any:
    (kind, found), *more = value.items()
    assert not more
    if kind == "arrayValue":
        return [_read_value(item) for item in found["values"]]
    return int(found) if kind == "intValue" else found


def check_turn(spans: list[dict[str, Any]], session: str) -> None:
    """A turn with a retry and two calls at once."""
    (turn,) = [s for s in spans if s["name"] == "invoke_agent hermes"]
    below = [s for s in spans if s is not turn]
    assert all(s["traceId"] == turn["traceId"] for s in spans)
    assert all(s["parentSpanId"] == turn["spanId"] for s in below) and "parentSpanId" not in turn
    assert sorted(s["name"] for s in below) == [
        "chat kit-model",
        "chat kit-model",
        "chat kit-model",
        "execute_tool read_file",
        "execute_tool read_file",
    ]
    begin, end = int(turn["startTimeUnixNano"]), int(turn["endTimeUnixNano"])
    for span in below:
        first, last = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        assert begin <= first <= last <= end
        assert span["attributes"]["gen_ai.conversation.id"] == session
    chats = sorted(
        (s for s in below if s["name"].startswith("chat")), key=lambda s: s["startTimeUnixNano"]
    )
    assert [s["attributes"].get("error.type", "") for s in chats] == ["server_error", "", ""]
    assert chats[0]["status"] == {"code": 2}
    second = chats[1]["attributes"]
    assert second["gen_ai.operation.name"] == "chat"
    assert second["gen_ai.request.model"] == second["gen_ai.response.model"] == "kit-model"
    assert second["gen_ai.provider.name"] and second["gen_ai.usage.input_tokens"] > 0
    assert second["gen_ai.usage.output_tokens"] > 0
    assert second["gen_ai.response.finish_reasons"] == ["tool_calls"]
    tools = [s["attributes"] for s in below if s["name"].startswith("execute_tool")]
    assert {t["gen_ai.tool.call.id"] for t in tools} == {"c1", "c2"}
    assert {t["gen_ai.tool.name"] for t in tools} == {"read_file"}


SECRET_TEXT = "the weather in Ghent"


BOTH = call(("c1", "read_file", {"path": "a.txt"}), ("c2", "read_file", {"path": "b.txt"}))
STEPS = [status(500, "oops"), BOTH, say("Both were read.")]


async def test_a_turn_with_a_retry_and_two_tools(tmp_path: Path, collector: Collector) -> None:
    work(tmp_path, a="alpha", b="beta")
    config = {"trace": {"otlp": collector.url}}
    async with rig(tmp_path, STEPS, config=config, check=False, replay=True) as r:
        await r.turn(SECRET_TEXT)
        spans = await collector.wait_spans(6)
        assert SECRET_TEXT not in json.dumps(collector.bodies)
        check_turn(spans, r.session.id)
        stored = await r.runtime.store.sessions.get_meta(r.session.id)
        assert stored is not None
        exported = await stored_trace.list_spans(r.runtime.store, stored, has_content=False)
        body = json.loads(encode_spans(exported))
        assert SECRET_TEXT not in json.dumps(body)
        check_turn(list_spans([body]), r.session.id)


async def test_contents_only_if_asked_for(tmp_path: Path, collector: Collector) -> None:
    work(tmp_path, a="alpha", b="beta")
    config = {"trace": {"otlp": f"{collector.url}/v1/traces", "content": True}}
    async with rig(tmp_path, STEPS, config=config, check=False) as r:
        await r.turn(SECRET_TEXT)
        await collector.wait_spans(6)
        text = json.dumps(collector.bodies)
        assert SECRET_TEXT in text and "Both were read." in text and "alpha" in text


async def test_a_subagent_is_below_the_call_that_started_it(
    tmp_path: Path, collector: Collector
) -> None:
    def delegate(request: Received) -> Reply:
        seen = messages(request)
        if "look at it" in seen[0].text + seen[-1].text and not seen[-1].results:
            return say("child was here")
        if seen[-1].results:
            return say("done")
        return call(("c1", "delegate_task", {"goal": "look at it"}))

    config = {"trace": {"otlp": collector.url}}
    options = Options(yolo=True, toolsets=("delegation",))
    async with rig(tmp_path, [], then=delegate, config=config, options=options, check=False) as r:
        assert (await r.turn("go")).text == "done"
        live = await collector.wait_spans(6)
        stored = await r.runtime.store.sessions.get_meta(r.session.id)
        assert stored is not None
        exported = await stored_trace.list_spans(r.runtime.store, stored, has_content=False)
        for spans in (live, list_spans([json.loads(encode_spans(exported))])):
            (tool,) = [s for s in spans if s["name"] == "execute_tool delegate_task"]
            turns = [s for s in spans if s["name"] == "invoke_agent hermes"]
            (child,) = [s for s in turns if s.get("parentSpanId")]
            assert child["parentSpanId"] == tool["spanId"]
            assert child["traceId"] == tool["traceId"]


async def test_a_dead_collector_costs_nothing_but_counted_drops(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    work(tmp_path, a="alpha", b="beta")
    config = {"trace": {"otlp": f"http://127.0.0.1:{port}"}}
    async with rig(tmp_path, STEPS, config=config, check=False) as r:
        assert (await r.turn()).text == "Both were read."
        traces = r.runtime.traces
    assert traces is not None and traces.dropped == 6
