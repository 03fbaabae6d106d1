"""26-29: a conversation stays inside the window, keeps its task, and loses nothing in the store."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from hermes.app.agents import Options
from hermes.core.message import Message, ToolReturn, user_message
from hermes.core.taint import Taint
from hermes.core.tool import Tool, ToolContext, tool
from hermes.tools.todo import restore_todos
from tests.kit import WIRES, Gate, Provider, Received, Reply, Tokens, call, say, status
from tests.kit.bodies import check_legal, max_tokens, messages, system
from tests.kit.rig import Rig, rig

TASK = "Read every page of the archive and report which pages mention the lighthouse keeper."
PAGE = 3600
Step = Callable[[Received], Reply]


class Page(Struct):
    n: int
    size: int = PAGE


class Note(Struct):
    path: str
    text: str = ""


def page(n: int, size: int = PAGE) -> str:
    return f"page {n}: " + f"the sea was grey on day {n}. " * (size // 27)


@tool("Shows a page.")
async def look(p: Page, ctx: ToolContext) -> str:
    return page(p.n, p.size)


@tool("Writes a note.", risk="write", brings=())
async def note(p: Note, ctx: ToolContext) -> str:
    return "noted"


def handoff(request: Received) -> Reply:
    """A good one: it names all it was told to name."""
    text = messages(request)[-1].text
    files = re.search(r"each to be named: (.*)", text)
    said = re.findall(r"to be named(?: under Goal)?:\n<data-\w+>\n(.*?)\n</data", text, re.S)
    cited = re.search(r"like (S\d+#\d+)", text)
    assert cited
    return say(
        f"## Goal\n{' '.join(said)} ({cited[1]})\n## Decisions\nnone\n"
        f"## Files touched\n{files[1] if files else 'none'}\n## Open work\nthe rest\n"
        "## Next step\nthe next page"
    )


class Model:
    """A model of `size` tokens: it counts prompts, refuses in real words what does not fit, and
    answers what does from `work`, which gets the number of the step."""

    def __init__(
        self,
        size: int,
        work: Callable[[int], Reply],
        summarise: Step = handoff,
        report: bool = True,
    ) -> None:
        self.size = size
        self.work = work
        self.summarise = summarise
        self.report = report
        self.steps = 0
        self.asked = 0
        """For a summary."""
        self.refused: list[int] = []
        self.main: list[Received] = []

    def __call__(self, request: Received) -> Reply:
        tokens = len(request.body) * 10 // 36
        if "You write handoffs" in system(request):
            self.asked += 1
            if (tokens := tokens + (max_tokens(request) or 0)) <= self.size:
                return self.summarise(request)
        if tokens > self.size:
            self.refused.append(tokens)
            return status(
                400,
                f"This model's maximum context length is {self.size} tokens. However, your "
                f"messages resulted in {tokens} tokens. Please reduce the length of the messages.",
                error="context_length_exceeded",
            )
        check_legal(request)
        self.main.append(request)
        self.steps += 1
        reply = self.work(self.steps)
        return reply.usage(Tokens(tokens, 20) if self.report else None)


def reading(pages: int, size: int = PAGE) -> Callable[[int], Reply]:
    def work(n: int) -> Reply:
        if n > pages:
            return say("page 7 mentions the keeper")
        if n % 10 == 0:
            return call((f"c{n}", "note", {"path": f"notes/{n}.md", "text": "x" * 900}))
        return call((f"c{n}", "look", {"n": n, "size": size}))

    return work


async def conversation(r: Rig) -> list[tuple[str, list[Message]]]:
    """All sessions of it, the first one first."""
    out: list[tuple[str, list[Message]]] = []
    id = r.session.id
    while id:
        meta = await r.runtime.store.sessions.get_meta(id)
        assert meta is not None
        out.append((id, await r.runtime.store.sessions.load_messages(id)))
        id = meta.parent
    return out[::-1]


OPTIONS = Options(yolo=True, max_turns=400)


@asynccontextmanager
async def desk(
    root: Path, model: Step, size: int | None = None, *more: Tool[Any], **how: Any
) -> AsyncIterator[Rig]:
    """A rig with that model and its tools; `size`: the window as it is configured."""
    config = how.pop("config", {}) | ({"model": {"context_length": size}} if size else {})
    use = {"then": model, "config": config, "options": OPTIONS, "check": False, **how}
    async with rig(root, [], tools=[look, note, *more], **use) as r:
        r.provider.observe = None
        yield r


async def test_300_steps_at_32k(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Never overflows, never splits a pair, keeps the task, loses nothing, and says nothing."""
    caplog.set_level(logging.INFO, "hermes.agent.compression")
    model = Model(32_768, reading(300, 1500))
    async with desk(tmp_path, model, 32_768) as r:
        result = await r.turn(TASK, timeout=55)
        assert result.status == "completed" and result.text == "page 7 mentions the keeper"
        assert model.steps == result.model_calls == 301 and not model.refused
        parts = await conversation(r)
    assert all(any(TASK in m.text for m in messages(request)) for request in model.main)
    assert 2 <= len(parts) <= 40 and 0 < model.asked < len(parts)
    assert not r.notices and not r.recoveries
    lines = [x for x in caplog.records if x.name == "hermes.agent.compression.compressor"]
    assert len(lines) == len(parts) - 1
    bodies = [request.body for request in model.main]
    breaks = sum(
        not after.startswith(before[: before.rindex(b"]")]) for before, after in pairwise(bodies)
    )
    assert breaks == len(parts) - 1, "the prefix changes when it is compressed, and only then"
    whole = {
        p.call_id: p.text
        for _, part in parts[::-1]
        for m in part
        for p in m.parts
        if isinstance(p, ToolReturn)
    }
    assert whole == {f"c{n}": "noted" if n % 10 == 0 else page(n, 1500) for n in range(1, 301)}


