"""A turn that the end of a process cut off runs again from its message, and no call runs twice."""

from __future__ import annotations

from pathlib import Path

from hermes.agent.loop import OUTCOME_UNKNOWN
from hermes.app.agents import Options
from hermes.core.message import Message, Text, ToolCall, user_message
from tests.flow.loop_parts import results
from tests.kit import call, say
from tests.kit.bodies import messages
from tests.kit.rig import Rig, rig


async def cut_off(r: Rig, *left: Message) -> None:
    """Reopen the session as a dead process left it, with these messages as its last ones."""
    await r.turn("before")
    store = r.runtime.store
    await store.sessions.append(r.session.id, left, state="interrupted")
    r.prompts.append(left[0].text)
    await r.open(Options(), (), resume=r.session.id)


async def test_a_turn_without_tools_runs_again_and_its_message_stays_single(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, [say("one"), say("answered")]) as r:
        await cut_off(r, user_message("hello"))
        result = await r.session.continue_turn()
        assert (result.status, result.text) == ("completed", "answered")
        assert [m.text for m in await r.stored() if m.role == "user"] == ["before", "hello"]
        assert [m.text for m in messages(r.requests[1]) if m.role == "user"][-1] == "hello"
        assert await r.state() == "idle"


async def test_f60_a_call_that_was_cut_off_is_answered_and_not_repeated(tmp_path: Path) -> None:
    asked = ToolCall("c1", "terminal", '{"command": "echo x >> effects.log"}')
    steps = [say("one"), call(("c2", "terminal", {"command": "echo checked"})), say("fine")]
    async with rig(tmp_path, steps) as r:
        await cut_off(r, user_message("do it"), Message("assistant", (Text("Now."), asked)))
        result = await r.session.continue_turn()
        assert (result.status, result.text) == ("completed", "fine")
        assert OUTCOME_UNKNOWN in results(r.requests[1])[0]
        assert not (r.home.work / "effects.log").exists()
