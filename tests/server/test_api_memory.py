"""Whose notes a client of the server reads and writes: those of its key and its session key."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

from tests.kit import Received, Reply, call, run_hermes, say
from tests.kit.api import Api, api, only_one_node
from tests.kit.bodies import messages, system, tools
from tests.server.key_owners import ANN, BOB, ENV, SETTINGS

ROOT = "root-key-0123456789abcdef0123"
PLACES = list(product((ANN, BOB, ROOT), ("talk", "other talk")))


def answer(request: Received) -> Reply:
    """Notes the word behind `note`; what it knows is in its prompt."""
    last = messages(request)[-1]
    if last.text.startswith("note ") and not last.results:
        name = last.text.removeprefix("note ")
        rows = [
            {"action": "add", "target": t, "content": f"{name}-{t}"} for t in ("memory", "user")
        ]
        return call(("m1", "memory", {"operations": rows}))
    return say("done")


def find_canaries(a: Api) -> set[str]:
    return set(re.findall(r"canary\d+-\w+", system(a.provider.requests[-1])))


@only_one_node
async def test_no_note_crosses_between_keys_and_session_keys(tmp_path: Path) -> None:
    config = {"memory": {"review": False}}
    async with api(tmp_path, then=answer, key=ROOT, settings=SETTINGS, env=ENV, config=config) as a:
        for number, (key, name) in enumerate(PLACES):
            headers = {"X-Hermes-Session-Key": name, "X-Hermes-Session-Id": f"first{number}"}
            told = await a.chat(f"note canary{number}", key=key, headers=headers)
            assert told.status == 200, told.body
        for number, (key, name) in enumerate(PLACES):
            headers = {"X-Hermes-Session-Key": name, "X-Hermes-Session-Id": f"second{number}"}
            assert (await a.chat("what do you know?", key=key, headers=headers)).status == 200
            assert find_canaries(a) == {f"canary{number}-memory", f"canary{number}-user"}
        for key in (ANN, ROOT):
            await a.chat("and without a session key?", key=key)
            assert not find_canaries(a)
            assert "memory" not in tools(a.provider.requests[-1])
        listed = await run_hermes(["memory", "list"], a.home)
        assert "canary" not in listed.stdout, "not of the one who runs it"
