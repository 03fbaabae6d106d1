"""Live sessions: the feed of events, messages to a session, stop, approvals and questions."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from hermes.app.live.conversation import LiveConversation
from hermes.app.live.live_session import LiveSession
from hermes.app.live.log_records import LEVELS, RecordFilter, make_filter
from hermes.app.live.stored_queue import QueuedMessage, StoredQueue
from hermes.core.image_size import is_oversized
from hermes.core.lifecycle import run_shielded
from hermes.core.message import Media, Message, Text, clean_message, user_message
from hermes.core.store import SessionMeta
from hermes.core.text import replace_invalid
from hermes.server.dashboard.feed import MAX_WATCHED, Feed
from hermes.server.dashboard.uploads import MAX_PER_TURN, Upload, Uploads
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError, bad_request, not_found
from hermes.server.route import Route, RouteServices, require_dashboard
from hermes.server.session_access import find_current, find_owned, submit_message
from hermes.server.turns.sessions import is_owner
from hermes.server.turns.sse import send_frames
from hermes.tools._files.images import detect_image_type
from hermes.version import VERSION

_WATCHED = re.compile(r"([A-Za-z0-9._:-]{1,256}):(-1|[0-9]{1,8})")
_PICTURES = r"image/(png|jpeg|gif|webp)"
_LONGEST_TEXT = 1_000_000


class TurnBody(Struct):
    client_id: Annotated[str, Meta(min_length=1, max_length=128, pattern="^[!-~]+$")]
    content: Annotated[str, Meta(max_length=_LONGEST_TEXT)]
    uploads: Annotated[list[str], Meta(max_length=MAX_PER_TURN)] = []
    busy: Literal["queue", "steer", "interrupt"] = "queue"


class TurnAnswer(Struct):
    id: str
    state: Literal["running", "queued", "steered"]


class ChangeTurnBody(Struct):
    content: Annotated[str, Meta(min_length=1, max_length=_LONGEST_TEXT)]


class ApprovalBody(Struct):
    choice: Literal["once", "session", "always", "deny"]
    digest: Annotated[str, Meta(min_length=1, max_length=64)]


class AnswerBody(Struct):
    text: Annotated[str, Meta(max_length=_LONGEST_TEXT)] | None = None


class DoneAnswer(Struct):
    done: Literal[True] = True


async def stream_events(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Stream what happens in these sessions: recorded messages, a snapshot, then live events."""
    dashboard, sessions = require_dashboard(services), services.runtime.store.sessions
    watched = _parse_watched(call.request.query.get("watch", ""))
    log_filter = _parse_log_level(call)
    for session_id in watched:
        meta = await sessions.get_meta(session_id)
        if meta is None or not is_owner(call.principal, meta):
            missing = not_found("session", session_id)
            missing.extra = {"session": session_id}  # a page goes on without it
            raise missing

    async def is_signed_in() -> bool:
        return not call.is_browser or await dashboard.is_signed_in(call.request)

    feed = Feed(
        dashboard.live,
        sessions,
        watched,
        tenant=call.principal.tenant,
        may_see=partial(is_owner, call.principal),
        describe=dashboard.describe_listed,
        is_signed_in=is_signed_in,
    )
    dashboard.add_feed(feed, call.request)
    hello = {"version": VERSION, "assets": dashboard.assets.hash}
    try:
        if call.principal.is_admin:
            await dashboard.news.add_reader(feed, log_filter)
        frames = feed.stream_frames(hello)
        return await send_frames(call.request, services.settings.cors_origins, frames)
    finally:
        dashboard.feeds.discard(feed)
        dashboard.news.remove_reader(feed)


def _parse_log_level(call: ApiCall) -> RecordFilter | None:
    level = call.request.query.get("logs", "")
    if not level:
        return None
    if not call.principal.is_admin:
        raise ApiError(403, "This key does not have the scope admin.", code="scope")
    if level not in LEVELS:
        raise bad_request(f"logs must be one of {', '.join(LEVELS)}.", "logs")
    return make_filter(level, "")


