"""Questions to a model outside the conversation: summaries, titles, images, reviews."""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar

from msgspec import structs

from hermes.agent.error_messages import describe_failure
from hermes.agent.recovery import Attempt
from hermes.agent.step import TurnStopped, sample_message
from hermes.agent.turn import Agent, CallMeter, EndpointLessons, ModelClient, Turn, sees_images
from hermes.app.context_window import MIN_SUMMARIZER_WINDOW
from hermes.app.meter import Meter
from hermes.config import schema
from hermes.config.load import Setup
from hermes.core.errors import ConfigError, ProviderError, ToolError
from hermes.core.events import TurnEvent
from hermes.core.history import History
from hermes.core.ledger import OverBudget
from hermes.core.message import Media, Message, Target, ToolCall, Usage, user_message
from hermes.core.provider import Request, Settings
from hermes.core.store import SessionState
from hermes.core.taint import Source
from hermes.core.tool import Workspace
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint, strip_endpoint
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.http.tape import TAPE, mark_job
from hermes.llm.http.watchdog import Timeouts
from hermes.llm.providers import find_provider
from hermes.llm.side_requests.media import MediaAnswer, TextAnswer

log = logging.getLogger(__name__)

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
AnswerT = TypeVar("AnswerT", MediaAnswer, TextAnswer)
JOB_SECONDS = {
    "compression": 180.0,
    "image": 240.0,
    "speech": 120.0,
    "title": 30.0,
    "transcription": 120.0,
    "vision": 120.0,
    "web_extract": 90.0,
}
"""The longest one call of a job may take, unless the configuration says otherwise."""
_DEFAULT_SECONDS = 60.0
_USUAL_VOICE = "alloy"
_PAUSE_SECONDS = 300.0
"""How long a model that failed is not used; the conversation's own does the job meanwhile."""


class AuxiliaryQuestions:
    """Answers the auxiliary questions of a process. A job may have its own model; without one, or
    when it fails, the conversation's model is asked."""

    def __init__(
        self, models: "AuxiliaryModels", learned: dict[Target, EndpointLessons], sleep: Sleep
    ) -> None:
        self.models = models
        self._learned = learned
        self._host = SideHost(sleep)

    async def ask_model(
        self,
        job: str,
        prompt: Message,
        *,
        main: Agent,
        system: str = "",
        max_output: int = 1024,
        meter: CallMeter | None = None,
    ) -> str:
        """The answer's text. ToolError says in one sentence why there is none."""
        with mark_job(job):
            return await self._ask_chain(job, prompt, main, system, max_output, meter)

    async def _ask_chain(
        self,
        job: str,
        prompt: Message,
        main: Agent,
        system: str,
        max_output: int,
        meter: CallMeter | None,
    ) -> str:
        job_clients = self.models.find_clients(job, main)
        if (tape := TAPE.get()) is not None:
            tape.note_choice("job_models", [strip_endpoint(c.endpoint) for c in job_clients])
        chain = (*job_clients, *main.providers)
        if not any(isinstance(part, Media) for part in prompt.parts):
            turn = self._new_turn(prompt, system, meter)
            answer = await self._sample_answer(chain, main, turn, max_output)
            if 0 < len(job_clients) <= turn.active:
                self.models.pause_job(job, f"{job_clients[0].target.model} did not answer")
            return answer.text
        while seeing := tuple(c for c in chain if sees_images(c, self._learned)):
            turn = self._new_turn(prompt, system, meter)
            answer = await self._sample_answer(seeing, main, turn, max_output)
            # A model that refused the image was asked again without it, which is no answer.
            if any(c.target == answer.origin and sees_images(c, self._learned) for c in seeing):
                return answer.text
        raise ToolError(f"No model here takes images; name one that does in auxiliary.{job}.")

    def _new_turn(self, prompt: Message, system: str, meter: CallMeter | None) -> Turn:
        history, learned = History((prompt,)), self._learned
        return Turn(system=system, history=history, host=self._host, learned=learned, meter=meter)

    async def _sample_answer(
        self, chain: tuple[ModelClient, ...], main: Agent, turn: Turn, max_output: int
    ) -> Message:
        agent = Agent(chain, limits=structs.replace(main.limits, tries=2), redactor=main.redactor)
        try:
            return await sample_message(agent, turn, Attempt(Settings(max_output=max_output)))
        except TurnStopped as stop:
            raise ToolError(stop.text.error) from None


