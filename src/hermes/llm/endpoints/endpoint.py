"""A model endpoint: one model at one address, with everything it takes to call it."""

from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct, structs

from hermes.core.message import Target
from hermes.llm.auth.key_pool import Credential, PoolStrategy
from hermes.llm.endpoints.model_facts import UNKNOWN, ModelFacts
from hermes.llm.http.watchdog import Timeouts
from hermes.llm.provider_spec import Auth, OAuthSpec, Quirks
from hermes.llm.providers import provider_index
from hermes.llm.wire import wire_facts

CUSTOM = "custom"
"""Name of the provider behind an address that the user configured."""


class ModelChoice(Struct, frozen=True):
    """What the command line asks for; empty fields are as configured."""

    model: str = ""
    provider: str = ""
    base_url: str = ""
    api_key_env: str = ""
    api_mode: str = ""


class ModelEndpoint(Struct, frozen=True):
    """Complete: nothing has to be looked up to make a call."""

    target: Target
    base_url: str
    quirks: Quirks = Quirks()
    keys: tuple[Credential, ...] = ()
    pool: PoolStrategy = "fill-first"
    requests_per_minute: int | None = None
    """Of each key; None: as many as there are."""
    login: OAuthSpec | None = None
    """How the token of a login is renewed, and which headers it needs."""
    headers: dict[str, str] = {}
    auth: Auth = "bearer"
    timeouts: Timeouts = Timeouts()
    context_length: int | None = None
    """Tokens of a prompt and its answer: as configured, else as known; None: unknown."""
    has_configured_context: bool = False
    """Whether the user set `context_length`: what an error states later does not replace it."""
    max_output: int | None = None
    """The configured limit on the tokens of an answer."""
    note: str = ""
    """Shown to the user once: how this endpoint was chosen."""
    finds_calling: bool = False
    """Whether the way its model calls tools is found out, because neither the user nor a row of a
    provider says it."""
    learned_calling: str = ""
    """How its model called tools earlier, if that was found out."""
    facts: ModelFacts = UNKNOWN
    """What is known about the model, with the configured price if there is one."""

    @property
    def host(self) -> str:
        return self.base_url.partition("://")[2].partition("/")[0].rpartition("@")[2]

    @property
    def default_output(self) -> int | None:
        """The output limit that is sent when none is set; None: no limit is sent."""
        return self.quirks.max_tokens_default or wire_facts(self.target.wire).default_output

    @property
    def is_own_server(self) -> bool:
        """Whether it is a model server that the user runs: only it knows how it was set up."""
        return self.target.provider in provider_index().local_servers


def strip_endpoint(endpoint: ModelEndpoint) -> ModelEndpoint:
    """The endpoint without anything secret: for a tape."""
    parts = urlsplit(endpoint.base_url)
    host = parts.netloc.rpartition("@")[2]
    return structs.replace(
        endpoint,
        base_url=urlunsplit((parts.scheme, host, parts.path, "", "")),
        keys=(),
        login=None,
        headers={},
    )