def working(size: int, steps: int, **how: Any) -> Model:
    return Model(size, reading(steps), **how)


async def work(r: Rig, model: Model, steps: int, text: str = TASK) -> None:
    """One turn of so many steps, all of it legal and with its task."""
    before = len(model.main)
    model.work = lambda n: reading(steps)(n - before)
    result = await r.turn(text, timeout=55)
    assert result.status == "completed", result
    assert all(any(text in m.text for m in messages(q)) for q in model.main[before:])


@pytest.mark.parametrize("wire", WIRES)
async def test_the_history_stays_legal_on_every_wire(tmp_path: Path, wire: str) -> None:
    model = working(8192, 0)
    async with desk(tmp_path, model, 8192, wire=wire) as r:
        await work(r, model, 18)
        assert len(await conversation(r)) > 2 and model.asked and not model.refused


# -- 28: what it becomes -----------------------------------------------------------------------


async def test_an_older_result_becomes_a_line_that_says_where_it_is(tmp_path: Path) -> None:
    model = working(32_768, 0)
    async with desk(tmp_path, model, 32_768) as r:
        await work(r, model, 18)
        assert not model.asked, "eliding was enough"
        (old, before), (new, after) = (await conversation(r))[:2]
    assert old != new and r.session.id == new
    results = [p.text for m in after for p in m.parts if isinstance(p, ToolReturn)]
    line = next(text for text in results if "look returned" in text)
    found = re.search(r"message (\d+) of session (\S+)\]", line)
    assert found and found[2] == old and len(line) < 320
    kept = before[int(found[1])].parts[0]
    assert isinstance(kept, ToolReturn) and kept.text[:30] in line and len(kept.text) > 1000


async def test_a_handoff_is_brought_up_to_date_and_cites_its_messages(tmp_path: Path) -> None:
    prompts: list[str] = []

    def summarise(request: Received) -> Reply:
        prompts.append(messages(request)[-1].text)
        return handoff(request)

    model = working(8192, 0, summarise=summarise)
    async with desk(tmp_path, model, 8192) as r:
        await work(r, model, 26)
        parts = dict(await conversation(r))
        last = parts[r.session.id]
    summaries = [m for m in last if m.kind == "summary"]
    assert len(summaries) == 1 and len(prompts) > 2
    assert "The handoff so far" not in prompts[0]
    assert all("The handoff so far" in p and "## Goal" in p for p in prompts[1:])
    named = re.findall(r"S(\d+): messages (\d+)-(\d+) of session (\S+)", summaries[0].text)
    assert [int(n) for n, *_ in named] == list(
        range(int(named[0][0]), int(named[0][0]) + len(named))
    )
    for _, first, end, session in named:
        assert len(parts[session]) > int(end) >= int(first)
    assert last[0].text == TASK and last[1].role == "assistant"
    sent = messages(model.main[-1])
    body = next(m.text for m in sent if "a record and not a request" in m.text)
    assert re.search(r"<data-\w+>\n## Goal.*</data-\w+>", body, re.S), "as data"
    assert "You write" not in system(model.main[-1])


async def test_an_earlier_task_is_summarised_and_the_new_one_pinned(tmp_path: Path) -> None:
    second = "Now count the ships that passed the harbour mouth in winter, month by month."
    model = working(12_000, 0)
    async with desk(tmp_path, model, 12_000) as r:
        await work(r, model, 14)
        await work(r, model, 26, second)
        last = (await conversation(r))[-1][1]
    users = [m.text for m in last if m.role == "user" and m.kind == "normal"]
    assert users == [TASK, second], "the first exchange, and the task as it was written"


