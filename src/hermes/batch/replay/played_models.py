"""Model endpoints that answer from a tape: transport, credentials, meter, auxiliary models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
from msgspec import structs
from typing_extensions import override

from hermes.agent.turn import Agent, CallTicket, ModelClient
from hermes.app.auxiliary import AuxiliaryModels
from hermes.app.meter import Meter
from hermes.batch.replay.played_tape import PlayedTape
from hermes.config.schema import BudgetSection
from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.ledger import Account, OverBudget
from hermes.core.provider import Request
from hermes.core.store import Store
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.auth.key_pool import Credential
from hermes.llm.client import Client
from hermes.llm.credential_use import CredentialUse
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.http.tape import TapeExchange, mark_job
from hermes.llm.http.transport import Exchange, Transport

GetTape = Callable[[], PlayedTape]
"""Returns the tape of the turn that is played now."""


class PlayedExchange(Exchange):
    """A recorded response, read in the pieces in which it came."""

    __slots__ = ("_at", "_entry", "_pieces", "_tape")

    def __init__(self, entry: TapeExchange, tape: PlayedTape) -> None:
        self._entry, self._tape = entry, tape
        self._pieces = iter(entry.sizes)
        self._at = 0
        self.host, self.status = entry.host, entry.status
        self.headers: Mapping[str, str] = _FoldedHeaders(entry.headers)
        self.content_type = entry.content_type

    async def read(self) -> bytes:
        size = next(self._pieces, 0)
        if size:
            self._at += size
            return self._entry.body[self._at - size : self._at]
        if self._entry.failure is not None:
            raise ProviderError(self._entry.failure)
        if self._entry.is_cut:
            await end_cut_call(self._tape)
        return b""

    def close(self) -> None:
        pass


async def end_cut_call(tape: PlayedTape) -> None:
    """End a call whose wait was cancelled: by the user, or by a time limit that did no harm."""
    if tape.is_interrupt_next:
        tape.interrupt_turn()
        await tape.wait_stopped()
    raise ProviderError(Failure(Kind.STALLED, "the recorded call ended here"))


class _FoldedHeaders(dict[str, str]):
    """Headers whose names may be asked for in any case."""

    def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
        return super().get(name.lower(), default)


class PlayedTransport(Transport):
    """Sends nothing: every response comes from the tape."""

    def __init__(self, get_tape: GetTape) -> None:
        super().__init__()
        self._get_tape = get_tape

    @override
    async def _open_exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, fresh: bool
    ) -> Exchange:
        tape = self._get_tape()
        entry = await tape.take_exchange(method, url, body)
        if not entry.status:
            if entry.failure is not None:
                raise ProviderError(entry.failure)
            await end_cut_call(tape)
        return PlayedExchange(entry, tape)

    def find_proxy(self, url: str) -> str:
        return ""


class PlayedCredentials(CredentialUse):
    """Decides about credentials as it was decided then; there is no key."""

    def __init__(self, endpoint: ModelEndpoint, transport: Transport, get_tape: GetTape) -> None:
        super().__init__(endpoint, transport, Cooldowns(), asyncio.sleep)
        self._get_tape = get_tape

    async def prepare_call(self) -> Credential:
        tape = self._get_tape()
        entry = tape.peek()
        key = Credential()
        if isinstance(entry, TapeExchange):
            key = Credential(entry.key_source, login="login" if entry.is_login else "")
        task = asyncio.current_task()
        if task is not None:
            self._used[task] = key
        if (unsent := tape.take_unsent()) is not None and unsent.failure is not None:
            raise ProviderError(unsent.failure)
        return key

    async def prepare_query(self) -> Credential:
        return Credential()

    async def sign_headers(self, key: Credential, url: str, body: bytes) -> dict[str, str]:
        return {}

    def rotate_key(self, failure: Failure) -> bool:
        choice = self._get_tape().take_choice("rotate_key")
        return choice is not None and bool(choice.value)

    async def refresh_login(self) -> bool:
        choice = self._get_tape().take_choice("refresh_login")
        return choice is not None and bool(choice.value)

    def pause_key(self, seconds: float) -> None:
        pass

    def redact_failure(self, failure: Failure) -> Failure:
        return structs.replace(failure, retry_after=self._get_tape().find_retry_after(failure))


class PlayedMeter(Meter):
    """Admits and refuses calls as it was decided then."""

    __slots__ = ("_get_tape",)

    def __init__(self, store: Store, session_id: str, get_tape: GetTape) -> None:
        account = Account(session_id, session_id)
        super().__init__(store, BudgetSection(), account, lambda event: None, lambda text: "")
        self._get_tape = get_tape

    def for_purpose(self, purpose: str) -> PlayedMeter:
        return self

    async def reserve_call(self, client: ModelClient, request: Request) -> CallTicket:
        tape = self._get_tape()
        if (refusal := tape.take_choice("over_budget")) is not None:
            raise OverBudget(str(refusal.value))
        ticket = await super().reserve_call(client, request)
        if (limit := tape.take_choice("max_output")) is not None:
            settings = structs.replace(request.settings, max_output=limit.value)
            request = structs.replace(request, settings=settings)
            ticket = structs.replace(ticket, request=request)
        return ticket


class PlayedJobModels(AuxiliaryModels):
    """The models that did auxiliary jobs then."""

    def __init__(
        self, get_client: Callable[[ModelEndpoint], ModelClient], get_tape: GetTape
    ) -> None:
        self._make_client = get_client
        self._get_tape = get_tape

    def find_clients(self, job: str, main: Agent) -> tuple[ModelClient, ...]:
        with mark_job(job):
            choice = self._get_tape().take_choice("job_models")
        found = msgspec.convert(choice.value if choice else [], list[ModelEndpoint])
        return tuple(map(self._make_client, found))

    def find_window(self, job: str, main: Agent) -> int | None:
        with mark_job(job):
            entry = self._get_tape().peek()
        value = getattr(entry, "value", None)
        found = msgspec.convert(value or [], list[ModelEndpoint])
        return next((endpoint.context_length for endpoint in found), None)

    def pause_job(self, job: str, why: str) -> None:
        pass


class PlayedClients:
    """The clients of a replay, one per endpoint."""

    def __init__(self, get_tape: GetTape) -> None:
        self._get_tape = get_tape
        self.transport = PlayedTransport(get_tape)
        self._clients: dict[bytes, Client] = {}

    def get_client(self, endpoint: ModelEndpoint) -> Client:
        key = msgspec.msgpack.encode(endpoint)
        if key not in self._clients:
            credentials = PlayedCredentials(endpoint, self.transport, self._get_tape)
            self._clients[key] = Client(endpoint, self.transport, credentials=credentials)
        return self._clients[key]
