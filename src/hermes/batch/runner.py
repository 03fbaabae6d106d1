"""Answers the items of a run: one process, many conversations at a time, each item once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from msgspec import Struct, structs

from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.app.session_records import store_branch
from hermes.batch.checkout import take_patch
from hermes.batch.dataset import BatchItem, read_prefill
from hermes.batch.distributions import choose_toolsets, find_distribution
from hermes.batch.image_files import TESTBED
from hermes.batch.rate_limit import CallLimit, RateLimit, Rates, SharedStart
from hermes.batch.results import SOURCE, ItemError, ItemRecord, ItemState, Results
from hermes.batch.run_folder import RunSettings
from hermes.batch.workspace import (
    is_workspace_free,
    make_empty_workspace,
    prepare_workspace,
    remove_workspace,
)
from hermes.config.env import build_child_env
from hermes.config.load import Setup
from hermes.config.schema import BudgetSection
from hermes.core.errors import ConfigError, HermesError, StoreError
from hermes.core.events import TurnResult
from hermes.core.ledger import Account
from hermes.core.message import Message, user_message
from hermes.core.store import Store
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.tools.registry import list_toolset_words, select_tools

_FINAL_CODES = frozenset("auth billing budget config model_not_found timeout".split())
"""Failures that another attempt would meet again."""
_ITEM_LIMIT: ContextVar[asyncio.Timeout | None] = ContextVar("item_limit", default=None)
"""How long the item of this task may take."""
_STATES: Mapping[str, ItemState] = {"completed": "done", "partial": "partial"}


class RunProgress(Struct):
    """What a process has done since it began."""

    total: int = 0
    done: int = 0
    failed: int = 0
    cost: float = 0.0
    tokens: int = 0
    over_budget: bool = False


class ItemRunner:
    """Runs items until none is left or it is told to stop. `claim` says whether an item is this
    process's to do."""

    needs_model = True
    """Whether sessions need a model that can be called."""
    needs_folders = False
    """Whether every item has a folder of its own, also one whose tools have no use for it."""

    def __init__(
        self,
        setup: Setup,
        settings: RunSettings,
        store: Store,
        place: Path,
        claim: Callable[[BatchItem], Awaitable[bool]] | None = None,
        rate_file: Path | None = None,
    ) -> None:
        """`rate_file`: where processes of the run note when the next call may start."""
        self.setup = confine_setup(setup)
        self._settings = settings
        self.name = settings.name
        self._store = store
        self._place = place
        self._claim = claim
        self._results = Results(store, settings.name)
        self._prefill = read_prefill(Path(settings.prefill)) if settings.prefill else ()
        self._rate_file = rate_file
        self._limit = self.make_limit()
        self._selections: dict[tuple[str, ...] | None, frozenset[str] | None] = {}
        """The names of the tools that toolsets select; None: not known."""
        self._client_env = build_child_env(setup.secrets)
        self._runtime: Runtime | None = None
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self.progress = RunProgress()
        self.stopping = asyncio.Event()
        """Set: no further item is taken."""

    async def run_items(self, items: Sequence[BatchItem]) -> None:
        """Answer the items, so many at a time as the settings say. StoreError when the end of one
        cannot be noted."""
        self.progress.total = len(items)
        queue = iter(items)
        try:
            async with self._stack, asyncio.TaskGroup() as group:
                for _ in range(min(self._settings.concurrency, len(items))):
                    group.create_task(self._work_through(queue))
        except ExceptionGroup as errors:
            if (found := errors.subgroup(StoreError)) is None:
                raise
            raise _find_first(found) from None

    async def _work_through(self, queue: Iterable[BatchItem]) -> None:
        for item in queue:
            if self.stopping.is_set():
                return
            if self._claim is not None and not await self._claim(item):
                self.progress.total -= 1
                continue
            await self._run_item(item)

    async def _run_item(self, item: BatchItem) -> None:
        attempt = 0
        while (record := await self._try_item(item, attempt)) is not None:
            if record.error is not None and record.error.code == "internal":
                self._check_store()
            is_final = record.error is None or record.error.code in _FINAL_CODES
            if record.state != "failed" or is_final or attempt == self._settings.retries:
                break
            attempt += 1
        if record is None:  # the budget is used up: the item waits for a resume
            self.progress.over_budget = True
            self.stopping.set()
            return
        await self.record_item(record)

    def _check_store(self) -> None:
        """StoreError when it was the store that failed: no item is to blame for a full disk."""
        if (problem := self._store.maintenance.find_problem()) is not None:
            raise problem

    async def record_item(self, record: ItemRecord) -> None:
        """Note how the item ended; from here on it is not done again."""
        await self._results.record_end(record)
        if record.state == "failed":
            self.progress.failed += 1
        else:
            self.progress.done += 1

    async def _try_item(self, item: BatchItem, attempt: int) -> ItemRecord | None:
        """How the attempt ended; None: the budget of the run does not suffice."""
        began = time.monotonic()
        toolsets = self._choose_toolsets(item)
        try:
            cwd = await self._prepare_workspace(item, attempt, toolsets)
            async with (
                self._provide_runtime(item) as runtime,
                self._open_session(runtime, item, toolsets, cwd) as session,
            ):
                result = await self.answer_item(session, item)
                if result.error_code == "budget" and not await self._is_item_cap(item):
                    return None
                return await self._describe_end(item, session, result, toolsets, began)
        except HermesError as error:
            code = "config" if isinstance(error, ConfigError) else "internal"
            return self._describe_failure(item, code, str(error), began)
        except OSError as error:
            reason = error.strerror or str(error)[:500]  # copies name several failures
            text = f"The workspace could not be made: {reason}."
            return self._describe_failure(item, "workspace", text, began)
        finally:
            if not self._shares_folder(item, toolsets):
                await asyncio.to_thread(remove_workspace, self._place, item, attempt)

    async def _prepare_workspace(
        self, item: BatchItem, attempt: int, toolsets: tuple[str, ...] | None
    ) -> Path:
        """A folder of its own, unless nothing could ever be in it."""
        if self._shares_folder(item, toolsets):
            return self._empty_folder
        return await asyncio.to_thread(
            prepare_workspace, self._place, item, attempt, self._client_env, self.setup.home
        )

    @cached_property
    def _empty_folder(self) -> Path:
        return make_empty_workspace(self._place)

    def _shares_folder(self, item: BatchItem, toolsets: tuple[str, ...] | None) -> bool:
        config = self.setup.config
        if self.needs_folders or config.plugins.enabled or config.mcp_servers:
            return False
        if toolsets not in self._selections:
            try:
                found = select_tools(toolsets, platform=SOURCE, settings=config.tools)
            except ConfigError:  # it ends the item
                self._selections[toolsets] = None
            else:
                self._selections[toolsets] = frozenset(found)
        tools = self._selections[toolsets]
        return tools is not None and is_workspace_free(item, tools)

    async def answer_item(self, session: Session, item: BatchItem) -> TurnResult:
        """Put the item's prompt to the model."""
        return await self.submit_prompt(session, user_message(item.prompt))

    async def submit_prompt(
        self, session: Session, message: Message, spent: float = 0.0
    ) -> TurnResult:
        """Put a prompt to the model. `spent`: seconds that the item has taken already."""
        try:
            async with asyncio.timeout(self._settings.item_seconds - spent) as limit:
                token = _ITEM_LIMIT.set(limit)
                try:
                    result = await session.submit(message)
                finally:
                    _ITEM_LIMIT.reset(token)
        except TimeoutError:
            text = f"The item took longer than {self._settings.item_seconds:g} s."
            return TurnResult("failed", error=text, error_code="timeout")
        if self._limit is not None:
            self._limit.charge(result.usage.output)
        self.progress.cost += result.usage.cost or 0.0
        self.progress.tokens += result.usage.input + result.usage.output
        return result

    async def _is_item_cap(self, item: BatchItem) -> bool:
        """Whether it was the item's own cap that stopped it, not one of the run or of the day."""
        if self._settings.item_usd is None:
            return False
        rows = await self._store.ledger.sum_calls("user", 0.0)
        spent = sum(row.cost for row in rows if row.key == self._results.make_key(item.id))
        left = self._settings.item_usd - spent
        if (limit := self._settings.max_usd) is not None:
            key = self._results.make_key("")
            total = sum(row.cost for row in rows if row.key.startswith(key))
            if limit - total <= left:
                return False
        if (limit := self.setup.config.budget.daily_usd) is not None:
            midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0)
            today = await self._store.ledger.sum_calls("user", midnight.timestamp())
            return limit - sum(row.cost for row in today) > left
        return True

    async def _describe_end(
        self,
        item: BatchItem,
        session: Session,
        result: TurnResult,
        toolsets: tuple[str, ...] | None,
        began: float,
    ) -> ItemRecord:
        state: ItemState = _STATES.get(result.status, "failed")
        if state == "done" and self._settings.require_reasoning:
            answers = [m for m in result.messages if m.role == "assistant"]
            if not any(m.thinking.strip() for m in answers):
                state = "filtered"
        digest = await self._results.store_tools(session.agent.specs)
        patch = ""
        if item.commit:
            folder = session.host.workspace.cwd
            patch = await asyncio.to_thread(take_patch, folder, item.commit)
        error = None
        if state in ("failed", "partial"):
            code = result.error_code or result.status
            text = result.error or "The turn did not end."
            if code == "budget":  # of the item: that of the run ends no item
                text = (
                    f"The cap of the item, ${self._settings.item_usd:g} (--item-usd), is reached."
                )
            error = ItemError(code, text)
        return ItemRecord(
            item.id,
            state,
            session.id,
            _format_now(),
            round(time.monotonic() - began, 3),
            result.target.model if result.target else session.transcript.meta.model,
            digest,
            toolsets if toolsets is not None else (),
            error,
            patch,
        )

    def _describe_failure(self, item: BatchItem, code: str, text: str, began: float) -> ItemRecord:
        seconds = round(time.monotonic() - began, 3)
        return ItemRecord(
            item.id, "failed", "", _format_now(), seconds, error=ItemError(code, text)
        )

    @asynccontextmanager
    async def _open_session(
        self, runtime: Runtime, item: BatchItem, toolsets: tuple[str, ...] | None, cwd: Path
    ) -> AsyncIterator[Session]:
        settings = self._settings
        model = item.model or settings.model
        options = Options(ModelChoice(model), toolsets, settings.max_turns, record=settings.record)
        session = await runtime.open_session(
            source=SOURCE,
            key=self._results.make_key(item.id),
            cwd=cwd,
            options=options,
            needs_model=self.needs_model,
        )
        system = "\n\n".join(text for text in (settings.system, item.system) if text)
        meta = session.transcript.meta
        if system:
            meta = structs.replace(meta, system=f"{meta.system}\n\n{system}")
            session.transcript.meta = meta
        past: tuple[Message, ...] = (*self._prefill, *item.past)
        if past:
            await session.close()
            stored = await store_branch(self._store, meta, meta.taint, past)
            session = await runtime.open_session(resume=stored, cwd=cwd, options=options)
        host = session.host
        key = self._results.make_key(item.id)
        host.account = Account(session.id, f"batch:{settings.name}", key, settings.name, SOURCE)
        host.budget = limit_run(host.budget, settings)
        try:
            await self.prepare_session(session)
            yield session
        finally:
            await session.close()
            await runtime.background_commands.stop_running(session.transcript.meta)

    async def prepare_session(self, session: Session) -> None:
        """Called with every session before it is asked anything."""

    def _choose_toolsets(self, item: BatchItem) -> tuple[str, ...] | None:
        if item.toolsets is not None:
            return item.toolsets
        if not self._settings.distribution:
            return self._settings.toolsets
        configured = self.setup.config.batch.distributions
        chances = find_distribution(self._settings.distribution, configured)
        words = list_toolset_words()
        return choose_toolsets(chances, words, self._settings.seed, item.id) or ("none",)

    @asynccontextmanager
    async def _provide_runtime(self, item: BatchItem) -> AsyncIterator[Runtime]:
        """The runtime of all items, or one for an item with an image of its own."""
        if not item.image:
            yield await self.get_runtime()
            return
        mirror = TESTBED if item.commit else ""
        async with self._open_runtime(use_container(self.setup, item.image, mirror)) as runtime:
            yield runtime

    async def get_runtime(self) -> Runtime:
        """The runtime that items share."""
        async with self._opening:
            if self._runtime is None:
                image = self._settings.image
                setup = use_container(self.setup, image) if image else self.setup
                opened = self._open_runtime(setup)
                self._runtime = await self._stack.enter_async_context(opened)
        return self._runtime

    @asynccontextmanager
    async def _open_runtime(self, setup: Setup) -> AsyncIterator[Runtime]:
        async with Runtime.open(setup, store=self._store) as runtime:
            self.prepare_runtime(runtime)
            yield runtime

    def prepare_runtime(self, runtime: Runtime) -> None:
        """Called with every runtime before it is used."""
        runtime.hidden = tuple(map(Path, self._settings.hidden))
        if self._limit is not None:
            runtime.transport.before_call = self._admit_call

    async def _admit_call(self, size: int) -> None:
        """Wait until a call may start. The time of the item does not run meanwhile."""
        assert self._limit is not None
        limit = _ITEM_LIMIT.get()
        due = limit.when() if limit is not None else None
        if limit is None or due is None:
            await self._limit.admit(size)
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        with suppress(RuntimeError):  # the item has ended; something of it goes on
            limit.reschedule(None)
        try:
            await self._limit.admit(size)
        finally:
            with suppress(RuntimeError):
                limit.reschedule(due + loop.time() - began)

    def make_limit(self) -> CallLimit | None:
        """The limit of the model calls of the run."""
        rpm, tpm = self._settings.rpm, self._settings.tpm
        if rpm is None and tpm is None:
            return None
        due = SharedStart(self._rate_file) if self._rate_file is not None else None
        return RateLimit(Rates.per_minute(rpm, tpm), due)


