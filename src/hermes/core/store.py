"""The protocols and values of durable storage: sessions, search, mailbox, jobs, facts."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from hermes.core.errors import StoreError
from hermes.core.ledger import Ledger
from hermes.core.message import Message
from hermes.core.taint import Taint

T = TypeVar("T")
WEB_SOURCE = "web"
"""The source of sessions that were begun in a browser."""
SessionState: TypeAlias = Literal["idle", "running", "interrupted", "partial", "failed"]
"""Of a session's last turn. A `running` turn whose process is gone reads as `interrupted`."""
FactTarget: TypeAlias = Literal["memory", "user"]
"""Notes about the work, or about the user."""
FactState: TypeAlias = Literal["pinned", "stored", "pending", "archived"]
"""In the file that prompts show; found by search only; waiting for a person; removed."""
FactAction: TypeAlias = Literal["add", "replace", "remove"]


SUBAGENT = "subagent"
"""The source of sessions that work for another session."""


class SessionMeta(Struct, frozen=True):
    id: str
    source: str = "cli"
    """Which surface it belongs to: cli, api, telegram, ..."""
    key: str = ""
    """Where it lives on that surface: a chat, a channel; empty for one-shots."""
    cwd: str = ""
    title: str = ""
    system: str = ""
    """Frozen at birth: a byte-stable prefix keeps prompt caches warm. Lists leave it out."""
    model: str = ""
    parent: str = ""
    """Compression and branching start a child instead of editing the past."""
    state: SessionState = "idle"
    created: float = 0.0
    updated: float = 0.0
    messages: int = 0
    taint: Taint = Taint()
    """What it has read; a child starts with its parent's."""
    next: str = ""
    """The child this conversation went on in when it was compressed."""
    pinned: bool = False
    archived: bool = False


class SessionFilter(Struct, frozen=True):
    """Which sessions a list shows; empty texts: all."""

    source: str = ""
    state: str = ""
    title: str = ""
    """A part of the title."""
    archived: bool = False
    """Only archived ones; otherwise only others."""


NO_FILTER = SessionFilter()


class SessionEnd(Struct, frozen=True):
    """What a list shows of a session beside its record."""

    cost: float = 0.0
    text: str = ""
    """The end of its last message that is not a tool's."""


class SearchHit(Struct, frozen=True):
    session: SessionMeta
    seq: int
    role: str
    snippet: str
    created: float = 0.0


class StoredMessage(Struct, frozen=True):
    """A message and its place in the session."""

    seq: int
    created: float
    message: Message


InboxState: TypeAlias = Literal["waiting", "running", "done"]
OutboxState: TypeAlias = Literal["pending", "attempting", "delivered", "failed"]


class InboxEntry(Struct, frozen=True):
    """A message of a person. It is `running` from the moment it is part of a transcript."""

    platform: str
    chat: str
    id: str
    """The platform's own id of the message, unique in its chat."""
    key: str
    """The conversation it belongs to."""
    body: bytes
    n: int = 0
    state: InboxState = "waiting"
    received: float = 0.0
    session: str = ""
    """The session that answers it; empty while it waits."""


class OutboxEntry(Struct, frozen=True):
    """A reply. The replies to a chat are delivered in the order of `n`."""

    n: int
    platform: str
    chat: str
    body: bytes
    state: OutboxState = "pending"
    draft: bool = False
    """The turn that writes it still runs: it is shown as it grows, and delivered at its end."""
    inbox: int = 0
    """The message it answers; 0: none."""
    created: float = 0.0
    due: float = 0.0
    """Not to be tried before."""
    tries: int = 0
    error: str = ""
    progress: bytes = b""
    """What has reached the chat so far, as the sender records it."""


class Conversation(Struct, frozen=True):
    """What is kept for a conversation: its key stays, its session changes."""

    key: str
    session: str = ""
    suspended: bool = False
    """The next message starts a fresh session."""
    strikes: int = 0
    """Restarts in a row that interrupted it."""
    used: float = 0.0
    """When its last message came."""
    settings: bytes = b""


class MailboxChange(Struct, frozen=True):
    """Changes of the mailbox that become durable together with a message of a transcript."""

    running: tuple[int, ...] = ()
    done: tuple[int, ...] = ()
    session: str = ""
    """The session of the entries in `running`."""
    replies: tuple[OutboxEntry, ...] = ()
    """Added, or replaced where the number exists."""
    conversation: Conversation | None = None
    finished: str = ""
    """The key of a conversation whose turn ended: restarts are counted anew."""
    run: "RunDelivery | None" = None


