"""The client on real sockets: what the network and the other side can do to one call."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.events import TextDelta
from hermes.core.history import History
from hermes.core.message import Message, Text, user_message
from hermes.core.provider import Request
from hermes.llm.http.transport import Transport
from hermes.llm.http.watchdog import Timeouts, Watchdog
from hermes.llm.provider_spec import Quirks
from hermes.llm.response_builder import ResponseBuilder
from hermes.llm.response_reader import ResponseReader
from hermes.llm.wire import chat
from tests.flow.transport.conftest import KEY, OTHER, QUICK, Heard, ask, client, request
from tests.kit import (
    Gate,
    Provider,
    Reply,
    call,
    garbage,
    hang_up,
    html,
    raw,
    redirect,
    reset,
    say,
    stall,
    status,
)

# -- it works ------------------------------------------------------------------------------------


async def test_an_answer_comes_in_order_and_the_connection_is_used_again(
    transport: Transport,
) -> None:
    async with Provider([say("one two three"), say("four")]) as p:
        c = client(transport, p)
        heard = await ask(c)
        assert (heard.text, heard.answer.stop, heard.failure) == ("one two three", "end", None)
        assert (await ask(client(transport, p))).text == "four"
        assert p.connections == 1
        assert p.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert p.requests[0].headers["content-length"] == str(len(p.requests[0].body))
        assert "transfer-encoding" not in p.requests[0].headers


async def test_a_fresh_connection_is_not_one_of_the_pool(transport: Transport) -> None:
    async with Provider(then=say("ok")) as p:
        c = client(transport, p)
        await ask(c)
        assert (await ask(c, request(fresh=True))).text == "ok"
        assert p.connections == 2
        assert (await ask(c)).text == "ok" and p.connections == 2
        assert p.requests[2].connection == p.requests[0].connection


async def test_consecutive_requests_share_their_prefix_byte_for_byte(transport: Transport) -> None:
    async with Provider(then=say("ok")) as p:
        c = client(transport, p)
        history = History([user_message("first")])
        await ask(c, Request("be brief", history))
        history.append(Message("assistant", (Text("ok"),), origin=c.target))
        history.append(user_message("second"))
        await ask(c, Request("be brief", history))
        first, second = p.requests[0].body, p.requests[1].body
        assert first.rstrip(b"]}") == second[: len(first.rstrip(b"]}"))]


async def test_large_requests_are_sent_in_one_go(transport: Transport) -> None:
    async with Provider([say("ok")]) as p:
        heard = await ask(client(transport, p), request("x" * 3_000_000))
        assert heard.text == "ok"
        assert len(p.last.body) > 3_000_000 and "transfer-encoding" not in p.last.headers


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic", "gemini", "bedrock"])
async def test_learned_not_to_stream(transport: Transport, wire: str) -> None:
    async with Provider(then=say("plain"), wire=wire) as p:
        heard = await ask(client(transport, p), request(learned={"stream": False}))
        assert heard.text == "plain" and heard.answer.stop == "end"
        assert not p.last.streams


async def test_cookies_are_not_kept(transport: Transport) -> None:
    async with Provider(then=say("ok").headers(Set_Cookie="a=b; Path=/")) as p:
        c = client(transport, p)
        await ask(c)
        await ask(c)
        assert "cookie" not in p.last.headers


async def test_models_are_listed_or_not(transport: Transport) -> None:
    for wire in ("chat", "responses", "anthropic", "gemini"):
        async with Provider(wire=wire, models=["kit-model", "kit-2"]) as p:
            assert await client(transport, p).listing.list_models() == ("kit-model", "kit-2")
    assert await client(transport, "http://127.0.0.1:9/v1").listing.list_models() == ()


def test_it_is_not_tied_to_an_event_loop() -> None:
    transport = Transport()

    async def once(p: Provider) -> str:
        return (await ask(client(transport, p))).text

    with Provider(then=say("ok").until_close()) as p:
        assert asyncio.run(once(p)) == "ok"
        assert asyncio.run(once(p)) == "ok"
        asyncio.run(transport.close())
    gc.collect()


# -- what can happen to a connection -------------------------------------------------------------


async def test_f01_refused_and_unknown_hosts(transport: Transport) -> None:
    async with Provider(listening=False) as p:
        heard = await ask(client(transport, p))
        assert heard.kind is Kind.NETWORK
        assert f"cannot reach 127.0.0.1:{p.port}" in heard.said and "refused" in heard.said
    heard = await ask(client(transport, "http://nowhere.invalid/v1"))
    assert heard.kind is Kind.NETWORK and "cannot reach nowhere.invalid" in heard.said


@pytest.mark.parametrize("reply", [reset(), hang_up(), garbage(b"\x00\x00\x08\x07\x00")])
async def test_f03_no_answer_at_all(transport: Transport, reply: Reply) -> None:
    async with Provider([reply, say("ok")]) as p:
        c = client(transport, p)
        heard = await ask(c)
        assert heard.kind is Kind.NETWORK and heard.answer.is_empty
        assert (await ask(c)).text == "ok"


@pytest.mark.parametrize("how", ["reset", "cut"])
async def test_f04_text_that_arrived_is_kept(transport: Transport, how: str) -> None:
    gate = Gate()
    reply = getattr(say("one ", "two ", "three").hold(gate, "text", 2), how)("text", 2)
    async with Provider([reply]) as p:
        heard = Heard()
        with pytest.raises(ProviderError) as caught:
            async for events in client(transport, p).stream(request(), heard.answer):
                heard.events += events
                if heard.text == "one two ":
                    gate.open()
        assert caught.value.failure.kind is Kind.NETWORK
        assert heard.text == "one two " and heard.answer.stop == "died"


async def test_f05_a_call_that_broke_off_is_known_to_have_begun(transport: Transport) -> None:
    reply = call(("c1", "write_file", {"path": "a", "content": "b" * 50})).cut("args", 2)
    async with Provider([reply]) as p:
        heard = await ask(client(transport, p))
        assert heard.kind is Kind.NETWORK and heard.answer.stop == "died"
        assert heard.answer.call_names == ("write_file",)


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic", "gemini", "bedrock"])
async def test_f12_a_connection_cut_after_the_last_word_is_no_loss(
    transport: Transport, wire: str
) -> None:
    async with Provider([say("all of it").cut("stop")], wire=wire) as p:
        heard = await ask(client(transport, p))
        assert (heard.text, heard.answer.stop, heard.failure) == ("all of it", "end", None)


@pytest.mark.parametrize("form", ["stream", "json"])
async def test_f17_truncated_gzip(transport: Transport, form: str) -> None:
    reply = say("compressed ", "text").gzip().cut("text")
    if form == "json":
        reply = say("compressed text").gzip(truncated=True).as_json()
    async with Provider([reply, say("whole").gzip()]) as p:
        c = client(transport, p)
        heard = await ask(c)
        assert heard.kind is Kind.NETWORK or heard.answer.stop == "died"
        assert (await ask(c)).text == "whole"


# -- watchdogs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [stall(), say("x").stall(n=0)])
async def test_f06_no_first_event(transport: Transport, reply: Reply) -> None:
    async with Provider([reply]) as p:
        heard = await ask(client(transport, p, timeouts=Timeouts(0.05, 5, 5)))
        assert heard.kind is Kind.STALLED and "0.05 s (ttfb" in heard.said
        await asyncio.wait_for(p.last.gone.wait(), 90)


async def test_f07_silence_in_mid_text(transport: Transport) -> None:
    async with Provider([say("one ", "two").stall("text")]) as p:
        heard = await ask(client(transport, p, timeouts=Timeouts(5, 0.08, 5)))
        assert heard.kind is Kind.STALLED and "0.08 s (stale" in heard.said
        assert heard.text == "one " and heard.answer.stop == "died"
        await asyncio.wait_for(p.last.gone.wait(), 90)


@pytest.mark.parametrize(("place", "limits"), [("", (0.1, 5, 5)), ("text", (5, 0.1, 5))])
async def test_f08_comments_are_not_events(
    transport: Transport, place: str, limits: tuple[float, float, float]
) -> None:
    reply = say("one ", "two").drip(b": ping\n\n", 0.01, after=place, n=1 if place else 0)
    async with Provider([reply]) as p:
        heard = await ask(client(transport, p, timeouts=Timeouts(*limits)))
        assert heard.kind is Kind.STALLED


async def test_f09_a_trickle_ends_at_the_total_cap(transport: Transport) -> None:
    event = b'data: {"choices":[{"delta":{"content":"."}}]}\n\n'
    reply = say("one ").drip(event, 0.01, after="text")
    async with Provider([reply]) as p:
        heard = await ask(client(transport, p, timeouts=Timeouts(5, 5, 0.25)))
        assert heard.kind is Kind.STALLED and "0.25 s (request" in heard.said
        assert heard.text.startswith("one ..")


async def test_events_feed_the_stale_limit_whatever_they_are(transport: Transport) -> None:
    event = b'data: {"choices":[]}\n\n'
    reply = say("one ", "two").drip(event, 0.04, after="text", times=20)
    async with Provider([reply]) as p:
        heard = await ask(client(transport, p, timeouts=Timeouts(5, 0.6, 5)))
        assert heard.text == "one two" and heard.failure is None


async def test_without_streaming_only_the_other_limits_count(transport: Transport) -> None:
    gate = Gate()
    async with Provider([say("late").hold(gate, n=0), stall()]) as p:
        c = client(transport, p, timeouts=Timeouts(0.03, 0.3, 5), quirks=Quirks(stream=False))
        asyncio.get_running_loop().call_later(0.1, gate.open)
        assert (await ask(c)).text == "late"
        heard = await ask(c)
        assert heard.kind is Kind.STALLED and "(stale" in heard.said


async def test_a_large_prompt_gets_more_patience(transport: Transport) -> None:
    async with Provider([say("one ", "two").stall("text")]) as p:
        c = client(transport, p, timeouts=Timeouts(5, 0.05, 5))
        heard = await ask(c, request("x" * 500_000))
        assert heard.kind is Kind.STALLED and "0.1 s (stale" in heard.said


async def test_limits_can_be_turned_off(transport: Transport) -> None:
    gate = Gate()
    async with Provider([say("late").hold(gate, n=0)]) as p:
        asyncio.get_running_loop().call_later(0.05, gate.open)
        heard = await ask(client(transport, p, timeouts=Timeouts(0, 0, 0)))
        assert heard.text == "late"


async def test_a_slow_consumer_is_not_a_silent_provider(transport: Transport) -> None:
    async with Provider([say("one ", "two ", "three").bytes_each(40)]) as p:
        heard = Heard()
        c = client(transport, p, timeouts=Timeouts(5, 0.05, 5))
        async for events in c.stream(request(), heard.answer):
            heard.events += events
            await asyncio.sleep(0.08)
        assert heard.text == "one two three"


async def test_an_open_connection_after_the_end_does_not_hold_the_answer(
    transport: Transport,
) -> None:
    async with Provider([say("done").stall("done")]) as p:
        heard = await ask(client(transport, p, timeouts=Timeouts(5, 0.05, 5)))
        assert (heard.text, heard.failure) == ("done", None)


class Pieces:
    """An exchange whose body comes in these pieces and then breaks off."""

    content_type, host = "text/event-stream", "h"

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def read(self) -> bytes:
        if not self._pieces:
            raise ProviderError(Failure(Kind.NETWORK, "gone"))
        return self._pieces.pop(0)


@pytest.mark.parametrize(
    ("said", "complete"), [(["one", ""], True), (["one", "two"], False), (["one", "", "x"], False)]
)
async def test_a_reason_given_with_every_piece_is_no_last_word(
    said: list[str], complete: bool
) -> None:
    delta = '{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":"stop"}]}'
    pieces = [f"data: {delta % text}\n\n".encode() for text in said]
    answer = ResponseBuilder()
    watchdog = Watchdog(QUICK, "h")
    decoder = chat.Decoder(answer, Quirks())
    exchange: Any = Pieces(*pieces)
    reading = ResponseReader(exchange, watchdog, decoder, answer, chat.STREAM_TYPE)
    try:
        while await reading.read_more():
            pass
    except ProviderError:
        pass
    watchdog.stop()
    assert answer.stop == ("end" if complete else "died")


# -- leaving early -------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [stall(), say("one ", "two").stall("text")])
async def test_cancellation_closes_the_socket(transport: Transport, reply: Reply) -> None:
    async with Provider([reply, say("next")]) as p:
        c = client(transport, p)
        task = asyncio.ensure_future(ask(c))
        async with asyncio.timeout(90):
            while not p.requests or not (reply.socket or p.last.sent):
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await p.requests[0].gone.wait()
        assert (await ask(c)).text == "next" and p.connections == 2


async def test_closing_the_stream_closes_the_socket(transport: Transport) -> None:
    async with Provider([say("one ", "two").stall("text")]) as p:
        async with aclosing(client(transport, p).stream(request(), ResponseBuilder())) as batches:
            await anext(batches)
        await asyncio.wait_for(p.last.gone.wait(), 90)


# -- answers that are none -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [html(), html().type("application/json"), html("\n\n <html>").type("text/event-stream")],
)
async def test_f10_a_web_page(transport: Transport, reply: Reply) -> None:
    async with Provider([reply]) as p:
        heard = await ask(client(transport, p))
        assert heard.kind is Kind.NOT_API
        assert heard.said == f"127.0.0.1:{p.port} answered with a web page, not an API"


async def test_a_first_line_of_garbage_is_not_a_page(transport: Transport) -> None:
    reply = say("still read").insert(b"<garbage line>\n\n", before="start").bytes_each(2)
    padded = raw(b'\n\n \n{"choices":[{"message":{"content":"x"}}]}')
    async with Provider([reply, padded]) as p:
        c = client(transport, p)
        assert (await ask(c)).text == "still read"
        assert (await ask(c)).text == "x"


async def test_f10_text_and_nothing(transport: Transport) -> None:
    replies = [raw(b"Bad wolf, no JSON", content_type="text/plain"), raw(b""), raw(b'{"choices":')]
    async with Provider(replies) as p:
        c = client(transport, p)
        assert (await ask(c)).kind is Kind.NOT_API
        assert (await ask(c)).kind is Kind.NETWORK
        assert (await ask(c)).kind in (Kind.NETWORK, Kind.NOT_API)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/json", "", "text/html", "text/event-stream"]
)
@pytest.mark.parametrize("form", ["stream", "json"])
async def test_f20_the_body_says_what_it_is(transport: Transport, kind: str, form: str) -> None:
    reply = say("as it is").type(kind).bytes_each(3)
    reply = reply.as_json().type(kind) if form == "json" else reply
    async with Provider([reply]) as p:
        heard = await ask(client(transport, p))
        assert (heard.text, heard.failure) == ("as it is", None)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10_000), wire=st.sampled_from(["chat", "anthropic", "bedrock"]))
async def test_every_cutting_gives_the_same_answer(seed: int, wire: str) -> None:
    transport = Transport()
    try:
        async with Provider([say("a ü 漢 text").random_cuts(seed)], wire=wire) as p:
            heard = await ask(client(transport, p))
            assert (heard.text, heard.failure) == ("a ü 漢 text", None)
    finally:
        await transport.close()


async def test_f41_redirects_are_not_followed(transport: Transport) -> None:
    async with Provider() as elsewhere, Provider([redirect(elsewhere.base_url)]) as p:
        heard = await ask(client(transport, p))
        assert heard.kind is Kind.REDIRECT and elsewhere.base_url in heard.said
        assert elsewhere.connections == 0


# -- errors --------------------------------------------------------------------------------------


async def test_refusals_are_classified_with_what_they_say(transport: Transport) -> None:
    replies = [
        status(429, "slow down", headers={"Retry-After": "7"}),
        status(400, "Unsupported parameter: 'top_p'", error="unsupported_parameter", param="top_p"),
        raw(b"<html><title>502 Bad Gateway</title>...", code=502, content_type="text/html"),
        raw(b"no such thing", code=404, content_type="text/plain"),
        raw(
            b'{"error":{"code":400,"message":"the request exceeds the available context size",'
            b'"type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}',
            code=400,
        ),
        raw(
            b'{"error":{"code":429,"message":"Quota exceeded","details":[{"@type":'
            b'"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"37s"}]}}',
            code=429,
        ),
    ]
    async with Provider(replies) as p:
        c = client(transport, p)
        first = (await ask(c)).failure
        assert first == Failure(Kind.RATE_LIMITED, "slow down", 429, "requests", 7.0)
        assert ((await ask(c)).failure or first).param == "top_p"
        page = await ask(c)
        assert (page.kind, page.said) == (Kind.SERVER, "502 Bad Gateway")
        assert ((await ask(c)).failure or first).kind is Kind.WRONG_PATH
        assert ((await ask(c)).failure or first).limit == 4096
        assert ((await ask(c)).failure or first).retry_after == 37


async def test_secrets_are_not_in_failures(transport: Transport) -> None:
    said = f"Incorrect API key provided: {KEY} (Bearer {OTHER})"
    async with Provider([status(401, said, error=KEY)]) as p:
        heard = await ask(client(transport, p))
        assert heard.kind is Kind.AUTH
        assert KEY not in repr(heard.failure) and OTHER not in repr(heard.failure)
        assert "Incorrect API key provided: [redacted]" in heard.said


async def test_an_endless_error_is_not_read_to_its_end(transport: Transport) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 65536

    async with Provider([raw(endless, code=500, content_type="text/plain")]) as p:
        heard = await ask(client(transport, p))
        assert heard.kind is Kind.SERVER and len(heard.said) <= 10_000
        await asyncio.wait_for(p.last.gone.wait(), 90)
        assert p.last.sent < 20_000_000


async def test_f14_an_error_inside_the_stream_comes_after_what_was_said(
    transport: Transport,
) -> None:
    said = f"Overloaded, says {KEY}"
    reply = say("so far ").then_error(said, status=529, code="overloaded_error")
    async with Provider([reply]) as p:
        heard = await ask(client(transport, p))
        assert heard.text == "so far " and heard.kind is Kind.OVERLOADED
        assert heard.said == "Overloaded, says [redacted]"


async def test_f19_an_answer_past_the_cap_is_cut_and_the_socket_closed(
    transport: Transport,
) -> None:
    event = b'data: {"choices":[{"delta":{"content":"' + b"x" * 1000 + b'"}}]}\n\n'

    def endless() -> Iterator[bytes]:
        while True:
            yield event

    async with Provider([raw(endless, content_type="text/event-stream")]) as p:
        answer, events = ResponseBuilder(max_size=100_000), []
        with pytest.raises(ProviderError) as caught:
            async for batch in client(transport, p).stream(request(), answer):
                events += batch
        assert caught.value.failure.kind is Kind.ANSWER_TOO_LARGE and answer.stop == "died"
        assert 90_000 < sum(len(e.text) for e in events if isinstance(e, TextDelta)) < 400_000
        await asyncio.wait_for(p.last.gone.wait(), 90)