async def test_guidance_given_meanwhile_is_not_forgotten(tmp_path: Path) -> None:
    hint = "Skip every page that is about fishing nets, please."
    gate = Gate()

    def work_on(n: int) -> Reply:
        reply = reading(26)(n)
        return reply.hold(gate) if n == 4 else reply

    model = Model(12_000, work_on)
    async with desk(tmp_path, model, 12_000) as r:
        turn = r.begin(TASK)
        await gate.reached()
        r.session.submit(user_message(hint), "steer")
        gate.open()
        assert (await turn).status == "completed" and model.asked
    assert all(hint in q.body.decode() for q in model.main[6:])


async def test_a_plan_stays_whole_and_is_recalled_later(tmp_path: Path) -> None:
    plan = [{"content": f"read shelf {n} " + "carefully " * 30, "status": "pending"} for n in "abc"]
    show = call(("show", "todo", {}))

    def work_on(n: int) -> Reply:
        return {2: call(("plan", "todo", {"todos": plan})), 14: show}.get(n) or reading(26)(n)

    model = Model(12_000, work_on)
    async with desk(
        tmp_path, model, 12_000, options=Options(yolo=True, max_turns=400, toolsets=("core",))
    ) as r:
        assert (await r.turn(TASK)).status == "completed" and model.asked
        assert all("read shelf b" in q.body.decode() for q in model.main[2:])
        again = await r.runtime.open_session(resume=r.session.id, cwd=r.home.work)
        assert [t.content[:12] for t in restore_todos(again.transcript.history.messages)] == [
            "read shelf a", "read shelf b", "read shelf c",
        ]  # fmt: skip
        await again.close()


async def test_the_child_has_read_what_its_parent_has(tmp_path: Path) -> None:
    model = working(12_000, 0)
    async with desk(tmp_path, model, 12_000) as r:
        await work(r, model, 14)
        meta = await r.runtime.store.sessions.get_meta(r.session.id)
        assert meta is not None and meta.parent
        assert meta.taint == r.session.transcript.taint == Taint(private=True, untrusted=True)
        assert meta.title == TASK[:80] and meta.cwd == str(r.home.work) and meta.system


# -- finding it again --------------------------------------------------------------------------


async def test_any_of_its_ids_leads_to_where_it_goes_on(tmp_path: Path) -> None:
    model = working(12_000, 0)
    async with desk(tmp_path, model, 12_000) as r:
        await work(r, model, 14)
        ids = [id for id, _ in await conversation(r)]
        assert len(ids) > 2
        store = r.runtime.store
        for id in ids:
            again = await r.runtime.open_session(resume=id, cwd=r.home.work, options=OPTIONS)
            assert again.id == ids[-1] == r.session.id
            assert [m.text for m in again.transcript.history.messages] == [
                m.text for m in r.session.transcript.history.messages
            ]
            await again.close()
        assert [m.id for m in await store.sessions.list_recent()] == [ids[-1]]
        latest = await store.sessions.find_latest(cwd=str(r.home.work))
        assert latest is not None and latest.id == ids[-1] and latest.state == "idle"
        hits = await store.search.find_messages("page 3")
        assert {h.session.id for h in hits} & set(ids[:-1]), "the originals are found"
        assert await store.sessions.delete(ids[1])
        assert not [id for id in ids if await store.sessions.get_meta(id) is not None], "all of it"


# -- when it goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "summarise",
    [
        lambda _: status(500, "The server had an error"),
        lambda _: say("Sure! The conversation was about the sea."),
        lambda _: say("## Goal\n## Decisions\n## Files touched\n## Open work\n## Next step\n"),
        lambda _: status(400, "prompt is too long: 9402 tokens > 8192 maximum"),
    ],
    ids=["fails", "no handoff", "forgets the task", "overflows"],
)  # fmt: skip
async def test_without_a_good_summary_the_turn_goes_on(tmp_path: Path, summarise: Step) -> None:
    model = working(8192, 0, summarise=summarise)
    async with desk(tmp_path, model, 8192) as r:
        await work(r, model, 26)
        assert not model.refused and model.asked
        last = (await conversation(r))[-1][1]
    assert last[0].text == TASK
    digest = next(m for m in last if m.kind == "summary")
    assert "look x" in digest.text and "S1#" in digest.text and len(digest.text) < 4000


async def test_a_bad_summary_gets_one_more_chance_that_says_what_was_wrong(tmp_path: Path) -> None:
    prompts: list[str] = []

    def summarise(request: Received) -> Reply:
        prompts.append(messages(request)[-1].text)
        return say("I see.") if len(prompts) == 1 else handoff(request)

    model = working(8192, 0, summarise=summarise)
    async with desk(tmp_path, model, 8192) as r:
        await work(r, model, 12)
    assert "rejected" not in prompts[0] and "it lacks the sections Goal" in prompts[1]