class RunDelivery(Struct, frozen=True):
    """What became of the result of a job's run."""

    job: str
    due: int
    state: Literal["delivered", "failed"]


class MailboxCounts(Struct, frozen=True):
    waiting: int = 0
    running: int = 0
    pending: int = 0
    attempting: int = 0
    failed: int = 0


class Pairing(Struct, frozen=True):
    """A person who was let in, or who waits for it: then `code` is the hash of their code."""

    platform: str
    user: str
    name: str
    chat: str
    created: float
    approved: bool = False
    code: str = ""


class SessionStore(Protocol):
    """Sessions and their messages."""

    async def create(self, meta: SessionMeta) -> None: ...

    async def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        state: SessionState | None = None,
        create: SessionMeta | None = None,
        taint: Taint | None = None,
        mailbox: MailboxChange | None = None,
    ) -> int:
        """Add messages, set the state, change the mailbox and, with the first message, create the
        session: all in one transaction. The bits of `taint` are added to those the session has.
        Returns the place of the last message, -1 without any.

        Refused while a turn of this session runs in another living process.
        """

    async def continue_in_child(
        self, session_id: str, child: SessionMeta, messages: Sequence[Message], state: SessionState
    ) -> None:
        """Continue the conversation in a child that begins with these messages: one transaction.
        The parent stays as it is, except that its `next` names the child."""

    async def set_state(
        self, session_id: str, state: SessionState, *, mailbox: MailboxChange | None = None
    ) -> None: ...

    async def update_meta(
        self,
        session_id: str,
        *,
        title: str | None = None,
        model: str | None = None,
        pinned: bool | None = None,
        archived: bool | None = None,
    ) -> None:
        """None leaves a value as it is."""

    async def delete(self, session_id: str) -> bool:
        """Delete a conversation with all the sessions it was compressed into."""

    async def get_meta(self, session_id: str) -> SessionMeta | None: ...

    async def load_messages(self, session_id: str) -> list[Message]: ...

    def stream_messages(self, session_id: str, *, after: int = -1) -> AsyncIterator[StoredMessage]:
        """All messages behind the one with this number, in order, fetched page by page."""

    async def load_window(
        self, session_id: str, *, after: int = -1, before: int = 1 << 24, limit: int, last: bool
    ) -> list[StoredMessage]:
        """Messages between two places, both excluded, in order: the first ones, or the `last`.
        Takes as long at the beginning of a long session as at its end."""

    async def list_recent(
        self,
        *,
        limit: int = 50,
        cwd: str | None = None,
        source: str | None = None,
        key: str | None = None,
    ) -> list[SessionMeta]:
        """The most recently used first; of a compressed conversation only where it continues."""

    async def list_by_owner(
        self,
        owner: str,
        *,
        others: bool = False,
        limit: int = 50,
        offset: int = 0,
        only: SessionFilter = NO_FILTER,
    ) -> list[SessionMeta]:
        """The sessions of one client of the server (`key` is owner/...), the most recently used
        first; `others`: also those of all other surfaces."""

    async def load_ends(self, session_ids: Sequence[str]) -> dict[str, SessionEnd]:
        """What each of these sessions cost, and how it ends."""

    async def find_latest(
        self, *, cwd: str | None = None, source: str | None = None, key: str | None = None
    ) -> SessionMeta | None:
        """The most recently used session of this folder, surface and key."""

    async def find_by_prefix(self, prefix: str, *, limit: int = 20) -> list[SessionMeta]:
        """Sessions whose id starts with the prefix."""


class SearchFilter(Struct, frozen=True):
    """Which messages a search is about; None: any."""

    source: str | None = None
    key: str | None = None
    role: str | None = None
    since: float | None = None
    newest: bool = False
    """Whether the newest come first instead of the best."""
    per_session: int | None = None
    """Most messages of one session."""


class MessageSearch(Protocol):
    async def find_messages(
        self, query: str, *, limit: int = 20, within: SearchFilter | None = None
    ) -> list[SearchHit]:
        """Messages that contain all the words and "quoted phrases", best first; if there are none,
        those with words that begin so, then those with words that contain them. Nothing in a query
        is an operator, and no query is an error."""


class StoreMaintenance(Protocol):
    async def back_up(self, path: str) -> None:
        """Write a consistent copy to a path that must not exist yet, while writing continues."""

    async def reclaim_space(self) -> None:
        """Give back the space of deleted sessions, if it is worthwhile and nobody has to wait."""

    async def check_integrity(self) -> list[str]:
        """Read the whole file; its problems in SQLite's words, none when all is well."""

    def find_problem(self) -> StoreError | None:
        """Why nothing could be stored at this moment; None if it could."""


