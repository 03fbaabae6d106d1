"""`import hermes`: whole turns through the public API, against a scripted provider."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hermes
from tests.flow.library.conftest import Opening, collect_events, last_results
from tests.kit import Tokens, call, say, status, think
from tests.kit.bodies import messages, system, tools
from tests.kit.home import KEY, MODEL

# -- one turn -----------------------------------------------------------------------------------


async def test_a_turn_has_a_result(opening: Opening) -> None:
    reply = (think("hm") + say("hello ", "there")).usage(Tokens(100, 10, cached=60))
    async with opening(reply, instructions="Speak plainly.") as (agent, provider):
        result = await agent.run("hi")
    assert result.status == "completed" and result.error is None
    assert result.text == result.output == "hello there"
    assert result.reasoning == "hm"
    assert result.usage.input_tokens == 100 and result.usage.cache_read_tokens == 60
    assert (result.model, result.provider, result.model_calls) == (MODEL, "custom", 1)
    assert result.cost_usd is None and result.tool_calls == ()
    assert result.raise_for_status() is result
    assert "Speak plainly." in system(provider.requests[0])


async def test_a_failed_turn_is_a_result_and_no_secret_is_in_it(opening: Opening) -> None:
    async with opening(status(401, f"bad key {KEY}")) as (agent, _):
        result = await agent.run("hi")
    assert result.status == "failed" and result.error is not None
    assert result.error.code == "auth"
    with pytest.raises(hermes.TurnError) as raised:
        result.raise_for_status()
    assert raised.value.code == "auth" and raised.value.result is result
    assert str(raised.value) == result.error.message
    with pytest.raises(hermes.TurnError):
        _ = result.output
    assert KEY not in repr((result, raised.value))


async def test_options_reach_the_turn(opening: Opening, tmp_path: Path) -> None:
    reply = call(("c1", "read_file", {"path": "note.txt"}))
    options = {"model": "custom:other", "max_turns": 1, "toolsets": ["read_file"], "effort": "low"}
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "note.txt").write_text("found")
    async with opening(reply, say("enough"), **options) as (agent, provider):
        result = await agent.run("hi")
    assert result.status == "partial" and result.error and result.error.code == "max_turns"
    assert result.model == "other" == provider.requests[0].model
    assert tools(provider.requests[0]) == ["read_file"]
    assert provider.requests[0].json["reasoning_effort"] == "low"
    [called] = result.tool_calls
    assert called.name == "read_file" and called.arguments == {"path": "note.txt"}
    assert "found" in (called.result or "") and not called.error


async def test_a_budget_holds(opening: Opening) -> None:
    price = {"models": {MODEL: {"price": {"input": 10, "output": 10}}}}
    config = {"providers": {"custom": price}, "budget": {"session_usd": 100}}
    async with opening(config=config, budget_usd=0.000001) as (agent, _):
        result = await agent.run("hi")
    assert result.error and result.error.code == "budget"


# -- events -------------------------------------------------------------------------------------


async def test_events_come_in_order_and_the_result_last(opening: Opening) -> None:
    def look(path: str) -> str:
        return f"nothing in {path}"

    steps = (think("hm") + call(("c1", "look", {"path": "x"})), say("it is empty"))
    async with opening(*steps, tools=[look]) as (agent, _):
        events = await collect_events(agent.stream("look"))
    kinds = list(dict.fromkeys(type(event).__name__ for event in events))
    assert kinds == ["ReasoningDelta", "ToolStarted", "ToolCompleted", "TextDelta", "Result"]
    started = next(e for e in events if isinstance(e, hermes.ToolStarted))
    assert (started.id, started.name, started.arguments) == ("c1", "look", {"path": "x"})
    ended = next(e for e in events if isinstance(e, hermes.ToolCompleted))
    assert (ended.id, ended.result, ended.error) == ("c1", "nothing in x", False)
    assert ended.duration_ms >= 0
    text = "".join(e.text for e in events if isinstance(e, hermes.TextDelta))
    result = events[-1]
    assert isinstance(result, hermes.Result) and result.text == text == "it is empty"


async def test_a_repeated_call_is_told(opening: Opening) -> None:
    refusal = status(400, "Unknown parameter: 'stream_options'.")
    async with opening(refusal, say("ok")) as (agent, _):
        events = await collect_events(agent.stream("hi"))
    [told] = [e for e in events if isinstance(e, hermes.Recovering)]
    assert (told.kind, told.action, told.wait_seconds) == ("parameter", "drop_parameter", 0)


async def test_leaving_the_loop_stops_the_turn(opening: Opening) -> None:
    slow = say("one ", "two ", "three").stall(after="text", n=1)
    async with opening(slow, say("second")) as (agent, provider), agent.session() as session:
        async for event in session.stream("first"):
            if isinstance(event, hermes.TextDelta):
                break
        result = await session.run("and now")
        assert result.text == "second"
        assert provider.requests[0].gone.is_set()
        assert [m.text for m in messages(provider.requests[1]) if m.role == "user"] == [
            "first",
            "and now",
        ]


async def test_a_stream_that_is_only_held_does_not_block_the_next_turn(opening: Opening) -> None:
    async with opening(say("one"), say("two")) as (agent, _), agent.session() as session:
        held = session.stream("first")
        await anext(held)
        result = await session.run("second")
        assert result.text == "two"
        assert [e async for e in held][-1].text == "one"  # type: ignore[union-attr]


# -- tools --------------------------------------------------------------------------------------


@dataclass
class Weather:
    city: str
    degrees: float


async def test_functions_are_tools(opening: Opening) -> None:
    ran_in: list[threading.Thread] = []

    @hermes.tool(name="weather", timeout=5)
    def look_up_weather(city: str, days: int = 1) -> Weather:
        """The weather of a city.

        Args:
            city: Its name,
                in English.
            days: How many days ahead.

        Returns:
            Not for the model.
        """
        ran_in.append(threading.current_thread())
        return Weather(city, 20.5)

    async def shout(words: list[str]) -> str:
        ran_in.append(threading.current_thread())
        return " ".join(words).upper()

    steps = (call(("a", "weather", {"city": "Rome"}), ("b", "shout", {"words": ["hi"]})), say("ok"))
    async with opening(*steps, tools=[look_up_weather, shout], toolsets=[]) as (agent, provider):
        assert (await agent.run("go")).status == "completed"
    assert last_results(provider) == ['{"city":"Rome","degrees":20.5}', "HI"]
    here = threading.current_thread()
    assert ran_in[0] is not here and ran_in[1] is here
    assert look_up_weather("Oslo").city == "Oslo"
    declared = [t["function"] for t in provider.requests[0].json["tools"]]
    assert declared[0] == {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Its name, in English."},
                "days": {
                    "type": "integer",
                    "description": "How many days ahead.",
                    "default": 1,
                },
            },
            "required": ["city"],
        },
    }
    assert "No tools" not in system(provider.requests[0])


async def test_what_a_function_raises_is_shown_to_the_model(opening: Opening) -> None:
    def fail(how: str) -> None:
        """Fail.

        :param how: in which way
        """
        if how == "meant":
            raise hermes.ToolError("There is no such customer.")
        raise ValueError(f"lost {KEY}")

    calls = call(("a", "fail", {"how": "meant"}), ("b", "fail", {"how": "x"}), ("c", "fail", {}))
    async with opening(calls, say("ok"), tools=[fail]) as (agent, provider):
        result = await agent.run("go")
    meant, broken, wrong = last_results(provider)
    assert meant == "There is no such customer."
    assert "ValueError: lost" in broken and KEY not in broken
    assert "how" in wrong
    assert all(each.error for each in result.tool_calls)


async def test_any_parameter_that_has_a_name_can_be_passed(opening: Opening) -> None:
    class Counter:
        def count(self, function: str, *, among: list[str] = ["a", "b"], how: Any = None) -> int:  # noqa: B006
            return among.count(function)

    steps = (call(("a", "count", {"function": "b"})), say("ok"))
    async with opening(*steps, tools=[Counter().count]) as (agent, provider):
        await agent.run("go")
    assert last_results(provider) == ["1"]


async def test_a_function_may_be_named_like_a_built_in_tool_that_is_left_out(
    opening: Opening,
) -> None:
    def read_file(path: str) -> str:
        return "from elsewhere"

    with pytest.raises(hermes.ConfigError, match="named like the built-in tool read_file"):
        async with opening(tools=[read_file]):
            pass
    steps = (call(("a", "read_file", {"path": "x"})), say("ok"))
    async with opening(*steps, tools=[read_file], toolsets=["terminal"]) as (agent, provider):
        await agent.run("go")
    assert last_results(provider) == ["from elsewhere"]
    assert tools(provider.requests[0]) == ["terminal", "read_file"]


async def test_a_function_may_run_out_of_items(opening: Opening) -> None:
    def take_next() -> int:
        return next(iter(()))  # type: ignore[call-overload, no-any-return]

    steps = (call(("a", "take_next", {})), say("ok"))
    async with opening(*steps, tools=[take_next]) as (agent, provider):
        assert (await asyncio.wait_for(agent.run("go"), 90)).text == "ok"
    assert "StopIteration" in last_results(provider)[0]


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_function_that_exits_has_failed(opening: Opening, blocking: bool) -> None:
    def leave() -> None:
        sys.exit(3)

    async def leave_soon() -> None:
        leave()

    function = leave if blocking else hermes.tool(name="leave")(leave_soon)
    steps = (call(("a", "leave", {})), say("ok"))
    async with opening(*steps, tools=[function]) as (agent, provider):
        result = await agent.run("go")
    assert result.text == "ok" and result.tool_calls[0].error
    assert last_results(provider) == ["leave failed: it called sys.exit(3)."]


async def test_a_cancelled_task_cancels_the_function(opening: Opening) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    steps = (say("Wait. ") + call(("a", "wait", {})), say("again"))
    async with opening(*steps, tools=[wait]) as (agent, provider), agent.session() as session:
        task = asyncio.create_task(session.run("go"))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()
        assert (await session.run("what happened?")).text == "again"
        kept = messages(provider.requests[-1])
        assert [m.text for m in kept if m.role == "assistant"] == ["Wait. "]
        assert "interrupted" in last_results(provider)[0]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x: x, "name"),
        (print, "args"),
        (hermes.tool(name="t")(lambda x: x), ""),
    ],
)
def test_what_cannot_be_a_tool_is_a_type_error(function: Any, problem: str) -> None:
    if not problem:
        hermes.Agent(tools=[function])
        return
    with pytest.raises(TypeError, match=problem):
        hermes.Agent(tools=[function])


def test_a_parameter_without_a_schema_is_a_type_error() -> None:
    def plot(canvas: threading.Thread) -> None: ...

    with pytest.raises(TypeError, match=r"plot cannot be a tool: .*Thread"):
        hermes.Agent(tools=[plot])


def test_two_tools_with_one_name_are_a_type_error() -> None:
    def look() -> None: ...

    with pytest.raises(TypeError, match="Two tools are named look"):
        hermes.Agent(tools=[look, look])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"risk": "zz"}, "risk must be one of read, write, network, not 'zz'"),
        ({"risk": "exec"}, "risk must be one of read, write, network"),
        ({"name": 5}, "name must be text, not 5"),
        ({"timeout": 0}, "timeout must be a number above 0, not 0"),
        ({"needs_approval": "no"}, "needs_approval must be true or false"),
    ],
)
def test_a_wrong_option_of_a_tool_is_a_type_error(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        hermes.tool(**options)


# -- approvals and questions --------------------------------------------------------------------

Sent = list[str]


def sending(sent: Sent, **options: Any) -> Callable[[str], None]:
    @hermes.tool(**options)
    def send_mail(to: str) -> None:
        sent.append(to)

    return send_mail


MAIL = call(("a", "send_mail", {"to": "x"}))


@pytest.mark.parametrize(
    ("answer", "runs"),
    [(True, True), ("once", True), ("session", True), (False, False), ("deny", False)],
)
async def test_a_program_approves(opening: Opening, answer: Any, runs: bool) -> None:
    sent: Sent = []
    asked: list[hermes.ApprovalRequest] = []

    def approve(request: hermes.ApprovalRequest) -> hermes.Decision:
        asked.append(request)
        return answer  # type: ignore[no-any-return]

    mail = sending(sent, needs_approval=True)
    async with opening(MAIL, say("ok"), tools=[mail], approve=approve) as (agent, provider):
        events = await collect_events(agent.stream("go"))
    assert bool(sent) is runs
    [request] = asked
    assert request.tool == "send_mail" and request.arguments == {"to": "x"}
    assert request.choices == ("once", "deny") and "needs approval" in request.reason
    assert [e for e in events if isinstance(e, hermes.ApprovalRequest)] == asked
    assert last_results(provider)[0].startswith("Not run:") is not runs


async def test_without_somebody_to_approve_the_answer_is_no(opening: Opening) -> None:
    sent: Sent = []
    mail = sending(sent, needs_approval=True)
    async with opening(MAIL, say("ok"), tools=[mail]) as (agent, provider):
        await agent.run("go")
    assert not sent and "nobody answered" in last_results(provider)[0]


async def test_yolo_asks_nobody(opening: Opening) -> None:
    sent: Sent = []
    mail = sending(sent, needs_approval=True)
    async with opening(MAIL, say("ok"), tools=[mail], yolo=True) as (agent, _):
        await agent.run("go")
    assert sent == ["x"]


async def test_allowed_for_the_session(opening: Opening) -> None:
    sent: Sent = []
    asked: list[tuple[str, ...]] = []

    async def approve(request: hermes.ApprovalRequest) -> hermes.Decision:
        asked.append(request.choices)
        return "session"

    again = call(("b", "send_mail", {"to": "y"}))
    mail = sending(sent, risk="write")
    async with opening(MAIL, again, say("ok"), tools=[mail], approve=approve) as (agent, _):
        await agent.run("go")
    assert sent == ["x", "y"] and asked == [("once", "session", "deny")]


async def test_a_function_that_changes_something_is_not_said_to_write_files(
    opening: Opening,
) -> None:
    asked: list[str] = []

    def approve(request: hermes.ApprovalRequest) -> hermes.Decision:
        asked.append(request.reason)
        return False

    mail = sending([], risk="write")
    async with opening(MAIL, say("ok"), tools=[mail], approve=approve) as (agent, _):
        await agent.run("go")
    assert asked == ["send_mail makes changes"]


async def test_a_command_is_approved_by_its_text(opening: Opening) -> None:
    asked: list[str] = []

    def approve(request: hermes.ApprovalRequest) -> hermes.Decision:
        asked.append(request.command)
        return False

    steps = (call(("a", "terminal", {"command": "git stash clear"})), say("ok"))
    async with opening(*steps, approve=approve) as (agent, provider):
        await agent.run("go")
    assert asked == ["git stash clear"]
    assert "Not run:" in last_results(provider)[0]


async def test_what_approve_raises_ends_the_turn_and_is_raised(opening: Opening) -> None:
    def approve(request: hermes.ApprovalRequest) -> hermes.Decision:
        raise LookupError("the form is gone")

    sent: Sent = []
    options = {"tools": [sending(sent, needs_approval=True)], "approve": approve}
    async with opening(MAIL, say("next"), **options) as (agent, _), agent.session() as session:
        with pytest.raises(LookupError, match="the form is gone"):
            await session.run("go")
        assert not sent
        assert (await session.run("go on")).text == "next"


@pytest.mark.parametrize("answer", ["yes", "always", 1, None, ["once"]])
async def test_an_answer_that_is_no_decision_is_a_type_error(opening: Opening, answer: Any) -> None:
    sent: Sent = []
    mail = sending(sent, needs_approval=True)
    async with opening(MAIL, tools=[mail], approve=lambda request: answer) as (agent, _):
        with pytest.raises(TypeError, match='must return True, False, "once", "session" or "deny"'):
            await agent.run("go")
    assert not sent


async def test_approve_may_end_the_program(opening: Opening) -> None:
    def approve(request: hermes.ApprovalRequest) -> hermes.Decision:
        sys.exit(4)

    mail = sending([], needs_approval=True)
    async with opening(MAIL, tools=[mail], approve=approve) as (agent, _):
        with pytest.raises(SystemExit):
            await agent.run("go")


@pytest.mark.parametrize("answer", ["blue", None])
async def test_a_program_answers_questions(opening: Opening, answer: str | None) -> None:
    async def ask(question: hermes.Question) -> str | None:
        assert (question.text, question.choices) == ("Which?", ("red", "blue"))
        return answer

    arguments = {"question": "Which?", "choices": ["red", "blue"]}
    steps = (call(("a", "clarify", arguments)), say("ok"))
    async with opening(*steps, ask=ask) as (agent, provider):
        events = await collect_events(agent.stream("go"))
    assert any(isinstance(e, hermes.Question) for e in events)
    expected = "The user answers: blue" if answer else "Nobody can answer now."
    assert last_results(provider)[0].startswith(expected)
