"""The tools of the agent for MCP clients, over standard input and output or over HTTP."""

import asyncio
import base64
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, ImageContent, InputRequiredResult, TextContent
from msgspec import json
from typing_extensions import override

from hermes.app.runtime import Runtime
from hermes.config.api_server import ApiServer
from hermes.core.errors import HermesError
from hermes.server.http.errors import ApiError
from hermes.server.http.principals import Principals, load_keys
from hermes.server.mcp.served_sessions import Decision, ServedSessions
from hermes.server.mcp.stored_conversations import MAX_ROWS, StoredConversations
from hermes.version import VERSION

log = logging.getLogger(__name__)

SendMessage: TypeAlias = Callable[[str, str], Awaitable[str]]
"""Puts a text into the outbox of `platform:chat`; what became of it."""
ListChannels: TypeAlias = Callable[[], Awaitable[list[dict[str, str]]]]
_MAX_WAIT = 300.0
_MAX_ATTACHMENTS = 10 * 1024 * 1024
_INSTRUCTIONS = "Conversations of a Hermes agent, and the agent itself (agent_ask)."


class AgentMcpServer(MCPServer):
    """Answers a call that cannot be made with the same object as one that failed."""

    @override
    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context | None = None
    ) -> CallToolResult | InputRequiredResult:
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error, UnexpectedToolError):
                log.exception("the tool %s failed", name)
            return _build_failure(_describe_problem(error))


def build_agent_server(runtime: Runtime, channels: ListChannels, send: SendMessage) -> MCPServer:
    """The server with all its tools."""
    server = AgentMcpServer("hermes", version=VERSION, instructions=_INSTRUCTIONS)
    sessions = ServedSessions(runtime)
    _add_reading_tools(server, StoredConversations(runtime.store))
    _add_live_tools(server, sessions)
    _add_channel_tools(server, channels, send)
    return server


def _add_reading_tools(server: MCPServer, stored: StoredConversations) -> None:
    tool = server.tool

    @tool(structured_output=False, description="List conversations, the latest first.")
    async def conversations_list(limit: int = 50, source: str = "") -> CallToolResult:
        return await _answer("conversations", stored.list_recent(limit, source))

    @tool(structured_output=False, description="Describe one conversation.")
    async def conversation_get(session_id: str) -> CallToolResult:
        return await _answer("conversation", stored.describe(session_id))

    @tool(structured_output=False, description="Read messages behind number `after`.")
    async def messages_read(session_id: str, after: int = -1, limit: int = 50) -> CallToolResult:
        return await _answer("messages", stored.read_messages(session_id, after, limit))

    @tool(structured_output=False, description="Fetch the images of one message.")
    async def attachments_fetch(session_id: str, message: int) -> CallToolResult:
        try:
            found = await stored.find_media(session_id, message)
        except HermesError as error:
            return _build_failure(str(error))
        rows = [{"mime": m.mime, "bytes": len(m.data), "url": m.url} for m in found]
        images: list[ImageContent] = []
        size = 0
        for media in found:
            size += len(media.data)
            if media.data and media.mime.startswith("image/") and size <= _MAX_ATTACHMENTS:
                data = base64.b64encode(media.data).decode()
                images.append(ImageContent(data=data, mime_type=media.mime))
        return _build_result({"ok": True, "attachments": rows}, *images)


def _add_live_tools(server: MCPServer, sessions: ServedSessions) -> None:
    tool = server.tool

    @tool(structured_output=False, description="Events behind a cursor, at once.")
    async def events_poll(after: int = 0, limit: int = MAX_ROWS) -> CallToolResult:
        return await _answer("", sessions.list_events(after, min(limit, MAX_ROWS)))

    @tool(structured_output=False, description="Wait for events behind a cursor.")
    async def events_wait(
        after: int = 0, timeout: float = 30.0, limit: int = MAX_ROWS
    ) -> CallToolResult:
        seconds = min(timeout, _MAX_WAIT)
        return await _answer("", sessions.wait_for_events(after, seconds, min(limit, MAX_ROWS)))

    @tool(structured_output=False, description="List what waits for somebody's permission.")
    async def permissions_list_open() -> CallToolResult:
        return _build_result({"ok": True, "permissions": sessions.list_permissions()})

    @tool(structured_output=False, description="Answer a request for permission.")
    async def permissions_respond(id: str, decision: Decision) -> CallToolResult:
        async def respond() -> dict[str, Any]:
            sessions.answer_permission(id, decision)
            return {"id": id, "decision": decision}

        return await _answer("", respond())

    @tool(structured_output=False, description="Ask the agent; continue with session_id.")
    async def agent_ask(prompt: str, session_id: str = "") -> CallToolResult:
        return await _answer("", sessions.ask_agent(prompt, session_id))


