"""The host of a session's turns: builds them and provides what they need."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct, structs

from hermes.agent.compression.compressor import Compressor
from hermes.agent.turn import Agent, ModelClient, Summarizer, Turn, sees_images
from hermes.app.agents import Agents, Options
from hermes.app.approvals import Approvals, ApprovalSeams, Rulebook, Safety
from hermes.app.approvals.seen_urls import SeenUrls
from hermes.app.approvals.unread_files import require_reading
from hermes.app.auxiliary import AuxiliaryMedia, AuxiliaryQuestions, Sleep
from hermes.app.backends import Backends
from hermes.app.background_commands import BackgroundCommands
from hermes.app.knowledge.titles import SpawnTask, Titles
from hermes.app.live.interactions import Interactions
from hermes.app.meter import Meter
from hermes.app.session_records import find_turn_starts, save_checkpoint
from hermes.app.transcript import Transcript, take_first_words
from hermes.config.schema import BudgetSection
from hermes.core.errors import ToolError
from hermes.core.events import Approval, Notice, TurnResult
from hermes.core.history import History
from hermes.core.hooks import HookedSession, HookTable, SessionHooks
from hermes.core.ledger import Account
from hermes.core.message import Message, Text, ToolCall
from hermes.core.services import Services
from hermes.core.store import SUBAGENT, SessionState, Store
from hermes.core.taint import Source
from hermes.core.tool import Tool, Toolbox, ToolContext, UserAccess, Verdict, Workspace
from hermes.tools._services import BACKEND, MEDIA

if TYPE_CHECKING:
    from hermes.app.live.session_tape import SessionTape

_PURPOSES = frozenset({"cron", SUBAGENT})
"""Sources that the ledger counts as purposes of their own."""


Pause: TypeAlias = Literal["turn", "compress", "continue", "reset", "end"]
"""When a conversation may be looked back at."""


class TurnNews(Protocol):
    """What a conversation is told with its next message."""

    async def add_news(self, message: Message) -> Message: ...

    async def settle_news(self) -> None:
        """Called when the message has become part of the conversation."""


class TurnRecall(Protocol):
    """The memory behind the messages of a session."""

    async def add_facts(self, message: Message) -> Message:
        """The message with what is known about it."""

    async def record_turn(self, prompt: str, result: TurnResult) -> None: ...


class SharedServices(Struct, frozen=True):
    """What all sessions of a process share."""

    store: Store
    budget: BudgetSection
    agents: Agents
    auxiliary: AuxiliaryQuestions
    rulebook: Rulebook
    backends: Backends
    background_commands: BackgroundCommands
    titles: Titles | None
    """None: no model is configured for titles."""
    sleep: Sleep
    say_once: Callable[[str], str]
    """The text, or nothing if this process has already said it."""
    spawn_task: SpawnTask
    hooks: HookTable
    notices: list[str]
    """What the people of the first turn should know about this process."""
    new_tape: "Callable[[Options], SessionTape | None]" = lambda options: None
    """Makes the recorder of a session; None: it is not recorded."""


class SessionSettings(Struct, frozen=True):
    """The options of a session, and the agent and permissions that follow from them."""

    options: Options
    agent: Agent
    safety: Safety


class SessionHost:
    """The TurnHost of a session's turns, and the ModelAccess of its tools."""

    hands_over = False
    mark_call: Callable[[ToolCall], Awaitable[None]] | None = None

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
        self.agent, self.workspace = settings.agent, workspace
        self.budget = shared.budget
        self.account = Account(meta.id, "" if meta.parent else meta.id, purpose=purpose)
        """The account of its model calls; a surface adds its user, a schedule its job."""
        self.instructions = ""
        """Added to the system prompt while this object lives; never stored."""
        self.pending_steer: list[str] = []
        """Guidance that the running turn has not read yet."""
        self.on_pause: Callable[[Pause, int], None] = lambda pause, copied: None
        """Called after each turn, before and after a compression (then with the number of messages
        that the conversation continues with), and at the end."""
        self.emit = interactions.emit
        self.turn_count = 0
        """Turns begun since the session was opened."""
        self.depth = int(meta.source == SUBAGENT)
        """How many sessions delegated to this one."""
        self.parent_has_seen: Callable[[str], bool] = lambda url: False
        self.news: TurnNews | None = None
        self.tape = shared.new_tape(settings.options)
        self.recall: TurnRecall | None = None
        self.jitter: Callable[[float, float], float] = random.uniform
        self.closing: Pause = "end"
        """`reset`: another session takes its place."""
        self.shared = shared
        self.hooks = interactions.hooks = _make_hooks(self, transcript, interactions)
        self._transcript = transcript
        self._services = services
        self._user = UserAccess(
            self.approve, interactions.ask_question, partial(_confirm_change, self, interactions)
        )
        seams = _make_seams(self, interactions, self.has_seen)
        self.approvals = _make_approvals(shared, settings, workspace, services, seams)
        self._seen_urls = SeenUrls(trusts_prompts=not self.depth)
        self._compressor = Compressor(
            self._new_summarizer, self._replace_history, lambda: transcript.id, shared.say_once
        )
        self._focus = ""
        """What a summary must keep above all."""
        self._turn_running = False
        self.checkpoint_saved, self.checkpoint_lock = False, asyncio.Lock()
        """Whether this turn's checkpoint was saved; calls that run together wait for it."""
        self.turn_start = ("", meta.id, 0)
        """The first words of this turn's message, its session and its index there."""
        services.models = self
        services.set(MEDIA, AuxiliaryMedia(shared.auxiliary.models, self))
        transcript.on_first_answer = partial(_start_title, shared, transcript, self)

    def begin_turn(self, message: Message | None) -> Turn:
        """The turn that answers this message; None: the last one, again."""
        self._turn_running, self.checkpoint_saved = True, False
        self.turn_count += 1
        for text in filter(None, map(self.shared.say_once, self.shared.notices)):
            self.emit_notice("plugin", text)
        messages = self._transcript.history.messages
        index = len(messages)
        if message is None:
            index = find_turn_starts(messages)[-1]
            message = messages[index]
        words = take_first_words(message)
        self.turn_start = (words, self.session_id, index)
        return self._new_turn()

    def end_turn(self) -> None:
        self._turn_running = False
        self.on_pause("turn", 0)

    def apply_settings(self, settings: SessionSettings) -> None:
        """Continue with another agent and other permissions from the next model call on."""
        self.agent = settings.agent
        self.approvals.safety = settings.safety
        self.workspace = structs.replace(self.workspace, sandbox=settings.safety.mode)

    def compress_late(self) -> None:
        """Compress only when a prompt would not fit, because the client owns the history."""
        self._compressor.lazy = True

    async def compress(self, focus: str = "") -> bool:
        """Compress on the user's request; whether anything became shorter. `focus`: what the
        summary must keep above all."""
        self._focus = focus
        try:
            return await self._compressor.compress_now(self.agent, self._new_turn())
        finally:
            self._focus = ""

    async def close(self) -> None:
        """Close what tools opened."""
        self.on_pause(self.closing, 0)
        self.on_pause = lambda pause, copied: None
        backend = self._services.get(BACKEND)
        await self._services.aclose()
        await self.shared.backends.release_backend(backend)
        # These refer back to the host; without them a closed session's memory is freed at once.
        del self.approvals, self._compressor, self._user
        self._transcript.on_first_answer = lambda question, answer: None

    @property
    def session_id(self) -> str:
        return self._transcript.id

    async def record(
        self, message: Message | None, state: SessionState | None, error: str = ""
    ) -> None:
        await self._transcript.record(message, state, error)

    def take_steer(self) -> str:
        text = "\n".join(self.pending_steer)
        self.pending_steer.clear()
        return text

    async def approve(
        self, call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...]
    ) -> Verdict:
        from hermes.llm.wire.chat.schema_tools import is_step

        if self.agent.small or is_step(call):
            require_reading(self._transcript.history, call, params, keys, self.workspace)
        taint = self._transcript.taint
        self.approvals.readable = self.workspace.readable
        verdict = await self.approvals.check(call, tool, params, keys, taint)
        if verdict.allowed and verdict.changes:
            await save_turn_checkpoint(self)
        return verdict

    def tool_context(
        self, call: ToolCall, verdict: Verdict, toolbox: Toolbox, progress: Callable[[str], None]
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
        return self.shared.sleep(seconds)

    def remember_limits(self, client: ModelClient, context: int | None, output: int | None) -> None:
        self.shared.agents.remember_limits(client, context, output)

    def remember_calling(self, client: ModelClient, calling: str) -> None:
        self.shared.agents.remember_calling(client, calling)

    @property
    def sees_images(self) -> bool:
        return sees_images(self.agent.providers[0], self.shared.agents.learned)

    async def consult(
        self,
        job: str,
        prompt: Message,
        *,
        system: str = "",
        max_output: int = 1024,
        budget_share: float = 1.0,
    ) -> str:
        """`budget_share`: how much of each cap may be used when this is asked."""
        meter = self.new_meter(budget_share).for_purpose(f"auxiliary/{job}")
        return await self.shared.auxiliary.ask_model(
            job, prompt, main=self.agent, system=system, max_output=max_output, meter=meter
        )

    def _new_turn(self) -> Turn:
        # A small model has its own prompt, and longer prompts only make it follow it less.
        stored = "" if self.agent.small else self._transcript.meta.system
        return Turn(
            system="\n\n".join(filter(None, (stored, self.instructions))),
            history=self._transcript.history,
            host=self,
            learned=self.shared.agents.learned,
            compressor=self._compressor,
            meter=self.new_meter(),
        )

    def new_meter(self, share: float = 1.0) -> Meter:
        """`share`: how much of each cap may be used."""
        budget = self.budget
        if share < 1:
            caps = structs.asdict(budget)
            budget = structs.replace(budget, **{n: cap and cap * share for n, cap in caps.items()})
        account = structs.replace(self.account, session=self.session_id)
        return Meter(self.shared.store, budget, account, self.emit, self.shared.say_once)

    def _new_summarizer(self) -> Summarizer:
        window = self.shared.auxiliary.models.find_window("compression", self.agent)
        return Summarizer(self._write_summary, window)

    async def _write_summary(
        self, prompt: Message, *, system: str = "", max_output: int = 1024
    ) -> str:
        if self._focus:
            wish = Text(f"\n\nThe user asks that the summary keep above all: {self._focus}")
            prompt = structs.replace(prompt, parts=(*prompt.parts, wish))
        return await self.consult("compression", prompt, system=system, max_output=max_output)

    async def _replace_history(self, messages: Sequence[Message]) -> History:
        self._seen_urls.read_history(self._transcript.history)
        self.on_pause("compress", 0)
        history = await self._transcript.replace_history(messages, running=self._turn_running)
        self.on_pause("continue", len(messages))
        return history

    def has_seen(self, url: str) -> bool:
        self._seen_urls.read_history(self._transcript.history)
        return url in self._seen_urls or self.parent_has_seen(url)

    def emit_notice(self, code: str, text: str) -> None:
        self.emit(Notice(code, self.agent.redactor.redact(text)))


def _make_approvals(
    shared: SharedServices,
    settings: SessionSettings,
    workspace: Workspace,
    services: Services,
    seams: ApprovalSeams,
) -> Approvals:
    return Approvals(
        settings.safety,
        cwd=workspace.cwd,
        home=workspace.home,
        book=shared.rulebook,
        seams=seams,
        backend=services.get(BACKEND),
    )


def _make_seams(
    host: SessionHost, interactions: Interactions, has_seen: Callable[[str], bool]
) -> ApprovalSeams:
    return ApprovalSeams(
        interactions.request_approval,
        lambda: interactions.user_present,
        has_seen,
        host,
        partial(_preview_change, host),
        host.emit_notice,
    )


def _make_hooks(
    host: SessionHost, transcript: Transcript, interactions: Interactions
) -> SessionHooks | None:
    """The hooks of a session; None: there are none."""
    shared = host.shared
    if not shared.hooks:
        return None
    session = HookedSession(
        transcript.meta.source,
        host.workspace.cwd,
        shared.backends.name,
        lambda: transcript.id,
        host.emit_notice,
        partial(_confirm_change, host, interactions),
    )
    return SessionHooks(shared.hooks, session)


async def save_turn_checkpoint(host: SessionHost) -> None:
    """Save the files before the first change that the running turn makes; every change waits."""
    async with host.checkpoint_lock:
        if host.checkpoint_saved:
            return
        host.checkpoint_saved = True
        if not host.shared.backends.has_remote_files:
            await save_checkpoint(host.workspace.cwd, host.workspace.home, *host.turn_start)


def _start_title(
    shared: SharedServices, transcript: Transcript, host: SessionHost, question: str, answer: str
) -> None:
    if shared.titles is not None:
        shared.titles.begin_title(transcript, host, question, answer)


async def _confirm_change(
    host: SessionHost, interactions: Interactions, call: ToolCall, reason: str, diff: str
) -> bool | None:
    """What a person says about a change that is no file's; None: nobody can be asked."""
    if host.approvals.safety.asking == "never-ask":
        return None
    answer = await interactions.request_approval(Approval(call.id, call, reason, diff=diff))
    return None if answer is None else answer != "deny"


async def _preview_change(host: SessionHost, tool: Tool[Any], params: Any) -> str:
    """The change that a call would make to files, as a diff; empty: it makes none."""
    if tool.preview is None:
        return ""
    try:
        diff = await asyncio.to_thread(tool.preview, params, host.workspace)
    except (ToolError, OSError):  # the call says why when it runs
        return ""
    return host.agent.redactor.redact(diff)
