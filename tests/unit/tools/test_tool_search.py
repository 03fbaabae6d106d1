"""Deferred tools: found by words, called through the same gates, and never in the prefix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from hermes.app.agents import Options
from hermes.config.schema import ToolSelection
from hermes.config.schema import ToolsSection as Settings
from hermes.core.errors import ConfigError
from hermes.core.events import Approval, ToolDone
from hermes.core.tool import Risk, Tool, ToolContext, tool
from hermes.tools import registry
from hermes.tools.registry import select_tools
from hermes.tools.tool_search import MAX_RESULTS, rank_tools, tool_search
from tests.kit import WIRES, Provider, Received, call, say
from tests.kit.bodies import messages, prefix, tools
from tests.kit.rig import rig
from tests.kit.tools import tool_context

ran: list[tuple[str, str, str]] = []
"""What ran: text, the call's name and arguments as the tool saw them."""


class Send(Struct):
    text: str
    times: int = 1


def sender(name: str = "carrier_pigeon", risk: Risk = "network") -> Tool[Any]:
    def key(p: Send, cwd: Path) -> str | None:
        return str(cwd.parent / "post") if risk == "write" else None

    @tool("Send a letter by pigeon.", name=name, toolset="post", risk=risk, key=key)
    async def send(p: Send, ctx: ToolContext) -> str:
        ran.append((p.text * p.times, ctx.call.name, ctx.call.args))
        return f"flown: {p.text}"

    return send


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def results(request: Received) -> list[str]:
    return [text for m in messages(request) for _, text in m.results]


def through(id: str, name: str, arguments: Any) -> Any:
    return call((id, "tool_search", {"name": name, "arguments": arguments}))


# -- in a conversation -----------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_search_then_call_with_a_stable_prefix(tmp_path: Path, wire: str) -> None:
    steps = [
        call(("c1", "tool_search", {"query": "send a letter"})),
        through("c2", "carrier_pigeon", {"text": "hello", "times": 2}),
        say("Sent."),
    ]
    async with rig(tmp_path, steps, wire=wire, tools=[sender()]) as r:
        result = await r.turn("write to my aunt")
        assert result.status == "completed" and result.text == "Sent."
        for request in r.requests:
            assert "tool_search" in tools(request)
            assert "carrier_pigeon" not in tools(request) and "web_search" not in tools(request)
        for before, after in zip(r.requests, r.requests[1:], strict=False):
            assert after.body.startswith(prefix(before))
        found, sent = results(r.requests[2])
        assert "carrier_pigeon: Send a letter by pigeon." in found
        assert '"times"' in found, "with its schema"
        assert "flown: hello" in sent
        assert [text for text, _, _ in ran] == ["hellohello"]
        assert [c.name for c in r.started] == ["tool_search", "tool_search"]
        assert json.loads(r.started[1].args)["name"] == "carrier_pigeon"


async def test_a_deferred_tool_called_by_its_own_name(tmp_path: Path) -> None:
    steps = [
        call(("c1", "carrier_pigeon", {"text": "a"})),
        call(("c2", "functions.carrier-pigeon", {"text": "b"})),
        say("ok"),
    ]
    async with rig(tmp_path, steps, tools=[sender()]) as r:
        assert (await r.turn()).status == "completed"
        assert [text for text, _, _ in ran] == ["a", "b"]
        assert "carrier_pigeon" not in tools(r.requests[-1])


@pytest.mark.parametrize("approved", [True, False])
async def test_the_gates_see_the_inner_call(tmp_path: Path, approved: bool) -> None:
    steps = [through("c1", "carrier_pigeon", {"text": "hi"}), say("ok")]
    async with rig(tmp_path, steps, tools=[sender(risk="write")], options=Options()) as r:
        r.session.interactions.user_present = True
        turn = r.begin()
        asked = await r.until(lambda e: isinstance(e, Approval))
        assert isinstance(asked, Approval)
        assert asked.call.name == "carrier_pigeon"
        assert json.loads(asked.call.args) == {"text": "hi"}
        r.session.interactions.answer_approval(asked.id, approved)
        await turn
        assert bool(ran) is approved
        if approved:
            assert ran[0][1] == "carrier_pigeon" and json.loads(ran[0][2]) == {"text": "hi"}
        (done,) = [e for e in r.events if isinstance(e, ToolDone)]
        assert done.result.name == "tool_search" and done.result.error is not approved


