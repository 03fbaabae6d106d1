"""Sessions and structured output of the library."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec
import pytest

import hermes
from tests.flow.library.conftest import Opening, collect_events, last_prompt, last_results
from tests.kit import Gate, Reply, Tokens, call, say, status
from tests.kit.bodies import messages
from tests.kit.home import KEY

# -- sessions -----------------------------------------------------------------------------------


async def test_a_session_goes_on_and_is_resumed(opening: Opening) -> None:
    async with opening(say("noted"), say("in May")) as (agent, provider), agent.session() as first:
        await first.run("my birthday is in May")
        assert (await first.run("when is it?")).session_id == first.id
        assert len(messages(provider.requests[-1])) == 3
    async with opening(say("May")) as (agent, provider), agent.session(resume=first.id) as again:
        result = await again.run("when?")
        assert again.id == first.id == result.session_id
        assert [m.text for m in messages(provider.requests[0])] == [
            "my birthday is in May",
            "noted",
            "when is it?",
            "in May",
            "when?",
        ]


async def test_each_run_of_an_agent_is_a_session_of_its_own(opening: Opening) -> None:
    async with opening(say("one"), say("two")) as (agent, provider):
        first, second = await agent.run("a"), await agent.run("b")
    assert first.session_id != second.session_id
    assert len(messages(provider.requests[1])) == 1


async def test_sessions_run_side_by_side(opening: Opening) -> None:
    gate = Gate()

    def reply(request: Any) -> Reply:
        text = messages(request)[-1].text
        return say(f"{text} done").hold(gate, n=0) if text == "slow" else say(f"{text} done")

    async with (
        opening(reply, reply) as (agent, _),
        agent.session() as one,
        agent.session() as two,
    ):
        slow = asyncio.create_task(one.run("slow"))
        await gate.reached()
        assert (await two.run("quick")).text == "quick done"
        assert not slow.done()
        gate.open()
        assert (await slow).text == "slow done"


async def test_turns_of_one_session_wait_for_each_other(opening: Opening) -> None:
    def reply(request: Any) -> Reply:
        return say(f"re {messages(request)[-1].text}")

    async with opening(reply, reply, reply) as (agent, provider), agent.session() as session:
        results = await asyncio.gather(*(session.run(word) for word in "abc"))
        assert [r.text for r in results] == ["re a", "re b", "re c"]
        assert len(messages(provider.requests[-1])) == 5


async def test_interrupt(opening: Opening) -> None:
    slow = say("one ", "two ").stall(after="text", n=1)
    async with opening(slow, say("next")) as (agent, provider), agent.session() as session:
        async for event in session.stream("go"):
            if isinstance(event, hermes.TextDelta):
                session.interrupt()
            last = event
        assert isinstance(last, hermes.Result)
        assert last.status == "interrupted" and last.text == "one "
        await session.run("go on")
        assert messages(provider.requests[-1])[1].text.startswith("one ")


async def test_interrupting_what_has_not_begun_ends_it(opening: Opening) -> None:
    async with opening() as (agent, _), agent.session() as session:
        task = asyncio.create_task(session.run("go"))
        await asyncio.sleep(0)
        session.interrupt()
        assert (await asyncio.wait_for(task, 90)).status == "interrupted"


async def test_steer(opening: Opening) -> None:
    async def work() -> str:
        assert session.steer("in French")
        return "worked"

    steps = (call(("a", "work", {})), say("oui"))
    async with opening(*steps, tools=[work]) as (agent, provider), agent.session() as session:
        assert not session.steer("nobody hears this")
        assert (await session.run("go")).text == "oui"
        assert "User guidance: in French" in last_results(provider)[0]


async def test_guidance_that_came_too_late_is_answered_in_the_same_run(opening: Opening) -> None:
    gate = Gate()
    first = say("done").hold(gate, after="text").usage(Tokens(10, 1))
    second = say("fait").usage(Tokens(10, 1))
    async with opening(first, second) as (agent, provider), agent.session() as session:
        task = asyncio.create_task(session.run("go"))
        await gate.reached()
        assert session.steer("in French")
        gate.open()
        result = await task
        assert result.text == "fait" and result.usage.output_tokens == 2
        assert last_prompt(provider) == "in French"


async def test_guidance_that_an_interrupted_turn_had_not_read_comes_before_the_next_prompt(
    opening: Opening,
) -> None:
    slow = say("one ", "two ").stall(after="text", n=1)
    steps = (slow, say("oui"), say("next"))
    async with opening(*steps) as (agent, provider), agent.session() as session:
        async for event in session.stream("go"):
            if isinstance(event, hermes.TextDelta):
                assert session.steer("in French")
                session.interrupt()
                assert not session.steer("too late")
            last = event
        assert isinstance(last, hermes.Result) and last.status == "interrupted"
        assert not session.steer("too late")
        assert (await session.run("go on")).text == "oui"
        assert last_prompt(provider) == "in French\n\ngo on"
        await session.run("and again")
        assert last_prompt(provider) == "and again"
        assert b"too late" not in provider.requests[-1].body


async def test_guidance_is_read_also_after_a_loop_that_was_left(opening: Opening) -> None:
    slow = say("one ", "two ").stall(after="text", n=1)
    async with opening(slow, say("oui")) as (agent, provider), agent.session() as session:
        async for event in session.stream("go"):
            if isinstance(event, hermes.TextDelta):
                assert session.steer("in French")
                break
        await session.run("go on", output=str)
        assert last_prompt(provider) == "in French\n\ngo on"


@pytest.mark.parametrize("reply", [say("done"), status(401, "no")])
async def test_a_turn_that_has_ended_takes_no_guidance(opening: Opening, reply: Reply) -> None:
    async with opening(reply, say("next")) as (agent, provider), agent.session() as session:
        async for event in session.stream("go"):
            if isinstance(event, hermes.Result):
                assert not session.steer("too late")
        await session.run("go on")
        assert b"too late" not in provider.requests[-1].body


async def test_closing_the_agent_ends_what_runs_in_it(opening: Opening) -> None:
    gate = Gate()
    async with opening(say("never").hold(gate, n=0)) as (agent, _):
        task = asyncio.create_task(agent.run("go"))
        await gate.reached()
    assert (await asyncio.wait_for(task, 90)).status == "interrupted"


async def test_a_turn_without_async(opening: Opening, tmp_path: Path) -> None:
    async with opening(say("one"), say("[2]")):
        agent = hermes.Agent(home=tmp_path / "home", cwd=tmp_path / "work")
        first = await asyncio.to_thread(hermes.run_sync, "a", agent=agent)
        second = await asyncio.to_thread(hermes.run_sync, "b", agent=agent, output=list[int])
    assert first.text == "one" and second.output == [2]


async def test_misuse_is_said(opening: Opening) -> None:
    with pytest.raises(RuntimeError, match="Open the agent first"):
        await hermes.Agent().run("hi")
    with pytest.raises(RuntimeError, match=r"Use: await agent\.run"):
        hermes.run_sync("hi")
    async with opening() as (agent, _):
        with pytest.raises(RuntimeError, match="open already"):
            await agent.__aenter__()
        with pytest.raises(hermes.ConfigError, match="There is no session nope"):
            async with agent.session(resume="nope"):
                pass
        with pytest.raises(TypeError, match="resume must be a str, not 5"):
            async with agent.session(resume=5):  # type: ignore[arg-type]
                pass
        with pytest.raises(TypeError, match="The prompt must be a str, not 5"):
            await agent.run(5)  # type: ignore[call-overload]
        async with agent.session() as session:
            with pytest.raises(TypeError, match="The text must be a str"):
                session.steer(b"x")  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="closed"):
            await session.run("hi")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"provider": "anthropic"}, "ANTHROPIC_API_KEY"),
        ({"provider": "nobody"}, "nobody"),
        ({"toolsets": ["terminall"]}, "terminal"),
        ({"cwd": "/does/not/exist"}, "does not exist"),
    ],
)
async def test_what_cannot_be_used_is_a_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], sentence: str
) -> None:
    for name in ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(hermes.ConfigError, match=sentence) as raised:
        async with hermes.Agent(home=tmp_path / "home", **options):
            pass
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": 5}, "model must be text, not 5"),
        ({"instructions": 5}, "instructions must be text, not 5"),
        ({"effort": "huge"}, "effort must be one of none, minimal, .*, not 'huge'"),
        ({"max_turns": 0}, "max_turns must be a whole number of at least 1, not 0"),
        ({"max_turns": "3"}, "max_turns must be a whole number of at least 1, not '3'"),
        ({"budget_usd": -1}, "budget_usd must be a number of at least 0, not -1"),
        ({"approvals": "zz"}, "approvals must be one of ask, smart, never-ask, not 'zz'"),
        ({"approve": 5}, "approve must be a function, not 5"),
        ({"ask": "x"}, "ask must be a function, not 'x'"),
        ({"toolsets": "core"}, "toolsets must be a list of texts, not 'core'"),
        ({"tools": print}, "tools must be a list of functions, not <built-in function print>"),
        ({"home": 5}, "home must be a path, not 5"),
        ({"cwd": 5}, "cwd must be a path, not 5"),
        ({"yolo": "no"}, "yolo must be true or false, not 'no'"),
    ],
)
def test_an_option_with_a_wrong_value_is_a_config_error(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(hermes.ConfigError, match=sentence):
        hermes.Agent(**options)


# -- structured output --------------------------------------------------------------------------


class Person(msgspec.Struct):
    name: str
    age: int


@dataclass
class Place:
    """Somewhere."""

    city: str
    tags: list[str]


class Pair(TypedDict):
    left: int
    right: int


@pytest.mark.parametrize(
    ("kind", "answer", "value"),
    [
        (Person, '{"name": "Ada", "age": 36}', Person("Ada", 36)),
        (Place, '```json\n{"city": "Rome", "tags": ["old"]}\n```', Place("Rome", ["old"])),
        (Pair, 'Here it is: {"left": 1, "right": 2}. Good?', {"left": 1, "right": 2}),
        (list[str], '["a", "b"]', ["a", "b"]),
        (int, " 42\n", 42),
        (Literal["yes", "no"], '"no"', "no"),
        (int | None, "null", None),
        (str, "just text", "just text"),
    ],
)
async def test_an_answer_of_a_type(opening: Opening, kind: Any, answer: str, value: Any) -> None:
    async with opening(say(answer)) as (agent, provider):
        result = await agent.run("Which one?", output=kind)
    assert result.output == value and type(result.output) is type(value)
    assert result.text == answer
    prompt = last_prompt(provider)
    assert prompt.startswith("Which one?")
    assert ("JSON Schema" in prompt) is (kind is not str)


async def test_an_answer_that_does_not_fit_is_asked_for_again(opening: Opening) -> None:
    replies = ["Ada, 36", '{"name": "Ada"}', '{"name": "Ada", "age": 36}']
    steps = [say(text).usage(Tokens(10, 5)) for text in replies]
    async with opening(*steps) as (agent, provider):
        events = await collect_events(agent.stream("Who?", output=Person))
    result = events[-1]
    assert isinstance(result, hermes.Result)
    assert result.output == Person("Ada", 36)
    assert (result.model_calls, result.usage.output_tokens) == (3, 15)
    again = [m.text for m in messages(provider.requests[-1]) if m.role == "user"][1:]
    assert "it is not JSON" in again[0] and "missing required field `age`" in again[1]
    notices = [e.text for e in events if isinstance(e, hermes.Notice)]
    assert len(notices) == 2 and all("Asking again" in text for text in notices)


async def test_an_answer_that_never_fits_is_an_error(opening: Opening) -> None:
    async with opening(then=say('{"name": 1}')) as (agent, provider):
        with pytest.raises(hermes.OutputError, match="Expected `str`, got `int`") as raised:
            await agent.run("Who?", output=Person)
    assert raised.value.text == '{"name": 1}'
    assert len(provider.requests) == 3


async def test_a_failed_turn_with_a_type_is_a_result_too(opening: Opening) -> None:
    async with opening(status(401, "no")) as (agent, _):
        result = await agent.run("Who?", output=Person)
    assert result.status == "failed"
    with pytest.raises(hermes.TurnError):
        _ = result.output


async def test_a_type_that_json_cannot_express_is_a_type_error(opening: Opening) -> None:
    async with opening() as (agent, _):
        with pytest.raises(TypeError):
            await agent.run("Who?", output=threading.Thread)
