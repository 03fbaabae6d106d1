"""Work on a session: answer again, undo, compress; its changes, files, checkpoints and trace."""

from __future__ import annotations

import asyncio
import re
import secrets
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from hermes.app.commands import CommandContext, Reply, run_command
from hermes.app.live.conversation import LiveConversation
from hermes.app.live.stored_queue import QueuedMessage
from hermes.app.live.turn_trace import TurnTrace
from hermes.app.session_records import (
    find_checkpoint_since,
    has_folder,
    locate_outputs,
    strip_label_mark,
)
from hermes.core.errors import ConfigError, HermesError, ToolError
from hermes.core.lifecycle import run_shielded
from hermes.core.store import SessionMeta
from hermes.core.tool import SandboxMode, Workspace
from hermes.exec.snapshots.checkpoints import (
    diff_checkpoint,
    list_checkpoints,
    restore_checkpoint,
)
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError, bad_request, not_found
from hermes.server.http.response_schemas import ObjectList
from hermes.server.route import Route, RouteServices, require_dashboard
from hermes.server.session_access import (
    find_current,
    find_owned,
    hold_conversation,
    submit_message,
)
from hermes.tools._files.boundary import may_read
from hermes.tools._files.paths import check_access, open_file, resolve_path
from hermes.tools._files.walk import walk_files
from hermes.tools.registry import select_tools

_SURFACE = "web"
_MAX_TURNS = 200
_MAX_FILES = 50
_MAX_WALKED = 20_000
_FILE_START = re.compile(r"^diff --git ", re.MULTILINE)
_QUOTED_NAME = re.compile(r'"a/((?:[^"\\]|\\.)*)"')


class UndoBody(Struct):
    turns: Annotated[int, Meta(ge=1, le=1000)] = 1
    dry_run: bool = False
    """Whether only to say what would be undone."""


class CompressBody(Struct):
    focus: Annotated[str, Meta(max_length=1000)] = ""
    """What the summary must keep above all."""


class WorkAnswer(Struct):
    session: str
    """Where the conversation goes on."""
    text: str
    turn: str | None = None
    """The id of the turn that was started."""


