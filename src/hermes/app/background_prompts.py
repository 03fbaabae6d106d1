"""Prompts that are answered in separate sessions: beside a conversation, or on a schedule."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from hermes.app.agents import Options
from hermes.app.session import Session
from hermes.app.titles import SpawnTask
from hermes.app.transcript import Transcript
from hermes.core.events import TurnResult
from hermes.core.ledger import Account
from hermes.core.message import Message, user_message
from hermes.core.taint import Taint
from hermes.core.untrusted_text import make_inert, wrap_text, wrapper_mark
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.tools._services import ScheduleAccess

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime
    from hermes.cron.outcome import RunOutcome
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


def create_scheduler(runtime: "Runtime") -> "Scheduler":
    """The scheduler of a process: it runs jobs whose prompts this runtime answers."""
    from hermes.config.env import build_child_env
    from hermes.core.redaction.redactor import Redactor
    from hermes.cron.scheduler import Scheduler, SchedulerSettings

    setup = runtime.setup
    settings = SchedulerSettings(
        setup.home,
        setup.config.cron,
        build_child_env(setup.secrets),
        Redactor(setup.secrets.redactable_values()).redact,
    )
    return Scheduler(runtime.store.jobs, settings, partial(answer_job, runtime))


def open_schedule(runtime: "Runtime", transcript: Transcript, cwd: Path) -> ScheduleAccess:
    """What the tools of a conversation may do with the schedule."""
    from hermes.cron.conversation_jobs import ConversationJobs
    from hermes.cron.job_editor import JobEditor

    setup = runtime.setup
    editor = JobEditor(runtime.store.jobs, setup.home, setup.config.timezone)
    run_now = create_scheduler(runtime).run_now
    return ConversationJobs(editor, run_now, str(cwd), lambda: transcript.taint.bits)


async def answer_job(runtime: "Runtime", prompt: "JobPrompt") -> "RunOutcome":
    """Answer the prompt of a scheduled job in a new session with nobody present."""
    from hermes.cron.outcome import RunOutcome

    job = prompt.job
    session = await runtime.open_session(
        source="cron",
        key=job.id,
        cwd=Path(job.workdir) if job.workdir else runtime.working_folder,
        options=Options(ModelChoice(job.model), job.toolsets, job.max_turns),
    )
    try:
        account = Account(session.id, session.id, job=job.id, purpose="cron")
        session.host.account = account
        if job.budget_usd is not None:
            limit = job.budget_usd
            session.host.budget = structs.replace(session.host.budget, session_usd=limit)
        session.host.absorb_taint(Taint.from_bits(job.taint).sources)
        parts = [prompt.head]
        if prompt.data:
            session.host.absorb_taint(("private", "untrusted"))
            mark = wrapper_mark(session.id)
            parts.append(wrap_text(make_inert(prompt.data), mark, begin=True, end=True))
        result = await session.submit(user_message("\n\n".join([*parts, job.prompt])))
        text, is_complete = result.text, result.status == "completed"
        return RunOutcome("ok" if is_complete else "failed", text, result.error, session.id)
    finally:
        await session.close()
