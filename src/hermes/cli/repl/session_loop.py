"""Behind the prompt: opens everything while the user types, then answers what is entered."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.repl import slash_commands as commanding
from hermes.cli.repl.message_input import compose

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime
    from hermes.app.session import Session
    from hermes.cli.repl.controller import Repl
    from hermes.config.load import Setup
    from hermes.core.message import Message

log = logging.getLogger(__name__)

_SHOWN = 4
_ANSWER = 4000
_CLOSING = 5.0


def prepare(args: Namespace) -> tuple[Setup, Path]:
    """Reads the configuration and imports what a session needs; on a thread."""
    from hermes.cli import log_file as logs
    from hermes.config import paths
    from hermes.config.load import load
    from hermes.core.redaction.redactor import Redactor

    setup = load(args.profile, keys=[args.api_key_env] if args.api_key_env else [])
    logs.install(paths.log_file(setup.home), Redactor(setup.secrets.known()).clean)
    return setup, paths.working_folder(setup.config.terminal.cwd)


async def serve(repl: Repl, args: Namespace) -> str | None:
    """Until the user leaves. What is to be said when the screen is gone; None when the
    configuration wants no screen."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # while that thread imports, keys are to be shown at once
    try:
        setup, repl.cwd = await asyncio.to_thread(prepare, args)
    finally:
        sys.setswitchinterval(usual)
    if setup.config.display.plain:
        repl.quit(0)
        return None
    from hermes.app.runtime import Runtime
    from hermes.cli.process import harden
    from hermes.cli.repl.event_view import View

    screen = repl.screen
    harden()
    repl.view = View(repl.state, screen.write, lambda: screen.columns, colour=screen.colour)
    if setup.config.display.editing_mode == "vi":
        from prompt_toolkit.enums import EditingMode

        screen.app.editing_mode = EditingMode.VI
        repl.state.vi = True
    for warning in (*setup.warnings, *_elsewhere(setup, repl.cwd)):
        repl.view.note(f"! {warning}")
    async with Runtime.open(setup) as runtime:
        session = await chosen(runtime, args, repl.cwd)
        await _begin(repl, runtime, session)
        work = runtime.spawn(_work(repl), "the prompt")
        await repl.left.wait()
        work.cancel()
        return await _end(repl, runtime)


def _elsewhere(setup: Setup, folder: Path) -> list[str]:
    """About context files, where terminal.cwd leads to another folder than was asked about."""
    from hermes.cli.project_trust import settle

    return [] if folder == Path.cwd() else settle(setup.home, folder, attended=False)


async def chosen(runtime: Runtime, args: Namespace, folder: Path) -> Session:
    """The session the options name, or a new one."""
    from hermes.app.session_chain import current
    from hermes.cli.lookup import find_session
    from hermes.cli.oneshot import make_options
    from hermes.core.errors import ConfigError

    store, options = runtime.store, make_options(args)
    resume = ""
    if args.resume is not None:
        found = await current(store, (await find_session(store, args.resume)).id)
        resume = found.id if found else ""
    elif args.latest:
        latest = await store.latest(cwd=str(folder), source="cli")
        if latest is None:
            raise ConfigError(f"There is no session of {folder} to continue.")
        resume = latest.id
    return await runtime.session(resume=resume, cwd=folder, options=options)


async def _begin(repl: Repl, runtime: Runtime, session: Session) -> None:
    from hermes.cli.repl.completer import Files
    from hermes.cli.repl.session_view import Conversation

    assert repl.view is not None
    session.people.busy = "steer"
    conversation = Conversation(runtime, session, repl.view, repl.state, repl.screen.refresh)
    conversation.editing = repl.edit
    _greet(repl, session)
    if session.agent.note:
        repl.view.note(f"! {session.agent.note}")
    await _fetch(repl, runtime, session)
    for sentence in await runtime.store.ready():
        repl.view.note(f"! {sentence}")
    if len(session.history):
        replay(repl, session.history.messages)
    else:
        await _offer(repl, runtime)
    repl.completing.files = Files(repl.cwd, runtime.setup.home)
    repl.conversation = conversation
    repl.state.ready = True
    gc.freeze()  # what was imported stays for good
    gc.enable()
    repl.screen.refresh()


