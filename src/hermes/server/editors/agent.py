"""The agent as an editor sees it: sessions that are opened, prompted, listed and closed."""

import asyncio
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import acp
from acp import RequestError, schema

from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.core.errors import ConfigError, HermesError
from hermes.core.store import SessionMeta
from hermes.mcp.server_config import ServerConfig
from hermes.server.editors.client_offers import EditorFiles, read_offers, read_servers
from hermes.server.editors.editor_session import SOURCE, EditorLink, EditorSession
from hermes.server.editors.handshake import CAPABILITIES
from hermes.tools._services import CLIENT_FILES

_PAGE = 50
_CURSOR = re.compile(r"[0-9]{1,9}\Z")
_TAKEN = -32603
_LOCAL_SOURCES = frozenset({SOURCE, "cli"})
"""Sessions of the user at this machine."""


class EditorAgent:
    """Implements `acp.Agent`; one per connection."""

    def __init__(self, runtime: Runtime, capabilities: object = None) -> None:
        """`capabilities`: those of the client, if it has been greeted already."""
        self._runtime = runtime
        self._offers = read_offers(capabilities)
        self._sessions: dict[str, EditorSession] = {}
        self._link: EditorLink | None = None
        self._opening = asyncio.Lock()

    def on_connect(self, conn: acp.Client) -> None:
        self._link = EditorLink(conn, self._offers)

    async def initialize(
        self, protocol_version: int, client_capabilities: Any = None, **_: Any
    ) -> schema.InitializeResponse:
        if client_capabilities is not None and self._link is not None:
            self._link.offers = client_capabilities
        return schema.InitializeResponse.model_validate(CAPABILITIES)

    async def authenticate(self, method_id: str, **_: Any) -> None:
        raise RequestError.invalid_params({"reason": "no login is needed here"})

    async def new_session(
        self, cwd: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> schema.NewSessionResponse:
        opened = await self._open_session(cwd, servers=read_servers(mcp_servers))
        return schema.NewSessionResponse(
            session_id=opened.id, modes=opened.modes, config_options=opened.config_options
        )

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> schema.LoadSessionResponse:
        opened = await self._open_session(cwd, session_id, read_servers(mcp_servers))
        await opened.replay_history()
        return schema.LoadSessionResponse(modes=opened.modes, config_options=opened.config_options)

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> schema.ResumeSessionResponse:
        opened = await self._open_session(cwd, session_id, read_servers(mcp_servers))
        return schema.ResumeSessionResponse(
            modes=opened.modes, config_options=opened.config_options
        )

    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> schema.ForkSessionResponse:
        servers = read_servers(mcp_servers)
        folder = _check_folder(cwd)
        await self._check_owner(session_id)
        try:
            copy = await self._runtime.copy_session(session_id, Options(), folder)
        except HermesError as error:
            raise RequestError(-32602, str(error)) from None
        opened = await self._open_session(cwd, copy, servers)
        return schema.ForkSessionResponse(
            session_id=opened.id, modes=opened.modes, config_options=opened.config_options
        )

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        skipped = int(cursor) if cursor and _CURSOR.match(cursor) else 0
        mine = await self._list_local(skipped + _PAGE + 1, cwd)
        rows = [
            schema.SessionInfo(
                session_id=meta.id,
                cwd=meta.cwd,
                title=meta.title or None,
                updated_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(meta.updated)),
            )
            for meta in mine[skipped : skipped + _PAGE]
        ]
        more = str(skipped + _PAGE) if len(mine) > skipped + _PAGE else None
        return schema.ListSessionsResponse(sessions=rows, next_cursor=more)

    async def _list_local(self, count: int, cwd: str | None) -> list[SessionMeta]:
        """The latest sessions of the user at this machine, at least so many if there are."""
        limit = count
        while True:
            found = await self._runtime.store.sessions.list_recent(limit=limit, cwd=cwd)
            mine = [meta for meta in found if meta.source in _LOCAL_SOURCES]
            if len(mine) >= count or len(found) < limit:
                return mine
            limit *= 4

    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        await self._find_session(session_id).close()
        del self._sessions[session_id]
        return schema.CloseSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        return await self._find_session(session_id).answer_prompt(prompt)

    async def cancel(self, session_id: str, **_: Any) -> None:
        if found := self._sessions.get(session_id):
            found.session.stop()

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> schema.SetSessionModeResponse:
        await self._find_session(session_id).set_mode(mode_id)
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        found = self._find_session(session_id)
        found.set_option(config_id, str(value))
        return schema.SetSessionConfigOptionResponse(config_options=found.config_options)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return None

    async def close(self) -> None:
        """Close every session; the editor has gone."""
        for found in list(self._sessions.values()):
            await found.close()
        self._sessions.clear()

    async def _open_session(
        self, cwd: str, resume: str = "", servers: tuple[ServerConfig, ...] = ()
    ) -> EditorSession:
        async with self._opening:  # a session that is asked for twice is open once
            return await self._replace_session(_check_folder(cwd), resume, servers)

    async def _replace_session(
        self, folder: Path, resume: str, servers: tuple[ServerConfig, ...]
    ) -> EditorSession:
        assert self._link is not None
        if resume:
            await self._check_owner(resume)
            if resume in self._sessions:
                await self._sessions.pop(resume).close()
        try:
            session = await self._runtime.open_session(
                resume=resume, source=SOURCE, cwd=folder, options=Options(servers=servers)
            )
        except ConfigError as error:
            raise RequestError(-32602, str(error)) from None
        claims, name = self._runtime.claims, resume or session.id
        if claims.is_taken(name):
            await session.close()
            raise RequestError(
                _TAKEN, "That session is open elsewhere. Fork it, or close it there."
            )
        claims.claim_session(name)
        self._runtime.mcp_servers.retain_servers(servers)
        session.services.set(CLIENT_FILES, EditorFiles(self._link.client, name, self._link.offers))
        opened = self._sessions[name] = EditorSession(self._runtime, session, self._link, name)
        self._runtime.spawn_task(_announce_commands(opened), f"editor {opened.id}")
        return opened

    async def _check_owner(self, session_id: str) -> None:
        """An editor sees sessions of the user at this machine only."""
        meta = await self._runtime.store.sessions.get_meta(session_id)
        if meta is None or meta.source not in _LOCAL_SOURCES:
            raise RequestError.resource_not_found(session_id)

    def _find_session(self, session_id: str) -> EditorSession:
        found = self._sessions.get(session_id)
        if found is None:
            raise RequestError.resource_not_found(session_id)
        return found


async def _announce_commands(opened: EditorSession) -> None:
    # After the response that names the session: before it, an editor does not know the id.
    await asyncio.sleep(0)
    await opened.send_commands()


def _check_folder(cwd: str) -> Path:
    folder = Path(cwd)
    with suppress(OSError):  # a name that is too long, for example
        if folder.is_absolute() and folder.is_dir():
            return folder
    raise RequestError.invalid_params({"reason": f"{cwd} is no absolute path of a folder"})
