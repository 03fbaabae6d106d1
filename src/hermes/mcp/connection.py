"""One connection to a server, from its handshake to its end, on top of the MCP library."""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
from mcp import Client, MCPError
from mcp.client.auth import OAuthFlowError
from mcp.client.session import ClientRequestContext
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    GetPromptResult,
    Implementation,
    ListRootsResult,
    Root,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct

from hermes.config.env import build_server_env
from hermes.core.errors import HermesError, ToolError
from hermes.core.lifecycle import run_shielded
from hermes.core.tool import ToolResult, UserQuestion, nobody_answers
from hermes.mcp.definitions import (
    MAX_DESCRIPTION,
    MAX_TOOLS,
    ToolDefinition,
    is_too_large,
)
from hermes.mcp.elicitation import answer_elicitation
from hermes.mcp.failures import (
    BrokenConnection,
    LoginFailed,
    LoginNeeded,
    ServerUnavailable,
    SessionEnded,
)
from hermes.mcp.http_transport import open_http_streams
from hermes.mcp.oauth import BrowserLogin, locate_login, make_auth
from hermes.mcp.piped_process import PipedProcess
from hermes.mcp.results import convert_prompt, convert_resource, convert_result, describe_resources
from hermes.mcp.server_config import ServerConfig
from hermes.mcp.server_log import ServerLog
from hermes.mcp.stdio_transport import MAX_MESSAGE, StdioTransport
from hermes.version import VERSION

log = logging.getLogger(__name__)
# It logs failures with their tracebacks before it raises them.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL)
_MAX_PAGES = 100
_MAX_NAME = 200
_BROKEN = ("Connection closed", "SSE stream ")
"""How the library's errors begin when a connection breaks."""
_SESSION_ENDED = "Session terminated"
T = TypeVar("T")


class ConnectionEvents(Struct, frozen=True):
    """Whom a connection tells what."""

    tools_changed: Callable[[], None]
    """The server has other tools than before."""
    find_person: Callable[[], UserQuestion] = lambda: nobody_answers
    """Who can answer a question of the server now."""
    pause_clock: Callable[[], AbstractAsyncContextManager[None]] | None = None
    """Holds the time limit of the running call while a person thinks."""


class ServerConnection:
    """Never repaired: a broken one is replaced."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    @property
    def version(self) -> str:
        """The revision of the protocol."""
        return self._client.protocol_version

    async def list_tools(self) -> list[ToolDefinition]:
        """The tools of the server, the first of each name; those with a schema that is too large
        are left out."""
        if self._client.server_capabilities.tools is None:
            return []
        found = await self._read_pages(
            lambda cursor: self._client.list_tools(cursor=cursor, cache_mode="refresh"),
            lambda page: page.tools,
        )
        tools: dict[str, ToolDefinition] = {}
        for tool in found:
            if tool.name and not is_too_large(tool.input_schema):
                tools.setdefault(tool.name[:_MAX_NAME], _convert_tool(tool))
        return list(tools.values())

    async def call_tool(
        self, name: str, arguments: dict[str, Any], show: Callable[[str], None]
    ) -> ToolResult:
        async def report_progress(
            progress: float, total: float | None, message: str | None
        ) -> None:
            share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            show(f"{share} {message or ''}".strip() + "\n")

        return convert_result(
            await self._guard_request(
                self._client.call_tool(name, arguments, progress_callback=report_progress)
            )
        )

    async def list_resources(self) -> list[dict[str, str]]:
        """The resources of the server, and the templates for the addresses of others."""
        if self._client.server_capabilities.resources is None:
            return []
        found = await self._read_pages(
            lambda cursor: self._client.list_resources(cursor=cursor), lambda page: page.resources
        )
        templates = await self._read_pages(
            lambda cursor: self._client.list_resource_templates(cursor=cursor),
            lambda page: page.resource_templates,
        )
        return describe_resources([*found, *templates])

    async def read_resource(self, uri: str) -> ToolResult:
        return convert_resource(await self._guard_request(self._client.read_resource(uri)))

    async def list_prompts(self) -> list[str]:
        if self._client.server_capabilities.prompts is None:
            return []
        found = await self._read_pages(
            lambda cursor: self._client.list_prompts(cursor=cursor), lambda page: page.prompts
        )
        return [prompt.name for prompt in found]

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> str:
        """The text of a prompt with these arguments."""
        found: GetPromptResult = await self._guard_request(self._client.get_prompt(name, arguments))
        return convert_prompt(found)

    async def watch_changes(self, changed: Callable[[], None]) -> None:
        """Follow changes to the tools; only new servers need to be asked for them."""
        if self.version not in MODERN_PROTOCOL_VERSIONS:
            return
        tools = self._client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        try:
            async with self._client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    changed()
        except (MCPError, OSError, TimeoutError) as error:
            log.info("MCP %s does not report changes: %s", self._name, error)

    async def _read_pages(
        self, read: Callable[[str | None], Awaitable[Any]], pick: Callable[[Any], list[Any]]
    ) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self._guard_request(read(cursor))
            found += pick(page)
            if page.next_cursor in ("", None, cursor) or len(found) >= MAX_TOOLS:
                break
            cursor = page.next_cursor
        return found[:MAX_TOOLS]

    async def _guard_request(self, request: Awaitable[T]) -> T:
        """Await an answer; every failure is an error with a sentence, or BrokenConnection."""
        try:
            return await request
        except MCPError as error:
            if _has_broken(error):
                raise BrokenConnection from None
            if error.code == INVALID_REQUEST and error.message == _SESSION_ENDED:
                raise SessionEnded from None
            raise ToolError(f"MCP {self._name}: {error.message}") from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise BrokenConnection from None
        except (RuntimeError, ValueError) as error:
            log.info("MCP %s: %s", self._name, error)
            raise ToolError(
                f"MCP {self._name} gave an answer that is not valid: {_describe_invalid(error)}"
            ) from None


def _has_broken(error: MCPError) -> bool:
    """Whether an error is the library's about the connection: servers use its code for theirs."""
    return error.code == CONNECTION_CLOSED and error.message.startswith(_BROKEN)