async def test_where_nobody_can_approve_it_is_not_run(tmp_path: Path) -> None:
    steps = [
        through("c1", "carrier_pigeon", {"text": "hi"}),
        through("c2", "write_file", {"path": str(tmp_path / "outside"), "content": "x"}),
        say("ok"),
    ]
    async with rig(tmp_path, steps, tools=[sender(risk="write")], options=Options()) as r:
        assert (await r.turn()).status == "completed"
        assert not ran and not (tmp_path / "outside").exists()
        sent, written = results(r.requests[-1])
        assert "Not run" in sent and "Not done" in written


async def test_what_was_read_counts_for_what_is_sent(tmp_path: Path) -> None:
    """Neither way of calling gets around the two bits a session keeps."""
    steps = [
        through("c1", "carrier_pigeon", {"text": "before"}),
        through("c2", "read_file", {"path": "private.txt"}),
        through("c3", "carrier_pigeon", {"text": "after"}),
        call(("c4", "carrier_pigeon", {"text": "after, directly"})),
        say("ok"),
    ]
    async with rig(tmp_path, steps, tools=[sender()], options=Options()) as r:
        r.home.file("private.txt", "mine")
        assert (await r.turn()).status == "completed"
        assert [text for text, _, _ in ran] == ["before"]


async def test_the_hard_list_holds_for_carried_commands(tmp_path: Path) -> None:
    steps = [through("c1", "terminal", {"command": "mkfs.ext4 /dev/no-such-disk"}), say("ok")]
    async with rig(tmp_path, steps, options=Options(yolo=True)) as r:
        assert (await r.turn()).status == "completed"
        assert "Not run" in results(r.requests[-1])[0]


async def test_calls_that_write_to_one_thing_take_turns(tmp_path: Path) -> None:
    """The inner tool's keys order the calls, whichever way they come."""
    inside: list[str] = []
    import asyncio

    @tool("Slow.", name="slow", toolset="post", risk="write", key=lambda p, cwd: "thing")
    async def slow(p: Send, ctx: ToolContext) -> str:
        inside.append(p.text)
        await asyncio.sleep(0)
        assert inside.pop() == p.text and not inside
        return "ok"

    both = call(
        ("c1", "tool_search", {"name": "slow", "arguments": {"text": "a"}}),
        ("c2", "slow", {"text": "b"}),
    )
    async with rig(tmp_path, [both, say("ok")], tools=[slow]) as r:
        assert (await r.turn()).status == "completed"
        assert all(not e.result.error for e in r.events if isinstance(e, ToolDone))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"name": "carrier_pigeon", "arguments": {"times": 2}}, "`text`"),
        ({"name": "carrier_pigeon", "arguments": "[1]"}, "must be an object"),
        ({"name": "carrier_pigeon", "arguments": "{nonsense"}, "must be an object"),
        ({"name": "no_such", "arguments": {}}, "no_such"),
        ({"name": "tool_search", "arguments": {"query": "x"}}, "cannot call"),
        ({"query": "zzz"}, "No tool matches"),
        ({"name": "session_search", "query": "no such words"}, "Nothing was found"),
        ({}, "All tools"),
    ],
)
async def test_what_goes_wrong_is_told(
    tmp_path: Path, arguments: dict[str, Any], told: str
) -> None:
    steps = [call(("c1", "tool_search", arguments)), say("ok")]
    async with rig(tmp_path, steps, tools=[sender()]) as r:
        assert (await r.turn()).status == "completed"
        assert told in results(r.requests[1])[0] and not ran


async def test_arguments_written_as_text_are_understood(tmp_path: Path) -> None:
    steps = [through("c1", "Carrier-Pigeon", '{"text": "x"}'), say("ok")]
    async with rig(tmp_path, steps, tools=[sender()]) as r:
        assert (await r.turn()).status == "completed"
        assert [text for text, _, _ in ran] == ["x"]


async def test_without_tool_search_everything_is_declared(tmp_path: Path) -> None:
    async with (
        Provider([say("hi")]) as p,
        rig(tmp_path, p, options=Options(toolsets=("web",)), check=False) as r,
    ):
        await r.turn()
        assert set(tools(p.requests[0])) == set(registry.list_toolsets()["web"])


# -- ranking -------------------------------------------------------------------------------


def named(name: str, description: str = "x", toolset: str = "s") -> Tool[Any]:
    @tool(description, name=name, toolset=toolset)
    async def nothing(p: Send, ctx: ToolContext) -> str:
        return ""

    return nothing


def names(found: list[Tool[Any]]) -> list[str]:
    return [t.name for t in found]


