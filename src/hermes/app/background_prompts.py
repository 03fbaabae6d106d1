"""Prompts that are answered in separate sessions: beside a conversation, or on a schedule."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs

from hermes.app.agents import Options
from hermes.app.background_commands import BackgroundCommands
from hermes.app.knowledge.titles import SpawnTask
from hermes.app.session import Session
from hermes.app.transcript import Transcript
from hermes.config.load import Setup
from hermes.config.paths import find_working_folder
from hermes.core.events import TurnResult
from hermes.core.ledger import Account
from hermes.core.message import Message, user_message
from hermes.core.store import Store
from hermes.core.taint import BOTH, Taint
from hermes.core.untrusted_text import make_inert, wrap_text, wrapper_mark
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.tools._services import ScheduleAccess

_NO_SKILL = "There is no skill {name}. Install it, or change the job: hermes cron edit."

if TYPE_CHECKING:
    from hermes.cron.job_editor import JobEditor
    from hermes.cron.outcome import EndState, RunOutcome
    from hermes.cron.scheduler import JobPrompt, Scheduler


class BackgroundPrompt(Struct, eq=False):
    session: Session
    text: str
    owner: tuple[str, str]
    """The surface and the conversation it was started from."""
    started: float


class BackgroundPrompts:
    """Each is a stored session like any other. Nobody can be asked in it: commands that need
    approval are skipped."""

    def __init__(self, spawn: SpawnTask) -> None:
        self._spawn = spawn
        self._running: list[BackgroundPrompt] = []
        self.on_done: Callable[[BackgroundPrompt, TurnResult], None] = lambda prompt, result: None
        """Called whenever a prompt has been answered."""

    def __len__(self) -> int:
        return len(self._running)

    def list_prompts(self, session: Session) -> list[BackgroundPrompt]:
        """The running prompts of this conversation, the oldest first."""
        owner = (session.transcript.meta.source, session.transcript.meta.key)
        return [prompt for prompt in self._running if prompt.owner == owner]

    def start_prompt(self, origin: Session, session: Session, message: Message) -> None:
        """Answer the message in `session`, for the conversation of `origin`."""
        owner = (origin.transcript.meta.source, origin.transcript.meta.key)
        prompt = BackgroundPrompt(session, message.text, owner, time.time())
        self._running.append(prompt)
        answer = session.submit(message)  # now, so that it can be stopped at once
        self._spawn(self._await_answer(prompt, answer), f"background prompt {session.id}")

    async def _await_answer(
        self, prompt: BackgroundPrompt, answer: asyncio.Future[TurnResult]
    ) -> None:
        try:
            await asyncio.wait({answer})
        finally:
            self._running.remove(prompt)
        stopped = TurnResult("interrupted", error="Interrupted.")
        result = stopped if answer.cancelled() else answer.result()
        await prompt.session.close()
        self.on_done(prompt, result)


class SessionOpener(Protocol):
    async def __call__(self, *, source: str, key: str, cwd: Path, options: Options) -> Session:
        """Open a new session."""
        ...


class ScheduledPrompts:
    """Answers the prompts of scheduled jobs, each in a new session with nobody present."""

    def __init__(
        self,
        setup: Setup,
        store: Store,
        open_session: SessionOpener,
        use_skill: Callable[[Session, str, str], Awaitable[str]],
        commands: BackgroundCommands,
    ) -> None:
        """`use_skill`: the instructions of a skill with a text; empty: there is none."""
        self._setup = setup
        self._use_skill = use_skill
        self._store = store
        self._open_session = open_session
        self._commands = commands

    def create_scheduler(self) -> "Scheduler":
        """A scheduler that runs the jobs of the store."""
        from hermes.config.env import build_child_env
        from hermes.core.redaction.redactor import Redactor
        from hermes.cron.scheduler import Scheduler, SchedulerSettings

        settings = SchedulerSettings(
            self._setup.home,
            self._setup.config.cron,
            build_child_env(self._setup.secrets),
            Redactor(self._setup.secrets.redactable_values()).redact,
        )
        return Scheduler(self._store.jobs, settings, self.answer_job)

    def open_editor(self) -> "JobEditor":
        from hermes.cron.job_editor import JobEditor

        return JobEditor(self._store.jobs, self._setup.home, self._setup.config.timezone)

    def open_schedule(self, transcript: Transcript, cwd: Path, user: str) -> ScheduleAccess:
        """What the tools of a conversation may do with the schedule. `user`: the id of the person
        on the platform."""
        from hermes.cron.conversation_jobs import ConversationJobs, find_origin

        run_now = self.create_scheduler().run_now
        meta = transcript.meta
        origin = find_origin(meta.source, meta.key, user)
        return ConversationJobs(
            self.open_editor(), run_now, str(cwd), lambda: transcript.taint.bits, origin
        )

    async def answer_job(self, prompt: "JobPrompt") -> "RunOutcome":
        """Answer the prompt of one run. Cancelling it stops the turn."""
        from hermes.cron.outcome import RunOutcome

        job = prompt.job
        folder = job.workdir or find_working_folder(self._setup.config.terminal.cwd)
        session = await self._open_session(
            source="cron",
            key=job.id,
            cwd=Path(folder),
            options=Options(ModelChoice(job.model), job.toolsets, job.max_turns),
        )
        prompt.note_session(session.id)
        try:
            session.host.account = Account(session.id, session.id, job=job.id, purpose="cron")
            if job.budget_usd is not None:
                budget = structs.replace(session.host.budget, session_usd=job.budget_usd)
                session.host.budget = budget
            session.host.absorb_taint(Taint.from_bits(job.taint).sources)
            words = job.prompt
            for name in reversed(job.skills):
                words = await self._use_skill(session, name, words)
                if not words:
                    return RunOutcome("failed", "", _NO_SKILL.format(name=name))
            parts = [prompt.head, words]
            if prompt.data:
                session.host.absorb_taint(BOTH)
                mark = wrapper_mark(session.id)
                parts.insert(1, wrap_text(make_inert(prompt.data), mark, begin=True, end=True))
            result = await session.submit(user_message("\n\n".join(parts)))
            state: EndState = "ok" if result.status == "completed" else "failed"
            return RunOutcome(state, result.text, result.error)
        finally:
            await session.close()
            await self._commands.stop_running(session.transcript.meta)
