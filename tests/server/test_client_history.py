"""Long conversations of clients: the history is summarised once, not again in every turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import say
from tests.kit.api import Answer, Api, api

LONG = "words about things " * 3000
WINDOW = {"model": {"context_length": 64_000}}
TURNS = 12


async def hold_conversation(a: Api, way: str) -> str:
    """Talk for several turns; returns the session id."""
    said: list[dict[str, str]] = []
    answer: Answer | None = None
    for n in range(TURNS):
        text = f"turn {n} {LONG}"
        said.append({"role": "user", "content": text})
        match way:
            case "session":
                answer = await a.chat(text, headers={"X-Hermes-Session-Id": "mine"})
            case "history":
                answer = await a.post("/v1/chat/completions", {"messages": said})
            case _:
                answer = await a.ask(text, conversation="one")
        assert answer.status == 200, answer.body
        said.append({"role": "assistant", "content": "Fine."})
    assert answer is not None
    return answer.headers["X-Hermes-Session-Id"]


@pytest.mark.parametrize("way", ["session", "history", "conversation"])
async def test_a_summary_is_made_once_and_the_store_keeps_everything(
    tmp_path: Path, way: str
) -> None:
    async with api(tmp_path, then=say("Fine."), config=WINDOW) as a:
        session = await hold_conversation(a, way)
        extra = len(a.provider.requests) - TURNS
        assert 0 < extra <= 6, extra  # each turn since the first that did not fit, without it
        assert f"turn {TURNS - 1} " in a.provider.last.body.decode()
        store = a.server.runtime.store
        stored = [
            m.text.partition(" words")[0]
            for m in await store.sessions.load_messages(session)
            if m.role == "user"
        ]
        assert stored == [f"turn {n}" for n in range(TURNS)]
        assert len(await store.objects.list_all("handoff")) == 1
        assert (await a.call("DELETE", f"/api/sessions/{session}")).status == 200
        assert not await store.objects.list_all("handoff")


async def test_another_history_with_the_same_name_is_not_mistaken_for_it(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Fine."), config=WINDOW) as a:
        await hold_conversation(a, "history")
        first = {"role": "user", "content": f"turn 0 {LONG}"}
        other = [first, {"role": "assistant", "content": "No."}, {"role": "user", "content": "So?"}]
        assert (await a.post("/v1/chat/completions", {"messages": other})).status == 200
        told = [m["content"] for m in a.provider.last.json["messages"] if m["role"] != "system"]
        assert [str(text)[:6].strip() for text in told] == ["turn 0", "No.", "So?"]


async def test_store_false_stores_no_summary(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Fine."), config=WINDOW) as a:
        items = [
            {"role": role, "content": text}
            for n in range(8)
            for role, text in (("user", f"turn {n} {LONG}"), ("assistant", "Fine."))
        ]
        items.append({"role": "user", "content": "So?"})
        assert (await a.ask(items, store=False)).status == 200
        assert len(a.provider.requests) > 1
        assert not await a.server.runtime.store.objects.list_all("handoff")
