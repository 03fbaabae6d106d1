"""The official SDKs can read every answer of this server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import call, say
from tests.kit.api import Api, api

TOOL = call(("c1", "read_file", {"path": "a.txt"}))


@pytest.fixture
def openai(request: pytest.FixtureRequest):
    from openai import AsyncOpenAI

    def client(api: Api) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.key, max_retries=0)

    return client


async def test_chat(tmp_path: Path, openai) -> None:
    async with api(tmp_path, [say("Hello.")]) as a, openai(a) as client:
        answer = await client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "hi"}]
        )
        assert answer.choices[0].message.content == "Hello."
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None and answer.usage.total_tokens > 0
        assert (await client.models.list()).data[0].id == "hermes-agent"


async def test_chat_stream(tmp_path: Path, openai) -> None:
    (tmp_path / "work").mkdir()
    async with api(tmp_path, [TOOL, say("One ", "two.")]) as a, openai(a) as client:
        stream = await client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == "One two."
        assert chunks[-1].usage is not None


async def test_responses(tmp_path: Path, openai) -> None:
    async with api(tmp_path, [TOOL, say("Read."), say("Again.")]) as a, openai(a) as client:
        first = await client.responses.create(model="any", input="read it")
        assert first.output_text == "Read."
        assert [i.type for i in first.output] == [
            "function_call",
            "function_call_output",
            "message",
        ]
        again = await client.responses.create(
            model="any", input="again", previous_response_id=first.id
        )
        assert again.output_text == "Again."
        assert b"read it" in a.provider.last.body
        assert (await client.responses.retrieve(first.id)).output_text == "Read."
        await client.responses.delete(first.id)


async def test_responses_stream_with_tools(tmp_path: Path, openai) -> None:
    async with api(tmp_path, [TOOL, say("One ", "two.")]) as a, openai(a) as client:
        async with client.responses.stream(model="any", input="read it") as stream:
            events = [event async for event in stream]
            final = await stream.get_final_response()
        assert final.output_text == "One two."
        assert final.status == "completed"
        kinds = [event.type for event in events]
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert kinds[-1] == "response.completed"
        assert [e.sequence_number for e in events] == list(range(len(events)))
        stored = await client.responses.retrieve(final.id)
        assert stored.output_text == "One two."


async def test_a_named_conversation(tmp_path: Path, openai) -> None:
    async with api(tmp_path, [say("One."), say("Two.")]) as a, openai(a) as client:
        for text, said in (("primus", "One."), ("secundus", "Two.")):
            answer = await client.responses.create(model="any", input=text, conversation="c")
            assert answer.output_text == said
        body = a.provider.last.body
        assert body.count(b"primus") == 1 and body.count(b"One.") == 1


async def test_messages(tmp_path: Path) -> None:
    from anthropic import AsyncAnthropic

    async with (
        api(tmp_path, [TOOL, say("One ", "two."), say("Three.")]) as a,
        AsyncAnthropic(base_url=a.url, api_key=a.key, max_retries=0) as client,
    ):
        ask = {"role": "user", "content": "read it"}
        async with client.messages.stream(model="any", max_tokens=99, messages=[ask]) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            final = await stream.get_final_message()
        assert text == "One two." and final.stop_reason == "end_turn"
        assert final.usage.output_tokens > 0
        answer = await client.messages.create(
            model="any",
            max_tokens=99,
            system="Be short.",
            messages=[ask, {"role": "assistant", "content": text}, ask],
        )
        assert answer.content[0].text == "Three."
        assert b"Be short." in a.provider.last.body


async def test_messages_with_client_tools(tmp_path: Path) -> None:
    from anthropic import AsyncAnthropic

    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [{"name": "weather", "description": "Now.", "input_schema": schema}]
    async with (
        api(tmp_path, [call(("c1", "weather", {"city": "Bern"})), say("Sunny.")]) as a,
        AsyncAnthropic(base_url=a.url, api_key=a.key, max_retries=0) as client,
    ):
        ask = {"role": "user", "content": "How is it?"}
        more = {"extra_body": {"tool_execution": "client"}, "model": "any", "max_tokens": 99}
        first = await client.messages.create(messages=[ask], tools=tools, **more)
        assert first.stop_reason == "tool_use"
        use = first.content[0]
        assert use.input == {"city": "Bern"}
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "25"}
        said = [ask, {"role": "assistant", "content": first.content}]
        second = await client.messages.create(
            messages=[*said, {"role": "user", "content": [result]}], tools=tools, **more
        )
        assert second.content[0].text == "Sunny."