class SideHost:
    """The TurnHost of an auxiliary question: nothing is recorded, and there are no tools."""

    hands_over = False
    mark_call: Callable[[ToolCall], Awaitable[None]] | None = None
    session_id: str
    workspace: Workspace
    hooks = None

    def __init__(self, sleep: Sleep) -> None:
        self.sleep = sleep
        self.jitter: Callable[[float, float], float] = random.uniform

    async def record(
        self, message: Message | None, state: SessionState | None, error: str = ""
    ) -> None:
        return None

    def emit(self, event: TurnEvent) -> None:
        return None

    def take_steer(self) -> str:
        return ""

    def approve(self, *_: Any) -> NoReturn:
        raise AssertionError("an auxiliary question offers no tools")

    tool_context = approve

    def absorb_taint(self, sources: Collection[Source]) -> None:
        return None

    def remember_limits(self, client: ModelClient, context: int | None, output: int | None) -> None:
        return None

    def remember_calling(self, client: ModelClient, calling: str) -> None:
        return None


class MediaSession(Protocol):
    """The session that media are made for."""

    agent: Agent

    def new_meter(self) -> Meter: ...


class AuxiliaryMedia:
    """The pictures, speech and transcripts of one session, by the models of the jobs `image`,
    `speech` and `transcription`. Every request is metered; ToolError says what failed."""

    def __init__(self, models: "AuxiliaryModels", session: MediaSession) -> None:
        self._models = models
        self._session = session

    def has_model(self, job: str) -> bool:
        try:
            return self._models.find_media_endpoint(job, self._session.agent) is not None
        except ConfigError:
            return False

    async def generate_image(self, prompt: str, size: str = "") -> Media:
        answer = await self._request(
            "image", prompt, lambda client: client.media.generate_image(prompt, size=size)
        )
        return answer.media

    async def synthesize_speech(self, text: str, voice: str = "", form: str = "mp3") -> Media:
        chosen = voice or self._models.find_voice() or _USUAL_VOICE
        answer = await self._request(
            "speech",
            text,
            lambda client: client.media.synthesize_speech(text, voice=chosen, form=form),
        )
        return answer.media

    async def transcribe_audio(self, audio: Media) -> str:
        answer = await self._request(
            "transcription", "", lambda client: client.media.transcribe_audio(audio)
        )
        return answer.text

    async def _request(
        self, job: str, text: str, send: Callable[[ModelClient], Awaitable[AnswerT]]
    ) -> AnswerT:
        try:
            client = self._models.find_media_client(job, self._session.agent)
        except ConfigError as error:
            raise ToolError(str(error)) from None
        if client is None:
            raise ToolError(
                f"No model is set for this. Name one in auxiliary.{job}: hermes config set "
                f"auxiliary.{job}.provider openai, and auxiliary.{job}.model."
            )
        meter = self._session.new_meter().for_purpose(f"auxiliary/{job}")
        request = Request("", History((user_message(text),)), settings=Settings(max_output=1))
        try:
            ticket = await meter.reserve_call(client, request)
        except OverBudget as error:
            raise ToolError(str(error)) from None
        usage, outcome = Usage(), "failed"
        try:
            answer = await send(client)
            usage, outcome = answer.usage, "ok"
        except ProviderError as error:
            raise ToolError(describe_failure(error.failure, client).error) from None
        finally:
            meter.settle_call(ticket, usage, outcome, ())
        return answer


