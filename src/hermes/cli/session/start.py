"""How a session starts: the stored one that the options name, or a new one, and its model."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.core.errors import ConfigError
from hermes.core.store import SessionMeta, Store
from hermes.llm.endpoints.endpoint import ModelChoice

if TYPE_CHECKING:
    from hermes.app.agents import Options
    from hermes.app.runtime import Runtime
    from hermes.app.session import Session
    from hermes.cli.terminal.progress import ProgressLine
    from hermes.llm.http.transport import Transport

READ_ONLY = (
    "This session is open in another terminal, so nothing was sent. /branch continues in a copy of "
    "it, /new starts another."
)


async def find_session(store: Store, prefix: str) -> SessionMeta:
    """The stored session whose id begins with `prefix`."""
    found = await store.sessions.find_by_prefix(prefix, limit=4) if prefix else []
    exact = [meta for meta in found if meta.id == prefix]
    match exact or found:
        case [meta]:
            # Lists leave the system prompt out.
            return await store.sessions.get_meta(meta.id) or meta
        case []:
            raise ConfigError(f"There is no session {prefix!r}. Run: hermes sessions list")
        case several:
            ids = ", ".join(meta.id for meta in several)
            raise ConfigError(f"{prefix!r} matches several sessions ({ids}); give more of the id.")


async def find_resumed_session(store: Store, args: Namespace, folder: Path) -> SessionMeta | None:
    """The session that --resume or --continue names; None when neither was given."""
    if args.resume is not None:
        from hermes.app.session_records import find_current_session

        named = await find_session(store, args.resume)
        return await find_current_session(store, named.id)
    if not args.latest:
        return None
    latest = await store.sessions.find_latest(cwd=str(folder), source="cli")
    if latest is None:
        raise ConfigError(f"There is no session in {folder} to continue; leave out --continue.")
    return latest


async def find_interrupted_session(store: Store, folder: Path) -> SessionMeta | None:
    """The latest session of a folder if its last turn was interrupted."""
    latest = await store.sessions.find_latest(cwd=str(folder), source="cli")
    return latest if latest is not None and latest.state == "interrupted" else None


def needs_question(runtime: Runtime, stored: SessionMeta, folder: Path) -> bool:
    """Whether the user must decide how this session is resumed: it works in another folder, or is
    open in another terminal."""
    return stored.cwd != str(folder) or runtime.claims.is_taken(stored.id)


async def open_session(
    runtime: Runtime, args: Namespace, folder: Path, stored: SessionMeta | None
) -> Session:
    """The stored session, or a new one in the folder."""
    resume, cwd = ("", folder) if stored is None else (stored.id, None)
    return await runtime.open_session(resume=resume, cwd=cwd, options=make_options(args, runtime))


def make_choice(args: Namespace) -> ModelChoice:
    """The model that the command line names."""
    address = args.base_url, args.api_key_env or "", args.api_mode
    return ModelChoice(args.model, args.provider, *address)


def make_options(args: Namespace, runtime: Runtime) -> Options:
    """What the command line asks of a session beyond the configuration."""
    from hermes.app.agents import Options

    plugin_tools = runtime.plugins.tools if runtime.plugins is not None else ()
    toolsets = None
    if args.toolsets is not None:
        names = [name.strip() for name in args.toolsets.split(",") if name.strip()]
        toolsets = () if names == ["none"] else tuple(names)
    return Options(
        choice=make_choice(args),
        toolsets=toolsets,
        max_turns=args.max_turns,
        yolo=args.yolo,
        allowed_tools=_parse_allowed_tools(args.allowed_tools, plugin_tools),
        record=args.record,
    )


def _parse_allowed_tools(text: str, plugin_tools: Collection[str]) -> tuple[str, ...]:
    """Names of tools, also of plugins and MCP servers, and `terminal:` with the first words of
    commands."""
    from hermes.tools import registry

    names = tuple(name.strip() for name in text.split(",") if name.strip())
    known = {tool for tools in registry.list_toolsets().values() for tool in tools}
    for name in names:
        tool, _, prefix = name.partition(":")
        if tool not in known and tool not in plugin_tools and not tool.startswith("mcp__"):
            raise ConfigError(f"--allowed-tools: {registry.describe_unknown_name(tool)}")
        if (tool == "terminal") != bool(prefix.strip()):
            raise ConfigError(
                f"--allowed-tools: {name!r} is not possible. Commands are allowed by their first "
                'words, as in "terminal:git push"; other tools by their name.'
            )
    return names


async def introduce_model(session: Session, transport: Transport, progress: ProgressLine) -> None:
    """Says which model answers where the user did not choose it, and downloads what it needs."""
    from hermes.cli.terminal.download import ensure_available

    if session.agent.note:
        progress.print_line(f"! {session.agent.note}")
    await ensure_available(session.agent.providers[0].endpoint.base_url, transport)