def _describe_invalid(error: Exception) -> str:
    """What is wrong with an answer: of several faults the first, without links to documents."""
    try:
        fault = error.errors(include_url=False)[0]  # type: ignore[attr-defined]
        words = f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
    except (AttributeError, LookupError, TypeError):
        words = str(error)
    return f"{words[:300].rstrip('.')}."


@asynccontextmanager
async def open_connection(
    config: ServerConfig,
    home: Path,
    events: ConnectionEvents,
    login: BrowserLogin | None = None,
) -> AsyncIterator[tuple[ServerConnection, asyncio.Event]]:
    """A connection for a `with` block, and the event that it has ended by itself. `config` is one
    whose variables are replaced. ServerUnavailable says why there is none."""
    settings = config.settings
    if settings.url:
        needs_auth = settings.auth == "oauth" or login or locate_login(home, config.name).exists()
        auth = make_auth(config, home, login) if needs_auth else None
        try:
            async with _connect_client(config, open_http_streams(config, auth), events) as made:
                yield made, asyncio.Event()
        except LoginFailed as error:
            raise error if login else LoginNeeded(config.name) from None
        return
    output = ServerLog(home, config.name)
    process = await _start_program(config, output)
    transport = StdioTransport(process, output)
    try:
        async with _connect_client(config, transport.open_streams(), events) as made:
            yield made, transport.ended
    except Exception as error:
        if transport.problem:
            raise ServerUnavailable(f"MCP {config.name}: {transport.problem}") from error
        raise
    finally:
        await run_shielded(process.close())
        output.close()


@asynccontextmanager
async def _connect_client(
    config: ServerConfig, streams: AbstractAsyncContextManager[Any], events: ConnectionEvents
) -> AsyncIterator[ServerConnection]:
    async def handle_message(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            events.tools_changed()

    async def elicit(
        context: ClientRequestContext, params: ElicitRequestFormParams | ElicitRequestURLParams
    ) -> ElicitResult:
        async with events.pause_clock() if events.pause_clock else _no_clock():
            return await answer_elicitation(config.name, params, events.find_person())

    async def list_roots(context: ClientRequestContext) -> ListRootsResult:
        folder = config.folder or Path.cwd()
        return ListRootsResult(roots=[Root.model_validate({"uri": folder.as_uri()})])

    settings = config.settings
    client = Client(
        streams,
        client_info=Implementation(name="hermes", version=VERSION),
        message_handler=handle_message,
        elicitation_callback=elicit if settings.elicitation else None,
        list_roots_callback=list_roots if settings.roots else None,
        cache=None,
    )
    try:
        async with client:
            yield ServerConnection(client, config.name)
    except (MCPError, ExceptionGroup) as error:
        raise _find_cause(config.name, error) from None


@asynccontextmanager
async def _no_clock() -> AsyncIterator[None]:
    yield


def _find_cause(name: str, error: BaseException) -> HermesError:
    """The error behind a group of errors, as a sentence."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, HermesError):
        return error
    words = str(error) or type(error).__name__
    if isinstance(error, OAuthFlowError):
        return LoginFailed(f"The login to {name} failed: {words[:300].rstrip('.')}.")
    if isinstance(error, MCPError) and _has_broken(error):
        words = f"it ended; its output is in logs/mcp-{name}.log"
    return ServerUnavailable(f"MCP {name} could not be reached: {words[:300].rstrip('.')}.")


async def _start_program(config: ServerConfig, output: ServerLog) -> PipedProcess:
    env = build_server_env(config.settings.env)
    program, folder = _locate_program(config, env)
    try:
        return await PipedProcess.start(
            (program, *config.settings.args),
            cwd=folder,
            env=env,
            limit=MAX_MESSAGE,
            on_error_output=output.write,
        )
    except ToolError as error:
        output.close()
        raise ServerUnavailable(f"MCP {config.name} could not be started: {error}") from None


def _locate_program(config: ServerConfig, env: Mapping[str, str]) -> tuple[str, Path]:
    """The full path of the program, and the folder it runs in."""
    settings, folder = config.settings, config.folder or Path.cwd()
    if settings.cwd:
        folder = folder / Path(settings.cwd).expanduser()
    name = settings.command
    if "/" in name:
        name = str(folder / Path(name).expanduser())
    program = shutil.which(name, path=env.get("PATH", os.defpath))
    if program is None:
        raise ServerUnavailable(
            f"MCP {config.name} could not be started: there is no program {settings.command!r}."
        )
    return program, folder


def _convert_tool(tool: Tool) -> ToolDefinition:
    hints = tool.annotations
    schema = tool.input_schema
    return ToolDefinition(
        tool.name[:_MAX_NAME],
        (tool.description or tool.title or "")[:MAX_DESCRIPTION],
        schema if schema.get("type") == "object" else {"type": "object", **schema},
        read_only=bool(hints and hints.read_only_hint),
        idempotent=bool(hints and hints.idempotent_hint),
    )
