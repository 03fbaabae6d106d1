"""Which model does an auxiliary job: the configured one, else a cheap one of the same provider."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from msgspec import structs

from hermes.agent.turn import Agent
from hermes.agent.turn import Endpoint as Callee
from hermes.app.context_window import SUMMARISER
from hermes.config.load import Setup
from hermes.config.schema import Auxiliary as Wanted
from hermes.core.errors import ConfigError
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.http.watchdog import Timeouts
from hermes.llm.providers import find_provider

log = logging.getLogger(__name__)

SECONDS = {"compression": 180.0, "title": 30.0, "vision": 120.0, "web_extract": 90.0}
"""How long one call of a job may take, where the configuration does not say."""
_USUAL = 60.0
_REST = 300.0
"""Seconds a model that failed is left alone; the conversation's own does the job meanwhile."""


class Jobs:
    """Reads the configuration; asks nobody. `client`: the process's one client of an endpoint."""

    def __init__(self, setup: Setup, client: Callable[[ModelEndpoint], Callee]) -> None:
        self._setup = setup
        self._client = client
        self._configured: dict[str, ModelEndpoint] = {}
        self._cheap: dict[tuple[str, str, str], ModelEndpoint | None] = {}
        self._resting: dict[str, float] = {}

    def configured(self, job: str) -> ModelEndpoint | None:
        """None: the configuration gives it no model. ConfigError when that one cannot be used."""
        wanted = self._setup.config.auxiliary.get(job)
        if wanted is None:
            return None
        found = self._configured.get(job)
        if found is None:
            found = self._configured[job] = self._resolved(job, wanted)
        return found

    def callees(self, job: str, main: Agent) -> tuple[Callee, ...]:
        """Whom to ask before the conversation's own model."""
        if time.monotonic() < self._resting.get(job, 0.0):
            return ()
        try:
            endpoint = self.configured(job) or self._cheaper(job, main.providers[0])
        except ConfigError as error:
            self.failed(job, str(error))
            return ()
        return () if endpoint is None else (self._client(endpoint),)

    def reads(self, job: str, main: Agent) -> int | None:
        """How many tokens the first to be asked holds; None: nobody says."""
        return next((c.endpoint.context_length for c in self.callees(job, main)), None)

    def failed(self, job: str, why: str) -> None:
        self._resting[job] = time.monotonic() + _REST
        log.warning("auxiliary job %s goes to the main model for a while: %s", job, why)

    def _resolved(self, job: str, wanted: Wanted) -> ModelEndpoint:
        choice = ModelChoice(
            model=wanted.model,
            provider=wanted.provider,
            base_url=wanted.base_url,
            api_key_env=wanted.api_key_env,
            api_mode=wanted.api_mode or "",
        )
        try:
            endpoint = resolve_chain(self._setup.config, self._setup.secrets, choice)[0]
        except ConfigError as error:
            raise ConfigError(f"auxiliary.{job}: {error}") from None
        return structs.replace(
            endpoint,
            timeouts=_timeouts(job, wanted, endpoint.timeouts),
            context_length=wanted.context_length or endpoint.context_length,
        )

    def _cheaper(self, job: str, main: Callee) -> ModelEndpoint | None:
        """The cheap model of the conversation's own endpoint, where all that matters is known."""
        place = (job, main.endpoint.base_url, main.target.model)
        if place not in self._cheap:
            self._cheap[place] = self._find_cheaper(job, main.endpoint)
        return self._cheap[place]

    def _find_cheaper(self, job: str, main: ModelEndpoint) -> ModelEndpoint | None:
        spec = find_provider(main.target.provider)
        if spec is None or not spec.small_model or main.facts.prices is None:
            return None
        choice = ModelChoice(provider=spec.name, model=spec.small_model)
        try:
            found = resolve_chain(self._setup.config, self._setup.secrets, choice)[0]
        except ConfigError:
            return None
        known = found.facts
        room = min(main.context_length or SUMMARISER, SUMMARISER)
        capable = (
            found.base_url == main.base_url
            and known.prices is not None
            and known.prices.input < main.facts.prices.input
            and known.prices.output < main.facts.prices.output
            and (known.context or 0) >= room
            and (job != "vision" or known.images is True)
        )
        if not capable:
            return None
        # A window set for the main model says nothing about this one.
        return structs.replace(
            found,
            timeouts=_timeouts(job, Wanted(), found.timeouts),
            context_length=known.context,
        )


def _timeouts(job: str, wanted: Wanted, usual: Timeouts) -> Timeouts:
    total = wanted.request_timeout_seconds
    return Timeouts(
        usual.ttfb if wanted.ttfb_timeout_seconds is None else wanted.ttfb_timeout_seconds,
        usual.stale if wanted.stale_timeout_seconds is None else wanted.stale_timeout_seconds,
        min(SECONDS.get(job, _USUAL), usual.total or _USUAL) if total is None else total,
    )