class Store(Protocol):
    """Whatever was written is on disk when the call returns (synchronous=FULL).

    Every failure is a StoreError. Cancelling a wait does not undo the write: it happens anyway.
    """

    @property
    def sessions(self) -> SessionStore: ...

    @property
    def search(self) -> MessageSearch: ...

    @property
    def maintenance(self) -> StoreMaintenance: ...

    @property
    def ledger(self) -> Ledger: ...

    @property
    def objects(self) -> "Objects": ...

    @property
    def jobs(self) -> "JobStore": ...

    @property
    def facts(self) -> "Facts": ...

    async def wait_until_open(self) -> tuple[str, ...]:
        """Returns what the user should be told, one sentence each."""

    async def close(self) -> None: ...


class Object(Struct, frozen=True):
    kind: str
    id: str
    owner: str
    created: float
    body: bytes


class Objects(Protocol):
    """Whatever was written is on disk when the call returns. A kind is a namespace; only its
    `owner` gets an object."""

    async def put(
        self, kind: str, id: str, body: bytes, *, owner: str = "", keep_latest: int | None = None
    ) -> None:
        """Add or replace. `keep_latest`: how many of this kind and owner remain; the least recently
        used are deleted first, with their events."""

    async def trim(
        self, kind: str, keep_latest: int, *, owner: str, spare: Collection[str]
    ) -> None:
        """Delete all but the most recently used; those in `spare` remain in any case."""

    async def add(self, kind: str, id: str, body: bytes, *, owner: str = "") -> bool:
        """Add; False, with nothing changed, when it exists already."""

    async def get(self, kind: str, id: str, *, owner: str, touch: bool = False) -> Object | None:
        """None also when another owner has it. `touch`: counts as a use."""

    async def remove(self, kind: str, id: str, *, owner: str) -> bool: ...

    async def list_all(self, kind: str, *, owner: str | None = None) -> list[Object]:
        """The oldest first."""

    async def append_events(self, stream: str, first: int, events: Sequence[bytes]) -> None:
        """Add events numbered from `first`; one that exists already stays as it is."""

    async def read_events(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[bytes]:
        """Events with a higher number, in order."""


MissedPolicy: TypeAlias = Literal["one", "skip", "all"]
"""What happens to times at which no scheduler ran: one run for the newest, none, or all."""
RunState: TypeAlias = Literal[
    "claimed", "running", "ok", "failed", "timeout", "interrupted", "skipped", "missed"
]
"""`skipped`: the job was still running; `missed`: nobody ran it in time."""
DeliveryState: TypeAlias = Literal["none", "silent", "pending", "delivered", "failed"]


class ScheduledJob(Struct, frozen=True, omit_defaults=True):
    """A job of the schedule. Times are seconds since 1970."""

    id: str
    name: str
    schedule: str
    """As its maker wrote it."""
    zone: str
    """The name of the time zone that it is meant in."""
    prompt: str = ""
    deliver: tuple[str, ...] = ("local",)
    origin: str = ""
    """The key of the conversation in a messenger that made it."""
    model: str = ""
    toolsets: tuple[str, ...] | None = None
    workdir: str = ""
    skills: tuple[str, ...] = ()
    """Skills whose instructions each run begins with."""
    script: str = ""
    """A file of the folder `scripts`, run before the prompt is answered."""
    no_agent: bool = False
    """Whether the output of the script is the result, without a model."""
    repeat: int | None = None
    """After how many runs it ends; None: never."""
    missed: MissedPolicy = "one"
    timeout: float = 1800.0
    max_turns: int = 30
    budget_usd: float | None = None
    """Most dollars that one run may cost."""
    jitter: float = 0.0
    """Each run begins up to this many seconds late, so that many jobs do not begin at once."""
    taint: int = 0
    """What its maker had read, as the bits of `Taint`: a run has read it too."""
    created: float = 0.0
    anchor: float = 0.0
    """When its schedule began."""
    next: int | None = None
    """The next time that it is due; None: it has ended."""
    wake: int | None = None
    """The same with jitter."""
    paused: bool = False
    runs: int = 0
    failures: int = 0
    """Failed runs in a row."""
    error: str = ""
    """Of the last run, if that failed."""
    error_told: float = 0.0
    """When that error was last delivered."""


class JobRun(Struct, frozen=True):
    """One time at which a job was due. Job and due time are its key: whoever stores it first has
    claimed it."""

    job: str
    due: int
    state: RunState
    delivery: DeliveryState = "none"
    late: int = 0
    """Seconds between the due time and the claim."""
    session: str = ""
    began: float = 0.0
    ended: float = 0.0
    error: str = ""
    text: str = ""
    """What is delivered."""
    output: str = ""
    """The name of the file with the result; empty: not written."""


class JobStore(Protocol):
    """The jobs of the schedule and their runs."""

    async def add_job(self, job: ScheduledJob) -> None: ...

    async def change_job(
        self, job_id: str, change: Callable[[ScheduledJob], ScheduledJob]
    ) -> ScheduledJob | None:
        """Read, change and write in one transaction; None when there is no such job."""

    async def remove_job(self, job_id: str) -> bool:
        """Remove a job and its runs."""

    async def list_jobs(self) -> list[ScheduledJob]:
        """The oldest first."""

    async def list_due(self, now: float) -> list[ScheduledJob]: ...

    async def claim_runs(
        self, job: ScheduledJob, advanced: ScheduledJob, runs: Sequence[JobRun]
    ) -> list[JobRun]:
        """Store the runs and the next time of the job, unless another process was faster or the
        job was changed. While an earlier run goes on, those to claim are stored as skipped.
        Returns the runs that this process has to execute."""

    async def start_run(self, run: JobRun, began: float) -> bool:
        """Mark a claimed run as running; False when its job was removed."""

    async def settle_run(
        self,
        run: JobRun,
        settle: Callable[[ScheduledJob, JobRun], tuple[ScheduledJob, JobRun]],
    ) -> JobRun | None:
        """Store how a run of this process, or of a dead one, ended and what that means for its
        job. None when it had ended already or its job was removed."""

    async def set_output(self, run: JobRun, output: str) -> None:
        """Name the file with the result; what is pending and local only is delivered then."""

    async def list_abandoned(self) -> list[JobRun]:
        """Runs whose process ended before they did, and ended ones whose result it did not
        write."""

    async def list_runs(self, job_id: str | None = None, *, limit: int = 50) -> list[JobRun]:
        """The newest first."""

    async def list_undelivered(self) -> list[JobRun]:
        """Ended runs whose result waits for its delivery, the oldest first."""


class Fact(Struct, frozen=True):
    id: int
    scope: str
    """Whose memory it belongs to."""
    target: FactTarget
    text: str
    state: FactState
    created: float
    session: str = ""
    """The session that wrote it; empty: a person did."""
    user: str = ""
    origin: str = ""
    """Who wrote it: tool, review, person or file."""
    action: FactAction = "add"
    """What happens to it, or to the fact `old`, when a pending one is approved."""
    old: int = 0

    @property
    def name(self) -> str:
        """Its id for people and models."""
        return f"f{self.id}"


DELIVERIES = "memory-delivery"
"""The kind of objects that a memory provider is still to be told."""


class FactTable(Protocol):
    """The facts inside one transaction."""

    def list_facts(
        self, scope: str, target: FactTarget | None = None, *, states: Sequence[FactState]
    ) -> list[Fact]:
        """The oldest first; with an empty scope those of all."""

    def count_stored(self, scope: str, target: FactTarget) -> int: ...

    def find_fact(self, number: int) -> Fact | None: ...

    def insert_fact(self, fact: Fact) -> Fact:
        """The fact with the id that it got."""

    def change_state(self, number: int, state: FactState) -> None: ...

    def delete_fact(self, number: int) -> None: ...

    def search_facts(
        self, scopes: Sequence[tuple[str, FactTarget]], query: str, *, limit: int
    ) -> list[Fact]:
        """Pinned and stored facts that contain all the words, else any of them; best first."""

    def mark_used(self, numbers: Sequence[int]) -> None: ...

    def drop_surplus(self, scope: str, keep: int) -> None:
        """Delete the stored facts of a scope that were unused longest, beyond `keep` facts."""

    def drop_archived(self, before: float) -> None:
        """Delete the facts that were archived before this time."""

    def list_scopes(self) -> list[tuple[str, int]]:
        """Each scope and how many facts it shows or finds."""

    def queue_delivery(self, body: bytes) -> None:
        """Add an object of the kind `DELIVERIES`, whose id sorts behind those of the others."""


class Facts(Protocol):
    """Runs a function with the table in a transaction that excludes every other writer."""

    async def change(self, run: Callable[[FactTable], T]) -> T: ...

    async def read(self, run: Callable[[FactTable], T]) -> T: ...
