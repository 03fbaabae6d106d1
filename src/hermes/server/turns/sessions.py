"""Sessions of API clients: each is owned by a principal and runs one turn at a time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hermes.agent.turn import Agent
from hermes.app.agents import Options
from hermes.app.meter import TenantBudget
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.app.transcript import Transcript
from hermes.config.paths import make_private_folder
from hermes.config.schema import BudgetSection
from hermes.core.errors import StoreError
from hermes.core.message import Message, ToolReturn
from hermes.core.store import WEB_SOURCE, SessionMeta
from hermes.core.taint import BOTH
from hermes.core.tool import Tool
from hermes.server.http.errors import ApiError, not_found
from hermes.server.http.principals import Principal
from hermes.server.http.tenant_access import TenantAccess
from hermes.server.requests.client_tools import ClientTools, list_open_calls
from hermes.server.requests.turn_request import TurnRequest, join_texts
from hermes.server.turns.conversations import Conversations, restore_steps
from hermes.store.tables.tenancy import OPERATOR
from hermes.tools.registry import NONE, select_tools

if TYPE_CHECKING:
    from hermes.app.cluster.session_folders import SessionFolder, SessionFolders
    from hermes.store.postgres.shared.turn_locks import TurnLocks

log = logging.getLogger(__name__)
SOURCE = "api"
TENANTS_FOLDER = "tenants"
"""In the working folder: the folders of tenants."""
_LONGEST_TURN = 1000
"""How many messages of a turn are looked through for the calls that ran here."""
FILES_MISSING = (
    "[This session goes on at another node. These files were too large to be brought along: "
    "{names}.]"
)


class ClientSessions:
    """Opens sessions for turns and knows which are active."""

    def __init__(
        self,
        runtime: Runtime,
        toolsets: tuple[str, ...] | None,
        tenants: TenantAccess | None = None,
    ) -> None:
        self._runtime = runtime
        self._toolsets = toolsets
        self._tenants = tenants
        self.conversations = Conversations(runtime.store.objects, runtime.spawn_task)
        self.folders: SessionFolders | None = None
        """Where each session works in a folder of its own that follows it to other nodes."""
        self.active: set[Session] = set()
        self.locks: dict[str, tuple[asyncio.Lock, int]] = {}
        """By name: the lock, and how many turns hold it or wait for it."""
        self._node_locks: TurnLocks | None = None

    def join_nodes(self, locks: "TurnLocks") -> None:
        """Share the sessions with other nodes."""
        self._node_locks = locks
        self.conversations.is_shared = True

    @asynccontextmanager
    async def open_session(
        self, principal: Principal, request: TurnRequest
    ) -> AsyncIterator[Session]:
        """Open the session of a turn. Leaving the block stops what still runs in it."""
        async with self.lock_session(request.session):
            session, folder = await self._prepare_session(principal, request)
            self.active.add(session)
            try:
                yield session
            finally:
                self.active.discard(session)
                await asyncio.shield(self._close_session(session, folder))

    @asynccontextmanager
    async def lock_session(self, name: str) -> AsyncIterator[None]:
        """Make turns of the same session or conversation run one after the other; an empty name
        locks nothing."""
        if not name:
            yield
            return
        lock, users = self.locks.get(name, (None, 0))
        lock = lock or asyncio.Lock()
        self.locks[name] = (lock, users + 1)
        try:
            async with (
                lock,
                self._node_locks.hold_lock(name) if self._node_locks else nullcontext(),
            ):
                yield
        finally:
            _, users = self.locks[name]
            if users == 1:
                del self.locks[name]
            else:
                self.locks[name] = (lock, users - 1)

    def choose_options(self, principal: Principal) -> Options:
        """How its sessions differ from the configuration."""
        return Options(
            toolsets=self._choose_toolsets(principal), walled=principal.tenant != OPERATOR
        )

    def open_working_folder(self, principal: Principal) -> Path:
        """The folder of its sessions. A tenant has one of its own, and another one when it was
        removed and added again."""
        folder = self._runtime.working_folder
        if principal.tenant == OPERATOR:
            return folder
        name = principal.name.removeprefix("@").encode("ascii", "ignore").decode()
        folder = folder / TENANTS_FOLDER / f"{principal.tenant}-{name}"
        make_private_folder(folder)
        return folder

    def _choose_toolsets(self, principal: Principal) -> tuple[str, ...] | None:
        """The toolsets of a session: of those the server offers, the ones that a tenant may use."""
        allowed = principal.limits.toolsets
        if allowed is None:
            return self._toolsets
        settings = self._runtime.setup.config.tools
        offered = select_tools(self._toolsets, platform=SOURCE, settings=settings)
        return tuple(
            name for name, tool in offered.items() if {name, tool.toolset} & {*allowed}
        ) or (NONE,)

    def is_busy(self, session_id: str) -> bool:
        return session_id in self.locks or any(s.id == session_id for s in self.active)

    async def load_past(self, principal: Principal, session_id: str) -> tuple[Message, ...]:
        """The stored messages: none if the session is new or the store unreadable; 404 if another
        principal owns it."""
        stored = self._runtime.store.sessions
        try:
            meta = await stored.get_meta(session_id)
            if meta is None:
                tenants = self._tenants
                if tenants is not None and await tenants.is_foreign_session(session_id):
                    raise not_found("session", session_id)
                return ()
            if not is_owner(principal, meta):
                raise not_found("session", session_id)
            return tuple(await stored.load_messages(session_id))
        except StoreError:
            return ()

    async def _load_last_messages(self, session_id: str) -> list[Message]:
        """The end of a stored session; nothing if it is new or the store unreadable."""
        stored = self._runtime.store.sessions
        try:
            window = await stored.load_window(session_id, limit=_LONGEST_TURN, last=True)
        except StoreError:
            return []
        return [found.message for found in window]

    async def count_messages(self, session_id: str) -> int:
        """How many messages of the session are stored."""
        meta = await self._runtime.store.sessions.get_meta(session_id)
        return meta.messages if meta is not None else 0

    async def find_begun_turn(
        self, request: TurnRequest, session_id: str, place: int
    ) -> TurnRequest | None:
        """What is to be run of a turn whose server died: the request itself when its prompt was not
        stored, else one that continues its session; None: the turn has ended."""
        stored = self._runtime.store.sessions
        meta = await stored.get_meta(session_id) if session_id and place >= 0 else None
        if meta is None or meta.messages <= place:
            return request
        while meta.next and (child := await stored.get_meta(meta.next)) is not None:
            meta = child
        if meta.state not in ("interrupted", "running"):
            return None
        return structs.replace(request, session=meta.id, past=())

    async def find_last_answer(self, session_id: str) -> str:
        messages = await self._runtime.store.sessions.load_messages(session_id)
        return next((m.text for m in reversed(messages) if m.role == "assistant"), "")

    async def _close_session(self, session: Session, folder: "SessionFolder | None") -> None:
        await session.close()
        if folder is not None and self.folders is not None:
            try:
                await self.folders.save_folder(folder)
            except (StoreError, OSError) as error:
                log.warning("the files of session %s were not saved: %s", session.id, error)

    async def _prepare_session(
        self, principal: Principal, request: TurnRequest
    ) -> "tuple[Session, SessionFolder | None]":
        past, session_id = request.past, request.session
        if session_id:
            past = await self.load_past(principal, session_id)
            results = _list_open_results(request, past)
            past = (*past, *results)
        else:
            session_id = request.new_session or await self.conversations.find_session(
                principal.name, request
            )
            results = request.results
            if not request.new_session and _continues_turn(request):
                stored = await self._load_last_messages(session_id)
                past = restore_steps(past, results, stored)
        folder = None
        if self.folders is not None and request.keep:
            folder = await self.folders.open_folder(session_id)
        session = await self._runtime.open_client_session(
            session_id,
            past=past,
            persistent=request.keep,
            source=SOURCE,
            key=build_owner_key(principal, request.session_key),
            cwd=folder.path if folder is not None else self.open_working_folder(principal),
            options=self.choose_options(principal),
        )
        if folder is not None and folder.missing:
            session.host.pending_steer.append(FILES_MISSING.format(names=", ".join(folder.missing)))
        if session.transcript.stored:
            for result in results:
                await session.transcript.record(result, None)
        sent = (*results, request.prompt) if request.session else (*past, request.prompt)
        if _has_foreign_content(sent, session.transcript):
            session.transcript.absorb_taint(BOTH)
        apply_limits(session, principal)
        _apply_settings(session, request)
        return session, folder


def _list_open_results(request: TurnRequest, past: Sequence[Message]) -> tuple[Message, ...]:
    """The results of the request that the stored session still waits for."""
    waiting = {call.id for call in list_open_calls(past)}
    return tuple(
        message
        for message in request.results
        if any(isinstance(part, ToolReturn) and part.call_id in waiting for part in message.parts)
    )


def _continues_turn(request: TurnRequest) -> bool:
    """Whether the client sends results of its tools, and the server's may have run beside them."""
    tools = request.client_tools
    has_results = bool(request.results) or request.prompt.role == "tool"
    return has_results and tools is not None and tools.with_own


