"""Traces: what a collector gets, checked with OpenTelemetry's own definitions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say, status
from tests.kit.bodies import messages

pytestmark = pytest.mark.e2e


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider([], then=say("done")) as p:
        yield p


@pytest.fixture
def home(tmp_path: Path, provider: Provider) -> Home:
    return Home.of(tmp_path, provider)


class Collector:
    """Takes OTLP/HTTP requests."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/json"
        self.bodies.append(await request.json())
        return web.json_response({})


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
    for span in spans:
        span["attributes"] = {row["key"]: _read_value(row["value"]) for row in span["attributes"]}
    return spans


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


async def ask(home: Home, provider: Provider) -> str:
    (home.work / "a.txt").write_text("alpha")
    (home.work / "b.txt").write_text("beta")
    both = call(("c1", "read_file", {"path": "a.txt"}), ("c2", "read_file", {"path": "b.txt"}))
    provider.add(status(500, "oops"), both, say("Both were read."))
    ran = await run_hermes(["chat", "-q", SECRET_TEXT, "--output", "json"], home)
    assert ran.rc == 0, ran
    return str(ran.json["session_id"])


async def test_a_turn_with_a_retry_and_two_tools(
    home: Home, provider: Provider, collector: Collector
) -> None:
    home.configure(trace={"otlp": collector.url})
    session = await ask(home, provider)
    assert SECRET_TEXT not in json.dumps(collector.bodies)
    check_turn(list_spans(collector.bodies), session)


async def test_contents_only_if_asked_for(
    home: Home, provider: Provider, collector: Collector
) -> None:
    home.configure(trace={"otlp": f"{collector.url}/v1/traces", "content": True})
    await ask(home, provider)
    text = json.dumps(collector.bodies)
    assert SECRET_TEXT in text and "Both were read." in text and "alpha" in text
    list_spans(collector.bodies)


async def test_the_trace_of_a_stored_session(home: Home, provider: Provider) -> None:
    session = await ask(home, provider)
    ran = await run_hermes(["sessions", "export", session, "--format", "trace"], home)
    assert ran.rc == 0 and SECRET_TEXT not in ran.stdout, ran
    check_turn(list_spans([ran.json]), session)


async def test_a_subagent_is_below_the_call_that_started_it(
    home: Home, provider: Provider, collector: Collector
) -> None:
    def delegate(request: Received) -> Reply:
        seen = messages(request)
        if "look at it" in seen[0].text + seen[-1].text and not seen[-1].results:
            return say("child was here")
        if seen[-1].results:
            return say("done")
        return call(("c1", "delegate_task", {"goal": "look at it"}))

    home.configure(trace={"otlp": collector.url})
    provider.then = delegate
    words = ["chat", "-q", "go", "--toolsets", "delegation", "--yolo", "--output", "json"]
    ran = await run_hermes(words, home)
    assert ran.rc == 0, ran
    live = list_spans(collector.bodies)
    exported = await run_hermes(
        ["sessions", "export", ran.json["session_id"], "--format", "trace"], home
    )
    for spans in (live, list_spans([exported.json])):
        (tool,) = [s for s in spans if s["name"] == "execute_tool delegate_task"]
        turns = [s for s in spans if s["name"] == "invoke_agent hermes"]
        (child,) = [s for s in turns if s.get("parentSpanId")]
        assert child["parentSpanId"] == tool["spanId"] and child["traceId"] == tool["traceId"]


async def test_a_dead_collector_costs_nothing(home: Home, provider: Provider) -> None:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    home.configure(trace={"otlp": f"http://127.0.0.1:{port}"})
    await ask(home, provider)
    log = "".join(p.read_text() for p in home.path.rglob("*.log"))
    assert "6 spans were not delivered" in log