def _add_channel_tools(server: MCPServer, channels: ListChannels, send: SendMessage) -> None:
    tool = server.tool

    @tool(structured_output=False, description="List the chats that messages can be sent to.")
    async def channels_list() -> CallToolResult:
        return await _answer("channels", channels())

    @tool(structured_output=False, description="Send a text to a chat of channels_list.")
    async def messages_send(target: str, text: str) -> CallToolResult:
        return await _answer("status", send(target, text))


async def _answer(name: str, work: Awaitable[Any]) -> CallToolResult:
    """One JSON object: what the work returned, under this name; or its error."""
    try:
        found = await work
    except HermesError as error:
        return _build_failure(str(error))
    return _build_result({"ok": True, **({name: found} if name else found)})


def _build_failure(error: str) -> CallToolResult:
    return _build_result({"ok": False, "error": error})


def _build_result(value: dict[str, Any], *images: ImageContent) -> CallToolResult:
    text = TextContent(text=json.encode(value).decode())
    return CallToolResult(content=[text, *images], is_error=not value["ok"])


def _describe_problem(error: ToolError) -> str:
    """Why a call could not be made, in one line."""
    list_errors = getattr(error.__cause__, "errors", None)
    if list_errors is None:
        return str(error)
    found = (f"{'.'.join(map(str, row['loc']))}: {row['msg']}" for row in list_errors())
    return f"Invalid arguments: {'; '.join(found)}."


async def serve_http(
    server: MCPServer,
    settings: ApiServer,
    runtime: Runtime,
    announce: Callable[[str], None],
    stop: asyncio.Event,
) -> None:
    """Serve /mcp until `stop`; only for the operator, on this machine or with the key."""
    import uvicorn

    class QuietServer(uvicorn.Server):
        """Leaves signals to the program."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    principals = Principals(settings, load_keys(settings, runtime.setup.secrets))
    names = [settings.host, "127.0.0.1", "localhost", "[::1]", *settings.allowed_hosts]
    hosts = [f"{name}:*" for name in names]
    app = server.streamable_http_app(
        host=settings.host,
        transport_security=TransportSecuritySettings(
            allowed_hosts=[*hosts, *names],
            allowed_origins=[*settings.cors_origins, *(f"http://{host}" for host in hosts)],
        ),
    )
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen()
        config = uvicorn.Config(
            _OperatorOnly(app, principals), log_config=None, access_log=False, lifespan="on"
        )
        web = QuietServer(config)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        announce(f"http://{host}:{listener.getsockname()[1]}/mcp")
        serving = asyncio.ensure_future(web.serve(sockets=[listener]))
        waiting = asyncio.ensure_future(stop.wait())
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        web.should_exit = web.force_exit = True
        await serving


class _OperatorOnly:
    """Lets only the operator through: with the key, or as the user who runs the server."""

    def __init__(self, app: Any, principals: Principals) -> None:
        self._app = app
        self._principals = principals

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given = [v.decode("latin-1") for k, v in scope["headers"] if k == b"authorization"]
            ends = {"peername": scope.get("client"), "sockname": scope.get("server")}
            try:
                principal = self._principals.identify(given, asyncio.BaseTransport(ends))
                if principal.name:
                    raise ApiError(403, "Only the key of the operator may use this server.")
            except ApiError as error:
                await _refuse(send, error)
                return
        await self._app(scope, receive, send)


async def _refuse(send: Any, error: ApiError) -> None:
    more = {"Content-Type": "application/json", **error.headers}
    headers = [(name.lower().encode(), value.encode()) for name, value in more.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": error.encode_envelope()})
