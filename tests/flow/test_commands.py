"""Slash commands on a real Runtime: what they say, and what they do to sessions and files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes.app.agents import Options
from hermes.app.commands import (
    ONE_SHOT,
    CommandContext,
    Reply,
    find_command,
    list_names,
    load_commands,
    parse_command,
    run_command,
    unescape_message,
)
from hermes.app.session import Session
from hermes.core.errors import ConfigError
from hermes.core.events import ToolStarted
from hermes.core.message import user_message
from hermes.core.taint import Taint
from tests.kit import Gate, Provider, call, say, stall
from tests.kit.bodies import messages
from tests.kit.rig import Rig, rig

ASK = Options()
NEVER_WAITS = """agents approve background commands deny help new platforms profile queue restart
status steer stop update version whoami""".split()


def ctx(r: Rig, session: Session | None = None, **more: Any) -> CommandContext:
    return CommandContext(r.runtime, session or r.session, more.pop("surface", "cli"), **more)


async def do(r: Rig, text: str, session: Session | None = None, **more: Any) -> Reply:
    given = parse_command(text)
    assert given is not None
    return await run_command(ctx(r, session, **more), *given)


def write(name: str, content: str, number: int = 0) -> Any:
    return call((f"w{number}{name}", "write_file", {"path": name, "content": content}))


# -- the registry ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/undo", ("undo", "")),
        ("/Title  two words ", ("title", "two words")),
        ("/steer a\nb", ("steer", "a\nb")),
        ("/no-such thing", ("no-such", "thing")),
        ("//undo", None),
        ("/etc/hosts is what?", None),
        ("/", None),
        ("/ undo", None),
        ("undo", None),
        ("/1", None),
    ],
)
def test_what_is_a_command(text: str, found: tuple[str, str] | None) -> None:
    assert parse_command(text) == found


def test_two_slashes_are_one() -> None:
    assert unescape_message("//undo it") == "/undo it"
    assert unescape_message("/etc/hosts") == "/etc/hosts"


def test_every_command_is_whole_and_no_name_means_two() -> None:
    commands = load_commands()
    said = [name for c in commands for name in (c.name, *c.aliases)]
    assert len(set(said)) == len(said)
    for command in commands:
        assert command.name in list_names() and command.help and "\n" not in command.help
        assert find_command(command.name) is command
        assert command.never_waits is (command.name in NEVER_WAITS)
    for alias in ("reset", "fork", "commands", "thinkon"):
        assert find_command(alias) is not None


@pytest.mark.parametrize(("text", "hint"), [("/undoo", "/undo"), ("/zzzz", "/help")])
async def test_an_unknown_one_names_the_nearest(tmp_path: Path, text: str, hint: str) -> None:
    async with rig(tmp_path, [], check=False) as r:
        with pytest.raises(ConfigError, match=hint):
            await do(r, text)


async def test_what_is_for_administrators_is_not_for_others(tmp_path: Path) -> None:
    async with rig(tmp_path, [], check=False) as r:
        for name in ("yolo", "model", "rollback"):
            with pytest.raises(ConfigError, match="administrators"):
                await do(r, f"/{name}", is_admin=False)
        assert "yolo" not in (await do(r, "/help", is_admin=False)).text
        assert "yolo" in (await do(r, "/help")).text


async def test_what_needs_a_conversation_is_refused_for_a_single_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path, [], check=False) as r:
        for command in load_commands():
            if command.surfaces == "live":
                with pytest.raises(ConfigError, match="options"):
                    await do(r, f"/{command.name} x", surface=ONE_SHOT)


# -- undo, rollback, retry, branch -----------------------------------------------------------------


async def test_undo_shows_first_and_takes_messages_and_files_back(tmp_path: Path) -> None:
    steps = [
        write("a.txt", "1"), say("made"),
        write("a.txt", "2", 1), write("b.txt", "new", 2), say("changed"),
    ]  # fmt: skip
    async with rig(tmp_path, steps, options=ASK) as r:
        await r.turn("make it")
        await r.turn("change it")
        before = list(r.session.transcript.history.messages)
        r.session.transcript.taint |= Taint(private=True, untrusted=True)
        shown = await do(r, "/undo")
        assert shown.confirm and shown.session is None
        assert "change it" in shown.text and "a.txt" in shown.text and "-2" in shown.text
        assert (r.home.work / "a.txt").read_text() == "2"  # nothing was done yet
        done = await do(r, "/undo", is_confirmed=True)
        assert (r.home.work / "a.txt").read_text() == "1"
        assert not (r.home.work / "b.txt").exists()
        child = done.session
        assert child is not None and child.transcript.meta.parent == r.session.id
        assert child.transcript.taint == Taint(True, True)
        assert child.transcript.meta.system == r.session.transcript.meta.system
        assert child.transcript.history.messages[0].text == "make it"
        assert child.transcript.history.messages == before[: len(child.transcript.history)]
        assert (
            await r.runtime.store.sessions.load_messages(child.id)
            == child.transcript.history.messages
        )
        assert await r.runtime.store.sessions.load_messages(r.session.id) == before  # append-only
        latest = await r.runtime.store.sessions.find_latest(cwd=str(r.home.work), source="cli")
        assert latest is not None and latest.id == child.id
        undone = await do(r, f"/rollback {_named(done.text)} yes", child)
        assert "b.txt" in undone.text and (r.home.work / "a.txt").read_text() == "2"
        again = await do(r, "/undo yes", child)
        assert again.session is not None and len(again.session.transcript.history) == 0
        assert not (r.home.work / "a.txt").exists()
        with pytest.raises(ConfigError, match="nothing to undo"):
            await do(r, "/undo", again.session)


async def test_undo_takes_back_all_of_the_changes_that_were_made_together(tmp_path: Path) -> None:
    """Every one of them waits for the checkpoint, not only the first."""
    names = [f"{n}.txt" for n in range(8)]
    writes = [(f"c{n}", "write_file", {"path": n, "content": "new"}) for n in names]
    new = ("c", "write_file", {"path": "new.txt", "content": "new"})
    async with rig(tmp_path, [call(new, *writes), say("changed")], options=ASK) as r:
        for name in names:
            r.home.file(name, "old")
        await r.turn("change them")
        assert {(r.home.work / name).read_text() for name in names} == {"new"}
        await do(r, "/undo yes")
        assert {(r.home.work / name).read_text() for name in names} == {"old"}
        assert not (r.home.work / "new.txt").exists()


def _named(text: str) -> str:
    return text.partition("/rollback ")[2].split()[0]


async def test_undo_knows_the_turns_of_branches_from_those_that_were_undone(tmp_path: Path) -> None:
    steps = [write("a", "1"), say("x"), write("a", "2", 1), say("x"), say("nothing"), say("done")]
    async with rig(tmp_path, steps, options=ASK) as r:
        await r.turn("one")
        await r.turn("two")
        child = (await do(r, "/undo yes")).session
        assert child is not None
        assert (r.home.work / "a").read_text() == "1"
        await child.submit(user_message("three"))
        (r.home.work / "a").write_text("by hand")
        shown = await do(r, "/undo", child)
        assert "No files were changed" in shown.text
        last = (await do(r, "/undo yes", child)).session
        assert (r.home.work / "a").read_text() == "by hand"
        await do(r, "/undo yes", last)  # a turn that was taken over: its files are known
        assert not (r.home.work / "a").exists()


async def test_undo_of_several_turns(tmp_path: Path) -> None:
    steps = [write("a", "1"), say("x"), say("y"), write("a", "2", 1), say("z")]
    async with rig(tmp_path, steps, options=ASK) as r:
        for text in ("one", "two", "three"):
            await r.turn(text)
        for bad in ("0", "x", "1 2", "9"):
            with pytest.raises(ConfigError):
                await do(r, f"/undo {bad}")
        done = await do(r, "/undo 2 yes")
        assert done.session is not None
        assert [m.text for m in done.session.transcript.history.messages if m.role == "user"] == [
            "one"
        ]
        assert (r.home.work / "a").read_text() == "1"


async def test_rollback_lists_shows_and_restores(tmp_path: Path) -> None:
    steps = [write("a", "1"), say("x"), write("a", "2", 1), say("y")]
    async with rig(tmp_path, steps, options=ASK) as r:
        assert "no checkpoints" in (await do(r, "/rollback")).text
        await r.turn("first")
        await r.turn("second")
        listed = (await do(r, "/rollback")).text
        assert "1. " in listed and "2. " in listed and "[" not in listed  # our own mark
        assert listed.index("second") < listed.index("first")  # what was asked in each turn
        shown = await do(r, "/rollback 1")
        assert shown.confirm and "+1" in shown.text and "-2" in shown.text
        done = await do(r, "/rollback 1 yes")
        assert (r.home.work / "a").read_text() == "1"
        assert "a" in done.text
        await do(r, f"/rollback {_named(done.text)} yes")
        assert (r.home.work / "a").read_text() == "2"
        for bad in ("9", "nonsense"):
            with pytest.raises(ConfigError, match="no checkpoint"):
                await do(r, f"/rollback {bad}")


async def test_retry_answers_the_last_message_in_a_child(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("first"), say("poor"), say("better")], options=ASK) as r:
        await r.turn("one")
        await r.turn("two")
        reply = await do(r, "/retry")
        assert reply.session is not None and reply.submit is not None
        result = await reply.session.submit(reply.submit)
        assert result.text == "better"
        sent = [m.text for m in messages(r.requests[2])]
        assert any("two" in text for text in sent) and not any("poor" in text for text in sent)
        with pytest.raises(ConfigError, match="no message"):
            await do(r, "/retry", await r.runtime.open_session(cwd=r.home.work))


async def test_a_branch_leaves_the_old_session_alone(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("one"), say("two")], options=ASK) as r:
        with pytest.raises(ConfigError, match="nothing"):
            await do(r, "/branch")
        await r.turn("a")
        reply = await do(r, "/fork other way")
        assert reply.session is not None and reply.session.transcript.meta.title == "other way"
        await reply.session.submit(user_message("b"))
        assert len(await r.runtime.store.sessions.load_messages(r.session.id)) == 2
        assert len(await r.runtime.store.sessions.load_messages(reply.session.id)) == 4


# -- sessions --------------------------------------------------------------------------------------


async def test_sessions_and_resume_show_only_what_belongs_here(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("x")] * 3, options=ASK) as r:
        mine = await r.runtime.open_session(source="chat", key="a", cwd=r.home.work, options=ASK)
        theirs = await r.runtime.open_session(source="chat", key="b", cwd=r.home.work, options=ASK)
        await mine.submit(user_message("my secret plan"))
        await theirs.submit(user_message("their secret plan"))
        await r.turn("at the terminal")
        listed = (await do(r, "/sessions", mine)).text
        assert mine.id in listed and theirs.id not in listed and r.session.id not in listed
        for wanted in (theirs.id, "their secret plan", r.session.id, theirs.id[:8] + "x"):
            with pytest.raises(ConfigError, match="no session"):
                await do(r, f"/resume {wanted}", mine)
        fresh = (await do(r, "/new", mine)).session
        assert (
            fresh is not None
            and fresh.transcript.meta.key == "a"
            and fresh.transcript.meta.source == "chat"
        )
        for wanted in (mine.id, mine.id[:-2], "MY secret plan"):
            back = (await do(r, f"/resume {wanted}", fresh)).session
            assert back is not None and back.id == mine.id
        for session in (mine, theirs):
            await session.close()


async def test_title_before_and_after_the_first_message(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("x")], options=ASK) as r:
        await do(r, "/title  My \n plan ")
        await r.turn("hello")
        meta = await r.runtime.store.sessions.get_meta(r.session.id)
        assert meta is not None and meta.title == "My plan"
        await do(r, "/title Other")
        meta = await r.runtime.store.sessions.get_meta(r.session.id)
        assert meta is not None and meta.title == "Other"
        assert (await do(r, "/title")).text == "Other"


async def test_the_list_of_steps_survives_a_restart(tmp_path: Path) -> None:
    todos = [{"content": "buy milk", "status": "in_progress"}, {"content": "drink it"}]
    steps = [
        call(("t", "todo", {"todos": todos})),
        call(("u", "todo", {"todos": [{"content": ""}]})),  # refused: the list stays
        say("planned"),
    ]
    async with rig(tmp_path, steps, options=ASK, check=False) as r:
        await r.turn("plan")
        sid = r.session.id
    steps = [call(("v", "todo", {})), say("there")]
    async with rig(tmp_path, steps, options=ASK, resume=sid) as r:
        await r.turn("and?")
        said = "".join(text for m in messages(r.requests[-1]) for _, text in m.results)
        assert "[>] 1. buy milk" in said and "[ ] 2. drink it" in said


# -- a turn that runs ------------------------------------------------------------------------------


def waiting() -> Any:
    return call(("c", "terminal", {"command": "rm -rf ."}))


async def test_approve_and_deny(tmp_path: Path) -> None:
    async with rig(tmp_path, [waiting(), say("a"), waiting(), say("b")], options=ASK) as r:
        r.session.interactions.user_present = True
        with pytest.raises(ConfigError, match="No request is waiting"):
            await do(r, "/approve")
        for text, allowed in (("/approve", True), ("/deny", False)):
            turn = r.begin(text.strip("/"))
            await r.until(lambda _: bool(r.session.interactions.pending_approvals))
            with pytest.raises(ConfigError, match="once, deny"):
                await do(r, "/approve always")
            assert "waiting for 1" in (await do(r, "/status")).text
            await do(r, text)
            assert (await turn).status == "completed"
            ran = "".join(text for m in messages(r.requests[-1]) for _, text in m.results[-1:])
            assert ("Not run" in ran) is not allowed


async def test_stop_says_what_it_stopped(tmp_path: Path) -> None:
    steps = [call(("c", "terminal", {"command": "sleep 30"}))]
    async with rig(tmp_path, steps) as r:
        idle = await do(r, "/stop")
        assert idle.text == "No active task to stop." and not idle.suspend
        future = r.session.submit(user_message("early"))
        early = await do(r, "/stop")
        assert early.text == (
            "⚡ Force-stopped. The agent was still starting — your next message will start fresh."
        )
        assert early.suspend and future.cancelled()
        turn = r.begin("go")
        await r.until(lambda e: isinstance(e, ToolStarted))
        later = r.session.submit(user_message("later"))
        running = await do(r, "/stop")
        assert running.text == (
            "⚡ Force-stopped. The session is suspended — your next message will start fresh."
        )
        assert running.suspend and (await turn).status == "interrupted" and later.cancelled()


async def test_steer_and_queue(tmp_path: Path) -> None:
    steps = [call(("c", "clarify", {"question": "?"})), say("done"), say("next")]
    async with rig(tmp_path, steps, options=ASK) as r:
        r.session.interactions.user_present = True
        assert (await do(r, "/steer left")).submit == user_message("left")
        assert (await do(r, "/queue right")).submit == user_message("right")
        turn = r.begin("go")
        await r.until(lambda e: isinstance(e, ToolStarted))
        assert (await do(r, "/steer be brief")).submit is None
        queued = await do(r, "/queue then this")
        assert queued.text and queued.submit is not None
        r.session.interactions.answer_question(r.session.interactions.pending_questions[0].id, None)
        assert (await turn).status == "completed"
        assert "User guidance: be brief" in r.requests[1].body.decode()
        for text in ("/steer", "/queue"):
            with pytest.raises(ConfigError):
                await do(r, text)


async def test_a_turn_that_is_being_stopped_is_not_steered(tmp_path: Path) -> None:
    async with rig(tmp_path, [call(("c", "clarify", {"question": "?"}))], options=ASK) as r:
        r.session.interactions.user_present = True
        turn = r.begin("go")
        await r.until(lambda e: isinstance(e, ToolStarted))
        r.session.interrupt()
        assert (await do(r, "/steer left")).submit == user_message("left")
        assert (await turn).status == "interrupted"


# -- settings --------------------------------------------------------------------------------------


async def test_settings_hold_for_the_session_and_nobody_else(tmp_path: Path) -> None:
    steps = [waiting(), say("ok"), say("other")]
    provider = Provider(steps, models=("kit-model", "other-model"))
    async with rig(tmp_path, provider, options=ASK) as r:
        other = await r.runtime.open_session(cwd=r.home.work, options=ASK)
        await do(r, "/yolo on")
        await do(r, "/reasoning high")
        await do(r, "/busy steer")
        await do(r, "/verbose on")
        await do(r, "/model other-model")
        assert r.session.agent.settings.effort == "high"
        assert r.session.interactions.busy_mode == "steer" and r.session.interactions.verbose
        await r.turn("go")
        assert "Not run" not in r.requests[1].body.decode()
        assert b"other-model" in r.requests[0].body
        assert "yolo" in (await do(r, "/status")).text
        assert other.agent.settings.effort != "high" and other.interactions.busy_mode == "queue"
        assert "yolo" not in (await do(r, "/status", other)).text
        await do(r, "/yolo off")
        assert not (r.session.options or ASK).yolo
        await do(r, "/reasoning off")
        assert r.session.agent.settings.effort == "none"
        await do(r, "/thinkon")
        assert r.session.agent.settings.effort == "medium"
        child = (await do(r, "/branch")).session
        assert child is not None and child.interactions.busy_mode == "steer"
        for bad in ("/yolo maybe", "/reasoning much", "/busy x", "/verbose x", "/usage x"):
            with pytest.raises(ConfigError):
                await do(r, bad)


async def test_the_rest_answers(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("x")], options=ASK) as r:
        await r.turn("hi")
        for text, part in {
            "/version": "hermes ",
            "/whoami": "administrator",
            "/profile": f"profile: default\nhome: {r.home.path}",
            "/agents": "Nothing runs in the background.",
            "/debug": f"log: {r.home.path}/logs/hermes.log",
            "/model": "kit-model",
            "/tools": "terminal",
            "/toolsets": "core: ",
            "/usage": "input tokens: 11",
            "/status": r.session.id,
            "/help undo": "[TURNS]",
        }.items():
            assert part in (await do(r, text)).text
        assert "$" not in (await do(r, "/usage")).text
        assert "cost" in (await do(r, "/usage cost")).text


async def test_a_prompt_in_the_background(tmp_path: Path) -> None:
    """A session of its own, listed and stopped by its id, told of when it has ended."""
    gate, ended = Gate(), asyncio.Queue[Any]()
    steps = [say("the sum is 4").hold(gate, after="start"), say("meanwhile")]
    async with rig(tmp_path, steps, then=lambda _: stall()) as r:
        r.runtime.background_prompts.on_done = lambda prompt, result: ended.put_nowait(
            (prompt, result)
        )
        assert "In the background" in (await do(r, "/bg what is 2+2?")).text
        await gate.reached()
        assert (await r.turn("and here?")).text == "meanwhile"
        assert "what is 2+2?" in (await do(r, "/agents")).text
        gate.open()
        prompt, result = await ended.get()
        assert result.text == "the sum is 4" and prompt.session.id != r.session.id
        stored = [m.text for m in await r.runtime.store.sessions.load_messages(prompt.session.id)]
        assert stored == ["what is 2+2?", "the sum is 4"]
        assert "Nothing runs" in (await do(r, "/agents")).text
        await do(r, "/background wait for ever")
        with pytest.raises(ConfigError, match="no nonsense"):
            await do(r, "/background stop nonsense")
        assert "Stopped" in (await do(r, "/background stop all")).text
        assert (await ended.get())[1].status == "interrupted" and not len(
            r.runtime.background_prompts
        )


async def test_fast_mode_is_asked_for_where_there_is_one(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("x")], options=ASK) as r:
        assert (await do(r, "/fast")).text == "Fast mode: off."
        with pytest.raises(ConfigError, match="offers no fast mode"):
            await do(r, "/fast on")
        with pytest.raises(ConfigError, match="takes on or off"):
            await do(r, "/fast maybe")