def _parse_watched(text: str) -> dict[str, int]:
    parts = [part for part in text.split(",") if part]
    if len(parts) > MAX_WATCHED:
        raise bad_request(f"At most {MAX_WATCHED} sessions can be watched.", "watch")
    found = [_WATCHED.fullmatch(part) for part in parts]
    if not all(found):
        raise bad_request("watch is a list of ID:SEQ, with commas.", "watch")
    return {match[1]: int(match[2]) for match in found if match}


async def send_message(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Send a message to a session; repeated with the same client_id it is the same turn."""
    body = call.decode_body(TurnBody)
    meta, taking = await find_current(call, services), require_dashboard(services).taking
    sent_id = f"{meta.id}/{body.client_id}"
    if sent_id not in taking:
        taking[sent_id] = asyncio.ensure_future(_take_message(call, services, meta, body, sent_id))
        taking[sent_id].add_done_callback(lambda _: taking.pop(sent_id))
    # What was begun is finished although the client is gone: it sends again, and must find it.
    answer, cancelled = await run_shielded(taking[sent_id])
    if cancelled is not None:
        raise cancelled
    return json_response(answer, 202)


async def _take_message(
    call: ApiCall, services: RouteServices, meta: SessionMeta, body: TurnBody, sent_id: str
) -> TurnAnswer:
    queue = StoredQueue(services.runtime.store.objects)
    if known := await queue.find_send(sent_id):
        return TurnAnswer(*known)
    uploads, placed = require_dashboard(services).uploads, list[Path]()
    files = [_find_upload(call, uploads, upload_id) for upload_id in body.uploads]
    if not body.content.strip() and not files:
        raise bad_request("content is empty.", "content")
    try:
        message = await asyncio.to_thread(_build_message, body.content, files, meta, placed)
        item = QueuedMessage(f"t_{secrets.token_hex(8)}", message, sent_id=sent_id)
        state = await submit_message(call.principal, services, meta, item, body.busy)
    except Exception as error:
        await asyncio.to_thread(_remove_files, placed)  # what was attached can be sent again
        if isinstance(error, OSError):
            text = f"The attached files cannot be put into {meta.cwd}: {error.strerror}."
            raise ApiError(409, f"{text} Nothing was sent.", code="not_writable") from None
        raise
    await queue.record_send(item, state)
    await asyncio.to_thread(uploads.remove_files, files)
    return TurnAnswer(item.id, state)


def _find_upload(call: ApiCall, uploads: Uploads, upload_id: str) -> Upload:
    found = uploads.find_file(call.principal.name, upload_id)
    if found is None:
        raise bad_request("This file is no longer there. Attach it again.", "uploads")
    return found


def _build_message(
    content: str, files: list[Upload], meta: SessionMeta, placed: list[Path]
) -> Message:
    """Pictures go to the model; other files to the session's folder (added to `placed`), whose
    path it is told."""
    media: list[Media] = []
    lines: list[str] = []
    for upload in files:
        data = upload.file.read_bytes()
        if (mime := detect_image_type(data)) and not is_oversized(data):
            media.append(Media(mime, data, name=upload.name))
        else:
            target = Path(meta.cwd) / f"upload-{secrets.token_hex(4)}{_safe_suffix(upload.name)}"
            _write_file(target, data)
            placed.append(target)
            lines.append(f"[Attached file {replace_invalid(upload.name)!r}: {target}]")
    text = "\n\n".join(filter(None, (content, "\n".join(lines))))
    return clean_message(user_message(text, *media))


def _safe_suffix(name: str) -> str:
    found = re.search(r"\.[A-Za-z0-9]{1,8}\Z", name)
    return found[0].lower() if found else ""


def _write_file(target: Path, data: bytes) -> None:
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(data)


def _remove_files(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


async def change_turn(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Change a message that waits."""
    body = call.decode_body(ChangeTurnBody)
    if not body.content.strip():
        raise bad_request("content is empty.", "content")
    return await _change_queue(call, services, body.content)


async def remove_turn(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Remove a message that waits."""
    return await _change_queue(call, services, None)


async def _change_queue(
    call: ApiCall, services: RouteServices, content: str | None
) -> web.StreamResponse:
    meta = await find_current(call, services)
    conversations = require_dashboard(services).live.conversations
    found: LiveConversation | None = conversations.find_conversation(meta.id)
    if found is None or not await found.change_message(call.path_params["turn"], content):
        raise ApiError(409, "This message no longer waits; nothing was changed.", code="started")
    return json_response(DoneAnswer())


async def stop_turn(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Stop the running turn; what it has written is kept."""
    meta = await find_current(call, services)
    live = require_dashboard(services).live.find_session(meta.id)
    if live is None or not live.session.is_busy:
        raise ApiError(409, "No turn of this session runs here.", code="not_running")
    live.session.interrupt()
    return json_response(DoneAnswer())


async def answer_approval(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Allow or deny what waits for approval; the digest says what was shown."""
    body = call.decode_body(ApprovalBody)
    live = await _find_live(call, services)
    choice = body.choice
    if choice == "always" and not call.principal.may_save_rules:
        choice = "session"
    asked, by = call.path_params["asked"], call.principal.name
    if not live.answer_approval(asked, choice, body.digest, by):
        text = "This approval is no longer open, or it changed. Nothing was approved."
        raise ApiError(409, text, code="not_open")
    return json_response(DoneAnswer())


async def answer_question(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Answer a question of the agent, or decline it."""
    body = call.decode_body(AnswerBody)
    live = await _find_live(call, services)
    if not live.answer_question(call.path_params["asked"], body.text, call.principal.name):
        raise ApiError(409, "This question is no longer open.", code="not_open")
    return json_response(DoneAnswer())


async def _find_live(call: ApiCall, services: RouteServices) -> LiveSession:
    meta = await find_current(call, services)
    live = require_dashboard(services).live.find_session(meta.id)
    if live is None:
        raise ApiError(409, "Nothing of this session waits here.", code="not_open")
    return live


async def get_media(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get a picture or file of a message."""
    meta = await find_owned(call, services)
    part = await _find_part(call, services, meta.id)
    if not isinstance(part, Media) or not part.data:
        raise not_found("file", call.path_params["part"])
    mime = part.mime if re.fullmatch(_PICTURES, part.mime) else ""
    return web.Response(
        body=part.data, content_type=mime or "application/octet-stream", headers=_ATTACHMENT
    )


async def _find_part(call: ApiCall, services: RouteServices, session_id: str) -> Any:
    seq, n = call.path_params["seq"], call.path_params["part"]
    if not (seq.isascii() and seq.isdigit() and n.isascii() and n.isdigit() and len(seq) < 9):
        raise not_found("message", seq)
    found = await services.runtime.store.sessions.load_window(
        session_id, after=int(seq) - 1, limit=1, last=False
    )
    parts = found[0].message.parts if found and found[0].seq == int(seq) else ()
    return parts[int(n)] if len(n) < 6 and int(n) < len(parts) else None


async def get_result(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get the whole result of a tool call, as text."""
    meta, wanted = await find_owned(call, services), call.path_params["call"]
    async for stored in services.runtime.store.sessions.stream_messages(meta.id):
        for part in stored.message.parts:
            if getattr(part, "call_id", "") == wanted:
                text = "".join(p.text for p in part.content if isinstance(p, Text))  # type: ignore[union-attr]
                return web.Response(text=text, content_type="text/plain", headers=_ATTACHMENT)
    raise not_found("result", wanted)


async def get_outline(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the messages of the user, shortened, with their places."""
    meta = await find_owned(call, services)
    rows = [
        {"seq": s.seq, "text": " ".join(s.message.text.split())[:120], "created_at": s.created}
        async for s in services.runtime.store.sessions.stream_messages(meta.id)
        if s.message.role == "user" and s.message.kind == "normal"
    ]
    return json_response({"object": "list", "data": rows})


async def export_session(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get a conversation as a file, without secrets."""
    from hermes.app.live.session_export import export_lines
    from hermes.core.redaction.redactor import Redactor

    chosen = call.request.query.get("format", "markdown")
    if chosen not in _EXPORTS:
        raise bad_request(f"format must be one of {', '.join(_EXPORTS)}.", "format")
    meta, runtime = await find_owned(call, services), services.runtime
    redactor = Redactor(runtime.setup.secrets.redactable_values())
    lines = [line async for line in export_lines(runtime.store, meta, redactor, chosen)]
    ending, mime = _EXPORTS[chosen]
    name = f'attachment; filename="hermes-{meta.id}.{ending}"'
    headers = {**_ATTACHMENT, "Content-Disposition": name, "Content-Security-Policy": _INERT}
    return web.Response(text="\n".join(lines), content_type=mime, headers=headers)


async def upload_file(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Attach a file; the next message can take it."""
    from urllib.parse import unquote

    name = replace_invalid(unquote(call.request.headers.get("X-File-Name", "")))
    name = "".join(c for c in name.replace("\\", "/").rpartition("/")[2] if c.isprintable())[:200]
    mime = call.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    is_claimed = re.fullmatch(_PICTURES, mime)
    if is_claimed or not re.fullmatch(r"[\w.+-]{1,60}/[\w.+-]{1,80}", mime):
        mime = "application/octet-stream"
    mime = detect_image_type(call.body) or mime
    uploads = require_dashboard(services).uploads
    saved = uploads.save_file(call.principal.name, name or "file", mime, call.body)
    data = {"id": saved.id, "name": saved.name, "mime": saved.mime, "bytes": saved.bytes}
    return json_response(data, 201)


_EXPORTS = {
    "markdown": ("md", "text/markdown"),
    "json": ("json", "application/json"),
    "jsonl": ("jsonl", "application/x-ndjson"),
    "html": ("html", "text/html"),
}
_INERT = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_ATTACHMENT = {"Content-Disposition": "attachment", "Cache-Control": "no-store"}
_ONE = "/api/sessions/{id}"
_post = partial(Route, "POST", scope="sessions", errors=(404, 409))
_get = partial(Route, "GET", scope="sessions", errors=(404,))
ROUTES = (
    _get(
        "/api/events", stream_events, "events", media="text/event-stream", query=("watch", "logs")
    ),
    _post(f"{_ONE}/turns", send_message, "turn_send", TurnAnswer, TurnBody, status=202),
    Route(
        "PATCH",
        f"{_ONE}/turns/{{turn}}",
        change_turn,
        "turn_change",
        DoneAnswer,
        ChangeTurnBody,
        scope="sessions",
        errors=(404, 409),
    ),
    Route(
        "DELETE",
        f"{_ONE}/turns/{{turn}}",
        remove_turn,
        "turn_remove",
        DoneAnswer,
        scope="sessions",
        errors=(404, 409),
    ),
    _post(f"{_ONE}/stop", stop_turn, "turn_stop", DoneAnswer),
    Route(
        "POST",
        f"{_ONE}/approvals/{{asked}}",
        answer_approval,
        "approval_answer",
        DoneAnswer,
        ApprovalBody,
        scope="approve",
        errors=(404, 409),
    ),
    _post(
        f"{_ONE}/questions/{{asked}}", answer_question, "question_answer", DoneAnswer, AnswerBody
    ),
    _get(f"{_ONE}/media/{{seq}}/{{part}}", get_media, "session_media", media="image/png"),
    _get(f"{_ONE}/results/{{call}}", get_result, "session_result", media="text/plain"),
    _get(f"{_ONE}/outline", get_outline, "session_outline"),
    _get(
        f"{_ONE}/export",
        export_session,
        "session_export",
        media="text/markdown",
        query=("format",),
    ),
    Route(
        "POST",
        "/api/uploads",
        upload_file,
        "upload",
        scope="sessions",
        status=201,
        raw_body=True,
        headers=("X-File-Name",),
    ),
)