def _find_first(group: ExceptionGroup[StoreError]) -> StoreError:
    first = group.exceptions[0]
    return _find_first(first) if isinstance(first, ExceptionGroup) else first


def confine_setup(setup: Setup) -> Setup:
    """Nobody is there to approve: commands run in the sandbox or not at all, and nothing that the
    operator wrote for conversations joins the data."""
    config = setup.config
    sandbox = structs.replace(config.sandbox, mode="workspace-write", required=True)
    memory = structs.replace(config.memory, enabled=False)
    skills = structs.replace(config.skills, index_bytes=0)
    config = structs.replace(config, sandbox=sandbox, memory=memory, skills=skills)
    return structs.replace(setup, config=config)


def limit_run(budget: BudgetSection, settings: RunSettings) -> BudgetSection:
    """The caps of a run and of its items; of those configured only the ones of a day hold: a run is
    neither a conversation nor a person."""
    return structs.replace(
        budget,
        session_usd=settings.max_usd,
        user_usd=settings.item_usd,
        job_usd=None,
        session_tokens=None,
        user_tokens=None,
        job_tokens=None,
    )


def use_container(setup: Setup, image: str, mirror: str = "") -> Setup:
    """Commands run in a container of this image, one per conversation. `mirror`: another path at
    which it has the workspace."""
    terminal = setup.config.terminal
    docker = structs.replace(terminal.docker, image=image, container="", mirror=mirror)
    terminal = structs.replace(terminal, backend="docker", docker=docker)
    return structs.replace(setup, config=structs.replace(setup.config, terminal=terminal))


def _format_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
