"""Runs the cases of an evaluation on recorded answers: tools run, no provider is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from hermes.app.live.session_tape import AgentRecord, TapeTurn, load_agents, load_tape
from hermes.app.live.tape_redaction import rewrite_stream
from hermes.app.session import Session
from hermes.batch.eval_file import EvalFile
from hermes.batch.evaluation import CaseRunner, EvalExtent
from hermes.batch.replay.played_models import PlayedClients
from hermes.batch.replay.played_tape import PlayedTape
from hermes.batch.replay.player import load_conversation
from hermes.batch.results import SOURCE
from hermes.batch.run_folder import RunFolder, RunSettings
from hermes.config.load import Setup
from hermes.core.errors import ConfigError, Failure, Kind, ProviderError
from hermes.core.store import Store
from hermes.llm.http.tape import JOB, TapeEntry, TapeExchange
from hermes.store.sqlite import SqliteStore

_ALL = 1_000_000_000


class LooseTape(PlayedTape):
    """Answers in the order in which it was answered then, whatever is asked now: what tools print
    is not the same twice."""

    async def take_exchange(self, method: str, url: str, body: bytes) -> TapeExchange:
        queue = self._queues.get(JOB.get())
        while queue:
            entry = queue.popleft()
            if isinstance(entry, TapeExchange) and entry.digest:
                return entry
        raise ProviderError(Failure(Kind.BAD_REQUEST, "the tape has no further answer"))


class RecordedCases(CaseRunner):
    """A runner whose models answer from the tapes of an earlier run."""

    needs_model = False

    def __init__(
        self, setup: Setup, settings: RunSettings, store: Store, place: Path, source: RecordedRun
    ) -> None:
        super().__init__(setup, settings, store, place)
        self._source = source

    async def prepare_session(self, session: Session) -> None:
        item = session.transcript.meta.key.partition("/")[2]
        cwd = session.host.workspace.cwd
        turns, record, old = await self._source.load_item(item)
        entries = [_move_entry(entry, old, str(cwd)) for turn in turns for entry in turn.entries]
        tape = LooseTape(entries, session.interrupt)
        clients = PlayedClients(lambda: tape)
        session.host.agent = structs.replace(
            session.agent,
            providers=tuple(map(clients.get_client, record.endpoints)),
            specs=record.specs,
            settings=record.settings,
            limits=record.limits,
            compression=record.compression,
        )


def _move_entry(entry: TapeEntry, old: str, new: str) -> TapeEntry:
    """The entry with the folder of the earlier run replaced in what the model said."""
    if not isinstance(entry, TapeExchange) or not old:
        return entry
    body = rewrite_stream(entry.body, lambda text: text.replace(old, new))
    if body == entry.body:
        return entry
    return structs.replace(entry, body=body, sizes=[len(body)])


class RecordedRun:
    """The tapes of an earlier run of an evaluation."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._name = folder.path.name
        self._store = SqliteStore(folder.database)

    async def close(self) -> None:
        await self._store.close()

    async def find_extent(self, found: EvalFile) -> EvalExtent:
        """With which models, in their order, and how often the cases were run."""
        metas = await self._store.sessions.list_recent(limit=_ALL, source=SOURCE)
        begun = {meta.key.removeprefix(f"{self._name}/") for meta in metas}
        ids = [item.id for item in self._folder.read_items().items if item.id in begun]
        parts = [
            id.removeprefix(f"{case.name}#").rpartition("#")
            for case in found.cases
            for id in ids
            if id.startswith(f"{case.name}#")
        ]
        runs = [(model, int(number)) for model, _, number in parts if number.isdigit()]
        models = dict.fromkeys(model for model, _ in runs)
        return EvalExtent(tuple(models) or ("",), 1 + max((n for _, n in runs), default=0))

    async def load_item(self, item: str) -> tuple[Sequence[TapeTurn], AgentRecord, str]:
        """The recorded turns of an item, their agent, and the folder they worked in."""
        key = f"{self._name}/{item}"
        found = await self._store.sessions.list_recent(limit=1, source=SOURCE, key=key)
        if found:
            conversation = await load_conversation(self._store, found[0])
            turns = [t for id in conversation.metas for t in await load_tape(self._store, id)]
            agents = await load_agents(self._store, {turn.agent for turn in turns})
            if turns and turns[0].agent in agents:
                return turns, agents[turns[0].agent], found[0].cwd
        raise ConfigError(f"There is no tape of {item}; run the evaluation without --replay.")


def find_recorded_run(home: Path, stem: str) -> RunFolder:
    """The latest run of an evaluation file; ConfigError when there is none."""
    prefix = f"eval-{stem}-"
    found = sorted(
        file
        for file in (home / "batch").glob(f"{prefix}*/run.db")
        if file.parent.name.removeprefix(prefix).isdigit()  # else it is that of a longer name
    )
    if not found:
        raise ConfigError("There is no recorded run of this file; run it without --replay first.")
    return RunFolder(found[-1].parent)