def _has_foreign_content(sent: Sequence[Message], transcript: Transcript) -> bool:
    """Whether a client's messages hold what this server has no record of: results of tools, or
    answers of a conversation that is not stored."""
    unknown = ("tool",) if transcript.stored else ("tool", "assistant")
    return any(message.role in unknown for message in sent)


def apply_limits(session: Session, principal: Principal) -> None:
    """Charge the session to the principal, within its cap."""
    host = session.host
    if principal.name:
        host.account = structs.replace(host.account, user=principal.name)
    if principal.daily_usd is not None:
        caps = [cap for cap in (host.budget.user_usd, principal.daily_usd) if cap is not None]
        host.budget = structs.replace(host.budget, user_usd=min(caps))
    limits = principal.limits
    if principal.tenant:
        host.account = structs.replace(host.account, tenant=principal.name.removeprefix("@"))
        configured = {name: getattr(host.budget, name) for name in BudgetSection.__struct_fields__}
        host.budget = TenantBudget(
            **configured, tenant_usd=limits.daily_usd, month_usd=limits.monthly_usd
        )
    if limits.models is not None:
        _restrict_models(session, limits.models)


def _restrict_models(session: Session, models: Sequence[str]) -> None:
    """Leave the session the models that its tenant may use; 403 when none is left."""
    agent = session.host.agent
    allowed = tuple(
        client
        for client in agent.providers
        if {(m := client.target).model, f"{m.provider}:{m.model}"} & {*models}
    )
    if not allowed:
        raise ApiError(
            403,
            f"This tenant may use {', '.join(models) or 'no models'} only, and the server is set "
            "up with another model. Nothing was started. Ask the operator of this server.",
            code="model_not_allowed",
        )
    session.host.agent = structs.replace(agent, providers=allowed)