def _greet(repl: Repl, session: Session) -> None:
    """What this is and where it works; a conversation that goes on is its own greeting."""
    from hermes.version import VERSION

    if not len(session.history):
        assert repl.view is not None
        folder, home = repl.cwd, Path.home()
        inside = folder.is_relative_to(home) and folder != home
        place = f"~/{folder.relative_to(home)}" if inside else str(folder)
        repl.view.note(f"Hermes {VERSION} · {place} · /help")


async def _fetch(repl: Repl, runtime: Runtime, session: Session) -> None:
    """A model that runs on this machine is downloaded before it is first asked."""
    from hermes.llm.http.transport import EMBEDDED

    base_url = session.agent.providers[0].endpoint.base_url
    if base_url.startswith(EMBEDDED):
        from hermes.cli.terminal import download as pulling

        assert repl.view is not None
        await pulling.prepare(base_url, runtime.transport, repl.view.note)


async def _offer(repl: Repl, runtime: Runtime) -> None:
    latest = await runtime.store.latest(cwd=str(repl.cwd), source="cli")
    if latest is not None and latest.state == "interrupted":
        from hermes.cli.terminal.text import one_line

        repl.offered = latest.id
        title = one_line(latest.title, 60)
        repl.state.offer = f"↻ The last conversation here was interrupted: {title} · Tab goes on"


def replay(repl: Repl, messages: tuple[Message, ...] | list[Message]) -> None:
    """The end of a conversation that goes on."""
    assert repl.view is not None
    spoken = [m for m in messages if m.role in ("user", "assistant") and m.text.strip()]
    hidden = len(messages) - len(spoken[-_SHOWN:])
    if hidden:
        repl.view.note(f"… {hidden} earlier messages")
    for message in spoken[-_SHOWN:]:
        if message.role == "user":
            repl.view.said(message.text[:_ANSWER])
        else:
            repl.view.answer(message.text[-_ANSWER:])


async def _work(repl: Repl) -> None:
    """What was entered, in order; a failure is said and the next one is taken."""
    from hermes.core.errors import HermesError

    assert repl.view is not None
    while True:
        text, queued = await repl.taken()
        try:
            await _entered(repl, text, queued=queued)
        except HermesError as error:
            repl.view.trouble(str(error))
        except Exception as error:  # the prompt goes on whatever a command does
            log.exception("what was entered could not be done")
            kind = type(error).__name__
            repl.view.trouble(f"That failed ({kind}); nothing stored was lost. The log says more.")
        repl.screen.refresh()


async def _entered(repl: Repl, text: str, *, queued: bool) -> None:
    from hermes.app.commands import message_text, parse

    assert repl.view is not None and repl.conversation is not None
    command = parse(text)
    if command is not None:
        await commanding.run(repl, *command)
        return
    await commanding.fresh_if_suspended(repl)
    await fetched(repl)
    typed = message_text(text)
    told, images = repl.pasted.expanded(typed)
    message, problems = await asyncio.to_thread(compose, told, images, repl.cwd, typed=typed)
    send = repl.conversation.enqueue if queued else repl.conversation.send
    send(text, message)
    for problem in problems:
        repl.view.trouble(problem)


async def fetched(repl: Repl) -> None:
    """A model of this machine is downloaded before its first answer, with the prompt put aside."""
    from hermes.llm.http.transport import EMBEDDED

    assert repl.conversation is not None
    session, runtime = repl.conversation.session, repl.conversation.runtime
    base_url = session.agent.providers[0].endpoint.base_url
    if not base_url.startswith(EMBEDDED):
        return
    from hermes.cli.terminal.download import prepare as download
    from hermes.llm.endpoints.embedded import missing_model

    if missing_model(base_url):
        from prompt_toolkit.application.run_in_terminal import in_terminal

        async with in_terminal():
            await download(base_url, runtime.transport)


async def _end(repl: Repl, runtime: Runtime) -> str:
    assert repl.conversation is not None
    session = repl.conversation.session
    said = []
    if farewell := runtime.background.farewell():
        said.append(f"! {farewell}")
    if left := [errand.session.id for errand in runtime.errands.of(session)]:
        said.append(f"! stopped in the background; --resume goes on with it: {', '.join(left)}")
    try:
        async with asyncio.timeout(_CLOSING):
            await session.close()
    except TimeoutError:
        said.append("! a tool did not end in time; it is ended with this program")
    if len(session.history):
        said.append(f"To go on: hermes --resume {session.id}")
    return "\n".join(said)