def test_words_of_the_name_count_most_and_ties_go_by_name() -> None:
    given = [
        named("b_page", "Read a page."),
        named("a_page", "Read a page."),
        named("reader", "Pages of a book."),
        named("unrelated", "Bake bread."),
    ]
    assert names(rank_tools("page", given)) == ["a_page", "b_page", "reader"]
    assert names(rank_tools("page", reversed(given))) == ["a_page", "b_page", "reader"]
    assert rank_tools("", given) == rank_tools("quux", given) == []


def test_filler_words_find_nothing_by_themselves() -> None:
    given = [named("the_tool", "the tool to use"), named("image_make", "Draw pictures.")]
    assert names(rank_tools("I need a tool to draw images", given)) == ["image_make"]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("search the web", "web_search"),
        ("internet search", "web_search"),
        ("websearch", "web_search"),
        ("fetch url", "web_extract"),
        ("take a screenshot", "browser_vision"),
        ("describe a photo", "vision_analyze"),
        ("fill in a form", "browser_type"),
        ("calculate", "execute_code"),
        ("what did we talk about last week", "session_search"),
        ("read a web page", "web_extract"),
        ("web_extract", "web_extract"),
        ("pdf to markdown", "web_extract"),
    ],
)
def test_real_tools_are_found(query: str, first: str) -> None:
    words = ["web", "browser", "code", "vision", "sessions"]
    assert names(rank_tools(query, select_tools(words).values()))[0] == first


async def test_at_most_eight(ctx_tools: ToolContext) -> None:
    result = await tool_search.run(tool_search.parse_params({"query": "pigeon"}), ctx_tools)
    assert not isinstance(result, str) and len(result.data) == MAX_RESULTS


@pytest.fixture
def ctx_tools(tmp_path: Path) -> ToolContext:
    many = {f"pigeon_{n}": named(f"pigeon_{n}") for n in range(20)}
    return tool_context(tmp_path, tmp_path, tools=many)


# -- what is on where --------------------------------------------------------------------------


def test_everything_is_on_by_default_and_core_alone_is_declared() -> None:
    chosen = select_tools(None)
    assert {"web_search", "terminal", "tool_search"} <= set(chosen)
    assert {s.name for s in chosen.list_specs()} == set(registry.list_toolsets()["core"])


@pytest.mark.parametrize(
    ("settings", "there", "gone"),
    [
        (Settings(disabled=("web",)), {"terminal"}, {"web_search", "web_extract"}),
        (Settings(disabled=("terminal",)), {"web_search"}, {"terminal"}),
        (Settings(disabled=("web",), enabled=("web_search",)), {"web_search"}, {"web_extract"}),
        (Settings(disabled=("web",), enabled=("web",)), set(), {"web_search"}),
        (
            Settings(platforms={"irc": ToolSelection(disabled=("web",))}),
            {"terminal"},
            {"web_search"},
        ),
        (
            Settings(disabled=("web",), platforms={"irc": ToolSelection(enabled=("web",))}),
            {"web_search"},
            set(),
        ),
        (Settings(platforms={"cli": ToolSelection(disabled=("web",))}), {"web_search"}, set()),
    ],
)
def test_names_before_toolsets_platforms_before_all(
    settings: Settings, there: set[str], gone: set[str]
) -> None:
    chosen = set(select_tools(None, platform="irc", settings=settings))
    assert there <= chosen and not gone & chosen


def test_a_webhook_only_reads_until_it_is_told_otherwise() -> None:
    chosen = select_tools(None, platform="webhook")
    assert "read_file" in chosen and {t.risk for t in chosen.values()} == {"read"}
    general = Settings(enabled=("terminal", "web"))
    assert set(select_tools(None, platform="webhook", settings=general)) == set(chosen)
    told = Settings(platforms={"webhook": ToolSelection(enabled=("web_search",))})
    more = set(select_tools(None, platform="webhook", settings=told))
    assert more == {*chosen, "web_search"}


def test_what_is_off_cannot_be_asked_for() -> None:
    settings = Settings(disabled=("terminal", "web"))
    with pytest.raises(ConfigError, match="web cannot be used: turned off"):
        select_tools(["core", "web"], settings=settings)
    assert "terminal" not in select_tools(["core"], settings=settings)


def test_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REQUIRED_EXTRAS", {"web_extract": ("no_such_module", "web")})
    assert "web_extract" not in select_tools(None) and "web_search" in select_tools(["web"])
    with pytest.raises(ConfigError, match="extra `web` is not installed"):
        select_tools(["web_extract"])