async def retry_turn(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Answer the last message again, in a new session; the old one stays as it is."""
    reply, child = await _run_in_session(call, services, "retry", "")
    assert reply.submit is not None
    item = QueuedMessage(f"t_{secrets.token_hex(8)}", reply.submit)
    meta = await services.runtime.store.sessions.get_meta(child)
    if meta is None:
        raise not_found("session", child)
    await run_shielded(submit_message(call.principal, services, meta, item))
    return json_response(WorkAnswer(child, reply.text, item.id), 202)


async def undo_turns(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Undo the last turns, messages and file changes together; the old session stays."""
    body = call.decode_optional_body(UndoBody)
    words = f"{body.turns} yes" if not body.dry_run else str(body.turns)
    reply, child = await _run_in_session(call, services, "undo", words)
    return json_response(WorkAnswer(child, reply.text))


async def compress_session(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Summarise the older part of the conversation, which then goes on in another session."""
    body = call.decode_optional_body(CompressBody)
    reply, session_id = await _run_in_session(call, services, "compress", body.focus)
    return json_response(WorkAnswer(session_id, reply.text))


async def _run_in_session(
    call: ApiCall, services: RouteServices, name: str, args: str
) -> tuple[Reply, str]:
    """Run a slash command; its reply, and the session with which the conversation goes on."""
    meta = await find_current(call, services)
    async with hold_conversation(call.principal, services, meta) as (conversation, _):
        reply = await _run_command(call, services, conversation, name, args)
        if (live := require_dashboard(services).live.find_session(meta.id)) is not None:
            live.follow_session()
        if reply.session is None:
            return reply, conversation.session.id
        await reply.session.close()
        return reply, reply.session.id


async def _run_command(
    call: ApiCall, services: RouteServices, conversation: LiveConversation, name: str, args: str
) -> Reply:
    if conversation.is_running:
        raise ApiError(409, "A turn of this session is running. Stop it first.", code="busy")
    session, is_admin = conversation.session, call.principal.is_admin
    context = CommandContext(services.runtime, session, _SURFACE, is_admin)
    try:
        return await run_command(context, name, args)
    except ConfigError as error:
        raise ApiError(409, services.turns.redact(str(error)), code="refused") from None
    except HermesError as error:
        text = f"{services.turns.redact(str(error))} Nothing was changed."
        raise ApiError(409, text, code="refused") from None


async def get_changes(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get what has changed in the folder since the session first changed a file."""
    meta, home = await find_current(call, services), services.runtime.setup.home
    _require_reading(call, services)
    store, diff = services.runtime.store, ""
    if has_folder(meta):
        length = meta.messages
        since = await find_checkpoint_since(store, home, meta, index=0, length=length)
        if since is not None:
            diff = await _run_snapshot(diff_checkpoint(Path(meta.cwd), home, since.id))
    return json_response({"files": _list_files(diff), "diff": services.turns.redact(diff)})


def _list_files(diff: str) -> list[dict[str, Any]]:
    rows = []
    for part in _FILE_START.split(diff)[1:]:
        head, _, body = part.partition("\n@@")
        lines = body.split("\n")
        state = "changed"
        if "\nnew file mode " in head:
            state = "added"
        elif "\ndeleted file mode " in head:
            state = "removed"
        rows.append(
            {
                "path": _read_name(head.partition("\n")[0]),
                "state": state,
                "added": sum(line.startswith("+") for line in lines),
                "removed": sum(line.startswith("-") for line in lines),
            }
        )
    return rows


def _read_name(names: str) -> str:
    """The name in `a/NAME b/NAME`, as the system knows it: git quotes those with a quote or a
    control character."""
    if quoted := _QUOTED_NAME.match(names):
        written = quoted[1].encode().decode("unicode_escape").encode("latin-1")
        return written.decode("utf-8", "replace")
    return names[2 : len(names) // 2]


async def _run_snapshot(work: Any) -> Any:
    try:
        return await work
    except ToolError as error:
        raise ApiError(409, f"{error} Nothing was changed.", code="refused") from None


def _require_reading(call: ApiCall, services: RouteServices) -> None:
    """403 unless sessions of this principal have the tool that reads files."""
    if call.principal.is_operator:
        return
    settings = services.runtime.setup.config.tools
    toolsets = services.turns.sessions.choose_options(call.principal).toolsets
    tools = select_tools(toolsets, platform="api", settings=settings)
    if "read_file" not in tools:
        raise ApiError(403, "Your sessions cannot read files.", code="scope")


async def get_file(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get a file that the session's tools may read."""
    meta = await find_current(call, services)
    _require_reading(call, services)
    wanted = call.request.query.get("path", "")
    if not wanted or len(wanted) > 4096:
        raise bad_request("path is required.", "path")
    workspace = await _build_workspace(call, services, meta)
    limit = require_dashboard(services).settings.max_upload_mb << 20
    try:
        data, name = await asyncio.to_thread(_read_file, wanted, workspace, limit)
    except FileNotFoundError:
        raise ApiError(404, f"There is no file {wanted[:200]}.", code="file_not_found") from None
    except (ToolError, OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ApiError(403, f"The file cannot be read: {reason}", code="not_readable") from None
    quoted = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:120]
    headers = {
        "Content-Disposition": f'attachment; filename="{quoted}"',
        "Cache-Control": "no-store",
    }
    return web.Response(body=data, content_type="application/octet-stream", headers=headers)


async def list_files(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List files of a session's folder whose path contains a text, those nearest to it first;
    without a session, of the folder where new ones begin."""
    query, runtime = call.request.query, services.runtime
    _require_reading(call, services)
    if wanted := query.get("session", ""):
        meta = await find_current(call, services, wanted)
        workspace = await _build_workspace(call, services, meta)
    else:
        folder = services.turns.sessions.open_working_folder(call.principal)
        home = runtime.setup.home
        workspace = Workspace(folder, home, home, sandbox=_choose_mode(call, services))
    words = query.get("q", "")[:200].casefold()
    rows = await asyncio.to_thread(_find_files, workspace, words)
    return json_response(ObjectList("list", [{"path": path} for path in rows]))


def _find_files(workspace: Workspace, words: str) -> list[str]:
    names = islice(walk_files(workspace.cwd, workspace), _MAX_WALKED)
    found = [name for name in names if words in name.casefold()]
    return sorted(found, key=lambda name: _rank_file(name.casefold(), words))[:_MAX_FILES]


def _rank_file(name: str, words: str) -> tuple[bool, bool, int, str]:
    base = name.rpartition("/")[2]
    return not name.startswith(words), not base.startswith(words), name.count("/"), name


async def _build_workspace(call: ApiCall, services: RouteServices, meta: SessionMeta) -> Workspace:
    runtime = services.runtime
    live = require_dashboard(services).live.find_session(meta.id)
    if live is not None:
        return live.session.host.workspace
    home = runtime.setup.home
    outputs = await locate_outputs(runtime.store, home, meta)
    return Workspace(Path(meta.cwd), home, outputs, sandbox=_choose_mode(call, services))


def _choose_mode(call: ApiCall, services: RouteServices) -> SandboxMode:
    """What files can be seen; a tenant never sees those of others."""
    if call.principal.tenant:
        return "workspace-write"
    return services.runtime.setup.config.sandbox.mode


def _read_file(wanted: str, workspace: Workspace, limit: int) -> tuple[bytes, str]:
    path = resolve_path(wanted, workspace.cwd)
    check_access(path, workspace, write=False)
    if not may_read(path, workspace):
        raise ToolError(f"{path} is outside the folder of the session.")
    with open_file(path, workspace) as (file, status):
        if status.st_size > limit:
            raise ToolError(f"{path} is larger than {limit >> 20} MB.")
        return file.read(limit + 1)[:limit], path.name


async def list_saved_states(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the checkpoints of the session's folder, the latest first."""
    meta = await find_current(call, services)
    _require_operator(call)
    found = await list_checkpoints(Path(meta.cwd), services.runtime.setup.home)
    names = ("id", "created", "files", "bytes", "skipped")
    data = [
        {**{n: getattr(c, n) for n in names}, "label": strip_label_mark(c.label)} for c in found
    ]
    return json_response(ObjectList("list", data))


async def restore_saved_state(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Restore the files of a checkpoint; the present state is saved first."""
    meta, home = await find_current(call, services), services.runtime.setup.home
    _require_operator(call)
    live = require_dashboard(services).live.find_session(meta.id)
    if live is not None and live.session.is_busy:
        raise ApiError(409, "A turn of this session is running. Stop it first.", code="busy")
    wanted, folder = call.path_params["checkpoint"], Path(meta.cwd)
    if all(made.id != wanted for made in await list_checkpoints(folder, home)):
        raise not_found("checkpoint", wanted)
    done = await _run_snapshot(restore_checkpoint(folder, home, wanted))
    return json_response(to_builtins(done))


def _require_operator(call: ApiCall) -> None:
    """Checkpoints are of the folder, which other sessions share."""
    if not call.principal.is_admin:
        raise ApiError(403, "This key does not have the scope admin.", code="scope")


async def get_trace(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get how the latest turns spent their time: calls of models and tools."""
    meta, store = await find_owned(call, services), services.runtime.store
    messages = [
        stored
        async for stored in store.sessions.stream_messages(
            meta.id, after=meta.messages - _MAX_TURNS * 10 - 1
        )
    ]
    since = messages[0].created if messages else meta.created
    calls = await store.ledger.list_calls(meta.id, since - 1)
    turns = TurnTrace(messages, calls).describe()[-_MAX_TURNS:]
    return json_response({"turns": turns})


_ONE = "/api/sessions/{id}"
_get = partial(Route, "GET", scope="sessions", errors=(404,))
_post = partial(Route, "POST", scope="sessions", errors=(404, 409), body_optional=True)
ROUTES = (
    _post(f"{_ONE}/retry", retry_turn, "turn_retry", WorkAnswer, status=202),
    _post(f"{_ONE}/undo", undo_turns, "turn_undo", WorkAnswer, UndoBody),
    _post(f"{_ONE}/compress", compress_session, "session_compress", WorkAnswer, CompressBody),
    _get(f"{_ONE}/changes", get_changes, "session_changes"),
    _get(
        f"{_ONE}/file", get_file, "session_file", media="application/octet-stream", query=("path",)
    ),
    _get("/api/files", list_files, "files", ObjectList, query=("session", "q")),
    _get(f"{_ONE}/checkpoints", list_saved_states, "checkpoints", ObjectList),
    _post(f"{_ONE}/checkpoints/{{checkpoint}}/restore", restore_saved_state, "checkpoint_restore"),
    _get(f"{_ONE}/trace", get_trace, "session_trace"),
)