def _apply_settings(session: Session, request: TurnRequest) -> None:
    tools, answer_format = request.client_tools, request.answer_format
    changes = {**request.settings, **(tools.settings if tools else {})}
    agent, instructions = session.agent, request.instructions
    if answer_format:
        changes["answer_schema"] = answer_format.setting
        if agent.providers[0].endpoint.quirks.answer_schema != "always":
            instructions = join_texts(instructions, answer_format.instructions)
    if changes:
        agent = structs.replace(agent, settings=structs.replace(agent.settings, **changes))
    if tools is not None:
        agent = _offer_client_tools(agent, tools)
    if request.has_own_limit:
        agent = structs.replace(agent, limits=structs.replace(agent.limits, continues=0))
    session.host.agent = agent
    session.host.instructions = instructions


def _offer_client_tools(agent: Agent, tools: ClientTools) -> Agent:
    """The agent with the client's tools, and with its own if both are wanted; a name of both is the
    client's."""
    names = frozenset(spec.name for spec in tools.specs)
    own: dict[str, Tool[Any]] = {}
    specs = tools.specs
    if tools.with_own:
        own = {name: tool for name, tool in agent.tools.items() if name not in names}
        specs = (*(spec for spec in agent.specs if spec.name not in names), *specs)
    return structs.replace(agent, tools=own, specs=specs, client_tools=names)


def is_owner(principal: Principal, meta: SessionMeta) -> bool:
    """Whether the principal owns the session. The key without a name is the operator's, who owns
    all sessions that no other principal does; without any key, only those of the server."""
    if principal.tenant:
        return True  # the store shows the rows of this tenant alone
    if meta.source not in (SOURCE, WEB_SOURCE):
        return principal.owns_others
    if meta.source == WEB_SOURCE and not principal.has_key:
        return False
    return meta.key.partition("/")[0] == principal.name


def build_owner_key(principal: Principal, session_key: str = "") -> str:
    return f"{principal.name}/{session_key}"