class AuxiliaryModels:
    """Chooses the model of each job: the configured one, else a cheap one of the same provider.
    Makes no request itself. `get_client` returns the process's only client of an endpoint."""

    def __init__(self, setup: Setup, get_client: Callable[[ModelEndpoint], ModelClient]) -> None:
        self._setup = setup
        self._get_client = get_client
        self._configured: dict[str, ModelEndpoint] = {}
        self._cheap: dict[tuple[str, str, str], ModelEndpoint | None] = {}
        self._paused_until: dict[str, float] = {}

    def find_configured(self, job: str) -> ModelEndpoint | None:
        """The endpoint the configuration names for a job; ConfigError when it cannot be used."""
        settings = self._setup.config.auxiliary.get(job)
        if settings is None:
            return None
        if job not in self._configured:
            self._configured[job] = self._resolve_endpoint(job, settings)
        return self._configured[job]

    def find_clients(self, job: str, main: Agent) -> tuple[ModelClient, ...]:
        """The clients to ask before the conversation's own: one or none."""
        if time.monotonic() < self._paused_until.get(job, 0.0):
            return ()
        try:
            endpoint = self.find_configured(job) or self._get_cheaper(job, main.providers[0])
        except ConfigError as error:
            self.pause_job(job, str(error))
            return ()
        return () if endpoint is None else (self._get_client(endpoint),)

    def find_media_endpoint(self, job: str, main: Agent) -> ModelEndpoint | None:
        """The endpoint of a job for media: the configured one, else that of the conversation's
        provider, if it has a model for it; ConfigError when it cannot be used."""
        if (configured := self.find_configured(job)) is not None:
            return configured
        spec = find_provider(main.providers[0].target.provider)
        if spec is None or job not in spec.media_models:
            return None
        choice = ModelChoice(provider=spec.name, model=spec.media_models[job])
        found = resolve_chain(self._setup.config, self._setup.secrets, choice)[0]
        timeouts = _merge_timeouts(job, schema.AuxiliarySection(), found.timeouts)
        return structs.replace(found, timeouts=timeouts)

    def find_media_client(self, job: str, main: Agent) -> ModelClient | None:
        endpoint = self.find_media_endpoint(job, main)
        return None if endpoint is None else self._get_client(endpoint)

    def find_voice(self) -> str:
        """The configured voice; empty: none is."""
        settings = self._setup.config.auxiliary.get("speech")
        return settings.voice if settings is not None else ""

    def find_window(self, job: str, main: Agent) -> int | None:
        """The context window of the job's own model; None: unknown, or there is no such model."""
        return next((c.endpoint.context_length for c in self.find_clients(job, main)), None)

    def pause_job(self, job: str, why: str) -> None:
        """Leave the job to the conversation's own model for a while."""
        self._paused_until[job] = time.monotonic() + _PAUSE_SECONDS
        log.warning("auxiliary job %s uses the main model for a while: %s", job, why)

    def _resolve_endpoint(self, job: str, settings: schema.AuxiliarySection) -> ModelEndpoint:
        choice = ModelChoice(
            model=settings.model,
            provider=settings.provider,
            base_url=settings.base_url,
            api_key_env=settings.api_key_env,
            api_mode=settings.api_mode or "",
        )
        try:
            endpoint = resolve_chain(self._setup.config, self._setup.secrets, choice)[0]
        except ConfigError as error:
            raise ConfigError(f"auxiliary.{job}: {error}") from None
        return structs.replace(
            endpoint,
            timeouts=_merge_timeouts(job, settings, endpoint.timeouts),
            context_length=settings.context_length or endpoint.context_length,
            has_configured_context=bool(settings.context_length) or endpoint.has_configured_context,
        )

    def _get_cheaper(self, job: str, main: ModelClient) -> ModelEndpoint | None:
        key = (job, main.endpoint.base_url, main.target.model)
        if key not in self._cheap:
            self._cheap[key] = self._find_cheaper(job, main)
        return self._cheap[key]

    def _find_cheaper(self, job: str, main: ModelClient) -> ModelEndpoint | None:
        """The cheap model of the conversation's own endpoint, if known to be capable."""
        spec = find_provider(main.target.provider)
        if spec is None or not spec.small_model or main.endpoint.facts.prices is None:
            return None
        choice = ModelChoice(provider=spec.name, model=spec.small_model)
        try:
            found = resolve_chain(self._setup.config, self._setup.secrets, choice)[0]
        except ConfigError:
            return None
        known = found.facts
        room = min(main.endpoint.context_length or MIN_SUMMARIZER_WINDOW, MIN_SUMMARIZER_WINDOW)
        capable = (
            found.base_url == main.endpoint.base_url
            and known.prices is not None
            and known.prices.input < main.endpoint.facts.prices.input
            and known.prices.output < main.endpoint.facts.prices.output
            and (known.context or 0) >= room
            and (job != "vision" or known.images is True)
        )
        if not capable:
            return None
        # A window set for the main model says nothing about this one.
        return structs.replace(
            found,
            timeouts=_merge_timeouts(job, schema.AuxiliarySection(), found.timeouts),
            context_length=known.context,
            has_configured_context=False,
        )


def _merge_timeouts(job: str, settings: schema.AuxiliarySection, usual: Timeouts) -> Timeouts:
    total = settings.request_timeout_seconds
    longest = min(JOB_SECONDS.get(job, _DEFAULT_SECONDS), usual.total or _DEFAULT_SECONDS)
    return Timeouts(
        usual.ttfb if settings.ttfb_timeout_seconds is None else settings.ttfb_timeout_seconds,
        usual.stale if settings.stale_timeout_seconds is None else settings.stale_timeout_seconds,
        longest if total is None else total,
    )
