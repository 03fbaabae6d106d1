"""Plan mode: whatever the model tries, nothing is changed until the user has agreed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.app.agents import Options
from hermes.app.commands import CommandContext, run_command
from hermes.core.message import ToolReturn, user_message
from tests.kit import call, say
from tests.kit.rig import rig


@pytest.mark.parametrize("yolo", [False, True])
async def test_nothing_is_changed(tmp_path: Path, yolo: bool) -> None:
    why = {"unconfined": True, "why": "to be quick"}
    steps = [
        call(("c0", "terminal", {"command": "bash", "background": True})),
        say("a shell waits"),
        call(("c1", "write_file", {"path": "made", "content": "x"})),
        call(("c2", "patch", {"path": "here", "old": "1", "new": "2"})),
        call(("c3", "terminal", {"command": "echo x > made; echo over"})),
        call(("c4", "terminal", {"command": "touch made", "escalate": why})),
        call(("c5", "process", {"action": "write", "id": "p1", "data": "touch made"})),
        call(("c6", "terminal", {"command": "cat here"})),
        say("1. first this"),
        call(("c7", "write_file", {"path": "made", "content": "x"})),
        say("done"),
    ]
    async with rig(tmp_path, steps, options=Options(yolo=yolo)) as r:
        (r.home.work / "here").write_text("1\n")
        r.session.interactions.user_present = True
        await r.turn("open a shell")
        context = CommandContext(r.runtime, r.session, "terminal")
        await run_command(context, "plan", "on")
        result = await r.session.submit(user_message("make it"))
        assert result.text == "1. first this" and not (r.home.work / "made").exists()
        assert (r.home.work / "here").read_text() == "1\n"
        returned = {
            part.call_id: part.text
            for message in result.messages
            for part in message.parts
            if isinstance(part, ToolReturn)
        }
        assert all("plan mode" in returned[name] for name in ("c1", "c2", "c4", "c5"))
        assert "1" in returned["c6"]  # reading goes on
        await run_command(context, "plan", "off")
        await r.turn("go ahead")
        assert (r.home.work / "made").exists()


async def test_the_note_about_it_is_for_the_model_only(tmp_path: Path) -> None:
    """It neither titles the session nor stays when the message is sent again without plan mode."""
    async with rig(tmp_path, [say("a plan"), say("done")]) as r:
        context = CommandContext(r.runtime, r.session, "terminal")
        await run_command(context, "plan", "on")
        await r.session.submit(user_message("make it"))
        assert r.session.transcript.meta.title == "make it"
        assert "Plan mode" in r.requests[0].json["messages"][-1]["content"]
        await run_command(context, "plan", "off")
        reply = await run_command(context, "retry", "")
        assert reply.session is not None and reply.submit is not None
        await reply.session.submit(reply.submit)
        assert r.requests[1].json["messages"][-1]["content"] == "make it"
        await reply.session.close()
