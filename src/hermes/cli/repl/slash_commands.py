"""Slash commands on the screen: the registry's, the few of this surface, and the picker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.cli.repl import question as asking
from hermes.cli.repl.completer import LOCAL
from hermes.cli.repl.key_bindings import HELP
from hermes.cli.repl.session_picker import Picking
from hermes.cli.repl.tool_results import coloured
from hermes.cli.terminal.text import printable

if TYPE_CHECKING:
    from hermes.app.commands import CommandContext, Reply
    from hermes.cli.repl.controller import Repl
    from hermes.core.store import SessionMeta

SURFACE = "terminal"
_LISTED = 200
_LAST = 4
_SLOW = 0.2
"""Seconds until a command is shown as running."""


async def run(repl: Repl, name: str, args: str) -> None:
    from hermes.app.commands import CommandContext
    from hermes.app.commands import run as command

    assert repl.view is not None and repl.conversation is not None
    conversation = repl.conversation
    repl.view.said(f"/{name} {args}".rstrip())
    args, _ = repl.pasted.expanded(args)
    if name in ("exit", "quit"):
        repl.leave()
        return
    if name == "keys":
        _told(repl, HELP)
        return
    if name == "export":
        from hermes.cli.repl.export import export

        runtime, session = conversation.runtime, conversation.session
        _told(repl, await export(runtime, session, repl.cwd, args))
        return
    context = CommandContext(conversation.runtime, conversation.session, SURFACE)
    if name == "resume" and not args:
        chosen = await _picked(repl, context)
        if chosen is None:
            return
        args = chosen.id
    reply = await _stoppable(repl, name, command(context, name, args))
    if reply is None:
        return
    if name in ("help", "commands") and not args:
        rows = "\n".join(f"/{name.ljust(9)}  {text}" for name, text in LOCAL.items())
        reply = structs.replace(reply, text=f"{reply.text}\n\nhere only:\n{rows}")
    if reply.confirm:
        _previewed(repl, reply.text)
        if not await _confirmed(repl, reply.confirm):
            repl.view.note("Nothing was changed.")
            return
        # Not to be stopped half way: files and messages go back together.
        reply = await command(structs.replace(context, confirmed=True), name, args)
    await _follow(repl, reply, replayed=name == "resume")


async def _stoppable(repl: Repl, name: str, work: Awaitable[Reply]) -> Reply | None:
    """What came of it; None when the user did not wait for it."""
    assert repl.view is not None
    loop, state = asyncio.get_running_loop(), repl.state

    def show() -> None:
        state.command, state.command_since = f"/{name}", loop.time()
        repl.screen.refresh()

    shown = loop.call_later(_SLOW, show)
    try:
        async with asyncio.timeout(None) as repl.patience:
            return await work
    except TimeoutError:
        if repl.patience is None or not repl.patience.expired():
            raise
        repl.view.note(f"/{name} was stopped.")
        return None
    finally:
        shown.cancel()
        repl.patience, state.command = None, ""


async def _follow(repl: Repl, reply: Reply, *, replayed: bool) -> None:
    from hermes.cli.repl.session_loop import replay

    assert repl.view is not None and repl.conversation is not None
    conversation = repl.conversation
    if reply.session is not None:
        await conversation.switch(reply.session)
        if replayed:
            replay(repl, conversation.session.transcript.history.messages)
    repl.suspended = repl.suspended or reply.suspend
    _told(repl, reply.text)
    conversation.refresh_mode()
    if reply.submit is not None:
        conversation.enqueue(reply.submit.text, reply.submit)


def _told(repl: Repl, text: str) -> None:
    assert repl.view is not None
    if text:
        repl.view.note(text, "")


def _previewed(repl: Repl, text: str) -> None:
    """What would be done: words, and the changes to files in colours."""
    assert repl.view is not None
    words, found, diff = printable(text).partition("\ndiff --git ")
    repl.view.note(words, "")
    if found:
        repl.view.text(coloured(f"diff --git {diff}".split("\n")))


async def fresh_if_suspended(repl: Repl) -> None:
    """After /stop the next message begins a session of its own."""
    if not repl.suspended or repl.conversation is None:
        return
    repl.suspended = False
    conversation = repl.conversation
    await conversation.switch(await conversation.runtime.reopen(conversation.session))


async def _confirmed(repl: Repl, text: str) -> bool:
    assert repl.conversation is not None
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    repl.conversation.ask(asking.confirmation(text, answer.set_result))
    return await answer


async def _picked(repl: Repl, context: CommandContext) -> SessionMeta | None:
    """Of the sessions of this place, the most recently used first."""
    from hermes.app.commands._lookup import here

    assert repl.view is not None
    store = context.runtime.store
    found = [meta for meta in await here(context, _LISTED) if meta.id != context.session.id]
    if not found:
        repl.view.note("No other sessions are stored.")
        return None
    answer: asyncio.Future[SessionMeta | None] = asyncio.get_running_loop().create_future()

    async def load(meta: SessionMeta) -> None:
        messages = [stored.message async for stored in store.sessions.stream_messages(meta.id)]
        spoken = [m for m in messages if m.role in ("user", "assistant") and m.text.strip()]
        picking.previews[meta.id] = spoken[-_LAST:]
        repl.screen.refresh()

    def look(meta: SessionMeta) -> None:
        context.runtime.spawn(load(meta), f"preview of {meta.id}")

    async def search(text: str) -> None:
        hits = await store.search.find_messages(text, limit=_LISTED)
        picking.inside(text, frozenset(hit.session.id for hit in hits))
        repl.screen.refresh()

    def seek(text: str) -> None:
        context.runtime.spawn(search(text), "search of the sessions")

    picking = Picking(found, answer.set_result, look, seek)
    repl.screen.search.reset()
    repl.state.picking = picking
    repl.screen.app.layout.focus(repl.screen.search)
    repl.screen.refresh()
    return await answer
