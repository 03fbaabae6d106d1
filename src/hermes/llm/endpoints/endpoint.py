"""One model at one address, with everything it takes to call it; and the choice it came from."""

from __future__ import annotations

from msgspec import Struct

from hermes.core.message import Target
from hermes.llm.auth.key_pool import Credential, PoolStrategy
from hermes.llm.endpoints.model_facts import UNKNOWN, ModelFacts
from hermes.llm.http.watchdog import Timeouts
from hermes.llm.provider_spec import Auth, OAuthSpec, Quirks
from hermes.llm.providers import provider_index
from hermes.llm.wire import wire_facts

CUSTOM = "custom"
"""The provider of an address that the user gives."""


class ModelChoice(Struct, frozen=True):
    """What the command line asks for; empty: as configured."""

    model: str = ""
    provider: str = ""
    base_url: str = ""
    api_key_env: str = ""
    api_mode: str = ""


class ModelEndpoint(Struct, frozen=True):
    """Nothing is left to look up."""

    target: Target
    base_url: str
    quirks: Quirks = Quirks()
    keys: tuple[Credential, ...] = ()
    pool: PoolStrategy = "fill-first"
    login: OAuthSpec | None = None
    """How tokens of a login among the keys are renewed, and what they travel with."""
    headers: dict[str, str] = {}
    auth: Auth = "bearer"
    timeouts: Timeouts = Timeouts()
    context_length: int | None = None
    """Tokens of a prompt with its answer: as configured, else as known of the model; None: not
    known."""
    max_output: int | None = None
    """Tokens an answer is asked to have at most, as configured."""
    note: str = ""
    """What the user is told once: how this endpoint came to be chosen."""
    facts: ModelFacts = UNKNOWN
    """With the configured price, where there is one."""

    @property
    def host(self) -> str:
        return self.base_url.partition("://")[2].partition("/")[0].rpartition("@")[2]

    @property
    def default_output(self) -> int | None:
        """The output limit it is sent when nobody asks for one; None: none."""
        return self.quirks.max_tokens_default or wire_facts(self.target.wire).default_output

    @property
    def is_own_server(self) -> bool:
        """Whether it is a model server of the user's: only it can say how it was set up."""
        return self.target.provider in provider_index().local_servers
