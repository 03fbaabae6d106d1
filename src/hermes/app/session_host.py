"""The host of a session's turns: builds them, and gives them what they need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, structs

from hermes.agent.compression.compressor import Compressor
from hermes.agent.turn import Agent, ModelClient, Summarizer, Turn, sees_images
from hermes.app.agents import Agents, Options
from hermes.app.approvals import Approvals, ApprovalSeams, Rulebook, Safety
from hermes.app.auxiliary import Auxiliary, Sleep
from hermes.app.backends import Backends
from hermes.app.background_commands import BackgroundCommands
from hermes.app.interactions import Interactions
from hermes.app.meter import Meter
from hermes.app.session_chain import save_checkpoint
from hermes.app.titles import Spawn, Titles
from hermes.app.transcript import Transcript, first_words
from hermes.config.schema import Budget
from hermes.core.events import Notice
from hermes.core.history import History
from hermes.core.ledger import Account
from hermes.core.message import Message, ToolCall
from hermes.core.services import Services
from hermes.core.store import SessionState, Store
from hermes.core.taint import Source
from hermes.core.tool import Tool, Toolbox, ToolContext, UserAccess, Verdict, Workspace
from hermes.tools._services import BACKEND

_PURPOSES = frozenset({"cron", "subagent"})
"""Sources that are a purpose of their own in the ledger."""


class SharedServices(Struct, frozen=True):
    """What all sessions of a process share."""

    store: Store
    budget: Budget
    agents: Agents
    auxiliary: Auxiliary
    rulebook: Rulebook
    backends: Backends
    background: BackgroundCommands
    titles: Titles | None
    """None: no model is configured for titles."""
    sleep: Sleep
    once: Callable[[str], str]
    """The text, unless this process has said it before."""
    spawn: Spawn


class SessionSettings(Struct, frozen=True):
    """What a session was asked to do differently, and what follows from it."""

    options: Options
    agent: Agent
    safety: Safety


class SessionHost:
    """One session's: the TurnHost of its turns, and the ModelAccess of its tools."""

    def __init__(
        self,
        shared: SharedServices,
        settings: SessionSettings,
        transcript: Transcript,
        workspace: Workspace,
        services: Services,
        interactions: Interactions,
    ) -> None:
        meta = transcript.meta
        purpose = meta.source if meta.source in _PURPOSES else "main"
        self.agent = settings.agent
        self.workspace = workspace
        self.budget = shared.budget
        self.account = Account(meta.id, "" if meta.parent else meta.id, purpose=purpose)
        """Whom its model calls are charged to; a surface adds its user, a schedule its job."""
        self.instructions = ""
        """Added to the system prompt while this object lives; never stored."""
        self.steer: list[str] = []
        """Guidance for the running turn that it has not taken yet."""
        self.emit = interactions.emit
        self._shared = shared
        self._transcript = transcript
        self._services = services
        self._user = UserAccess(self.approve, interactions.ask)
        self._approvals = Approvals(
            settings.safety,
            cwd=workspace.cwd,
            home=workspace.home,
            book=shared.rulebook,
            seams=ApprovalSeams(
                interactions.approve, lambda: interactions.present, self, self._notify
            ),
            backend=services.get(BACKEND),
        )
        self._compressor = Compressor(
            self._summarizer, self._continue_with, lambda: transcript.id, shared.once
        )
        self._running = False
        self._saved = False
        """Whether this turn's checkpoint was made."""
        self._began = ("", meta.id, 0)
        """This turn's message: how it begins, in which session it stands, at which index."""
        services.models = self
        transcript.on_first_answer = self._name_conversation

    # -- for the session -------------------------------------------------------------------

    def begin_turn(self, message: Message) -> Turn:
        """The turn that answers this message."""
        self._running, self._saved = True, False
        self._began = (first_words(message), self.session_id, len(self._transcript.history))
        return self._new_turn()

    def end_turn(self) -> None:
        self._running = False

    def adapt(self, settings: SessionSettings) -> None:
        """Continue with another agent and other permissions from the next model call on."""
        self.agent = settings.agent
        self._approvals.safety = settings.safety
        self.workspace = structs.replace(self.workspace, sandbox=settings.safety.mode)

    def compress_late(self) -> None:
        """Compress only when a prompt would not fit: its past is not ours to replace."""
        self._compressor.lazy = True

    async def compress(self) -> bool:
        """Compress because the user wants it; whether there was anything to gain."""
        return await self._compressor.compress_now(self.agent, self._new_turn())

    async def close(self) -> None:
        """Close what tools kept open."""
        backend = self._services.get(BACKEND)
        await self._services.aclose()
        await self._shared.backends.release(backend)
        # These point back here; without them the memory of a closed session is free at once.
        del self._approvals, self._compressor, self._user
        self._transcript.on_first_answer = lambda question, answer: None

    # -- TurnHost --------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        return self._transcript.id

    async def record(self, message: Message | None, state: SessionState | None) -> None:
        await self._transcript.record(message, state)

    def take_steer(self) -> str:
        text = "\n".join(self.steer)
        self.steer.clear()
        return text

    async def approve(
        self, call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...]
    ) -> Verdict:
        taint = self._transcript.taint
        verdict = await self._approvals.check(call, tool, params, keys, taint)
        if verdict.allowed and verdict.changes and not self._saved:
            self._saved = True
            if not self._shared.backends.other_files:  # a command there changes nothing here
                await save_checkpoint(self.workspace.cwd, self.workspace.home, *self._began)
        return verdict

    def tool_context(
        self,
        call: ToolCall,
        verdict: Verdict,
        toolbox: Toolbox,
        progress: Callable[[str], None],
    ) -> ToolContext:
        return ToolContext(
            call,
            self.session_id,
            self.workspace,
            self._services,
            self._user,
            toolbox,
            progress,
            verdict,
        )

    def absorb_taint(self, sources: Collection[Source]) -> None:
        self._transcript.absorb_taint(sources)

    def sleep(self, seconds: float) -> Awaitable[None]:
        return self._shared.sleep(seconds)

    def remember_limits(
        self, endpoint: ModelClient, context: int | None, output: int | None
    ) -> None:
        self._shared.agents.remember_limits(endpoint, context, output)

    # -- ModelAccess -----------------------------------------------------------------------

    @property
    def sees_images(self) -> bool:
        return sees_images(self.agent.providers[0], self._shared.agents.learned)

    async def consult(
        self, job: str, prompt: Message, *, system: str = "", max_output: int = 1024
    ) -> str:
        return await self._shared.auxiliary.ask(
            job,
            prompt,
            main=self.agent,
            system=system,
            max_output=max_output,
            meter=self._meter().for_purpose(f"auxiliary/{job}"),
        )

    # -- inside ----------------------------------------------------------------------------

    def _new_turn(self) -> Turn:
        # A small model has a prompt of its own, and follows it less the more stands around it.
        own = "" if self.agent.small else self._transcript.meta.system
        return Turn(
            system="\n\n".join(filter(None, (own, self.instructions))),
            history=self._transcript.history,
            host=self,
            learned=self._shared.agents.learned,
            compressor=self._compressor,
            meter=self._meter(),
        )

    def _meter(self) -> Meter:
        account = structs.replace(self.account, session=self.session_id)
        return Meter(self._shared.store, self.budget, account, self.emit, self._shared.once)

    def _summarizer(self) -> Summarizer:
        window = self._shared.auxiliary.models.window_of("compression", self.agent)
        return Summarizer(partial(self.consult, "compression"), window)

    async def _continue_with(self, messages: Sequence[Message]) -> History:
        return await self._transcript.continue_with(messages, running=self._running)

    def _notify(self, code: str, text: str) -> None:
        self.emit(Notice(code, self.agent.redactor.redact(text)))

    def _name_conversation(self, question: str, answer: str) -> None:
        if self._shared.titles is not None:
            self._shared.titles.begin(self._transcript, self, question, answer)