async def test_an_overflow_teaches_the_real_window(tmp_path: Path) -> None:
    """Nobody knew the window: the first refusal states it, and none follows."""
    model = working(9000, 0)
    async with desk(tmp_path, model) as r:
        await work(r, model, 26)
        assert len(model.refused) == 1 and len(await conversation(r)) > 2
        assert r.runtime.agents.learned[r.session.agent.providers[0].target].context == 9000
        assert not r.recoveries, "it is silent"


@pytest.mark.parametrize(
    "refusal",
    [
        status(400, "Input is too long for requested model."),
        status(413, "Request Entity Too Large"),
    ],
)
async def test_a_refusal_without_a_number_is_got_over_too(tmp_path: Path, refusal: Reply) -> None:
    model = working(9000, 0)

    def answer(request: Received) -> Reply:
        reply = model(request)
        return refusal if model.refused and reply.code == 400 else reply

    async with desk(tmp_path, answer) as r:
        await work(r, model, 18)
        assert 1 <= len(model.refused) <= 12 and len(await conversation(r)) > 1


async def test_without_reports_it_is_estimated(tmp_path: Path) -> None:
    model = working(12_000, 0, report=False)
    async with desk(tmp_path, model, 12_000) as r:
        await work(r, model, 18)
        assert not model.refused and len(await conversation(r)) > 2


async def test_a_result_larger_than_the_window_is_cut(tmp_path: Path) -> None:
    @tool("Shows much.")
    async def flood(p: Page, ctx: ToolContext) -> str:
        return "drop " * 40_000

    def work_on(n: int) -> Reply:
        many = [(f"c{n}_{i}", "flood", {"n": n * 10 + i}) for i in range(12)]
        return say("dry") if n > 3 else call(*many)

    model = Model(12_000, work_on)
    async with desk(tmp_path, model, 12_000, flood) as r:
        assert (await r.turn(TASK)).text == "dry"
        assert len(model.refused) <= 1


async def test_a_prompt_that_cannot_fit_ends_in_a_sentence(tmp_path: Path) -> None:
    """Nothing to compress: it is said, and the session stays usable."""
    model = Model(8192, lambda _: say("fits"))
    async with desk(tmp_path, model, 8192) as r:
        result = await r.turn("word " * 200_000)
        assert len(model.refused) <= 4
        assert result.status == "completed" or result.error_code == "context_overflow"
        assert (await r.turn("short")).text == "fits"


async def test_a_fallback_with_a_smaller_window_gets_what_fits(tmp_path: Path) -> None:
    small = Model(9000, lambda _: say("done by the spare"))
    main = working(64_000, 0)

    def answer(request: Received) -> Reply:
        return status(402, "no credit") if main.steps >= 11 else main(request)

    config = {
        "model": {"context_length": 64_000},
        "providers": {"spare": {"models": {"spare-model": {"context_length": 9000}}}},
    }
    async with (
        Provider([], then=small) as spare,
        desk(tmp_path, answer, spare=spare, config=config) as r,
    ):
        main.work = reading(26)
        result = await r.turn(TASK)
        assert result.text == "done by the spare" and not small.refused
        assert len(small.main[0].body) < 9000 * 3.6


async def test_interrupted_while_it_is_summarised_nothing_has_changed(tmp_path: Path) -> None:
    gate = Gate()
    model = working(8192, 0, summarise=lambda q: handoff(q).hold(gate))
    async with desk(tmp_path, model, 8192) as r:
        model.work = reading(26)
        turn = r.begin(TASK)
        await gate.reached()
        before = r.session.id
        r.session.interrupt()
        assert (await turn).status == "interrupted" and r.session.id == before
        assert await r.state() == "interrupted"
        gate.open()
        model.summarise = handoff
        await work(r, model, 5, "Go on with the archive, please.")
        assert r.session.id != before


async def test_turned_off_it_does_nothing(tmp_path: Path) -> None:
    model = working(8192, 0)
    config = {"compression": {"enabled": False}}
    async with desk(tmp_path, model, 8192, config=config) as r:
        model.work = reading(26)
        result = await r.turn(TASK)
        assert result.error_code == "context_overflow" and len(await conversation(r)) == 1


async def test_asked_for_by_the_user(tmp_path: Path) -> None:
    model = working(64_000, 0)
    async with desk(tmp_path, model, 64_000) as r:
        await work(r, model, 12)
        assert len(await conversation(r)) == 1
        assert await r.session.compress() and model.asked == 1
        assert len(await conversation(r)) == 2 and await r.state() == "idle"
        again = [await r.session.compress() for _ in range(6)]
        assert not again[-1], "in the end there is nothing more to gain"
        await work(r, model, 2, "And now the second archive, in the same way.")
