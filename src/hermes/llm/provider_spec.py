"""Facts of providers and wires as data: codecs read Quirks and never ask who the provider is."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from hermes.core.provider import Effort

Auth: TypeAlias = Literal["bearer", "x-api-key", "x-goog-api-key", "aws", "none"]
"""How a key travels: in which header, as the key of a signature, or not at all."""
InfoSource: TypeAlias = Literal["list", "show", "props", "studio"]
"""Ways to ask an endpoint about a model: its list of models, Ollama's /api/show, llama.cpp's
/props, LM Studio's own list."""


ATTRIBUTION = {"HTTP-Referer": "https://hermes.localhost/", "X-Title": "Hermes"}
"""How aggregators tell which program calls them; what it is called stands in User-Agent."""


class Quirks(Struct, frozen=True):
    """Every difference any endpoint ever forced on us, each with a neutral default."""

    stream: bool = True
    """Off: this endpoint is called without streaming."""
    drop: tuple[str, ...] = ()
    """Top-level request fields never sent (learned from a 400, or known)."""
    max_tokens_field: str = "max_tokens"
    max_tokens_default: int | None = None
    """Sent when the user set no output limit; None: leave it out where the wire allows."""
    system_role: Literal["system", "developer"] = "system"
    usage_in_stream: bool = True
    tools: bool = True
    calling: Literal["native", "text", "schema"] = "native"
    """How tools are called. native: as the protocol says. text: also found in the text, where
    servers leave the calls of small models. schema: the answer is forced into a JSON schema with
    one object per tool; for models that cannot call tools, on endpoints that enforce schemas."""
    favourites: tuple[str, ...] = ()
    """schema: the only tools offered, as far as they are there."""
    small: bool = False
    """A small model: the short prompt, short results, and nobody trusts its commands."""
    media: bool = True
    """Off: images are replaced by a note."""
    media_from: int = 0
    """Images in messages before this place are left out: one of them was refused."""
    media_in_tool_result: bool = True
    """Off: an image a tool returned is moved behind the results, into the user's part."""
    effort: Literal["omit", "effort", "object", "budget", "adaptive", "level", "think"] = "omit"
    """How reasoning effort is asked for. effort: `reasoning_effort`; object: `reasoning: {}`;
    budget: a token budget; adaptive: Anthropic's adaptive thinking; level: Gemini's
    thinkingLevel; think: Ollama's `think`."""
    efforts: tuple[Effort, ...] = ()
    """The efforts it knows; another is lowered to one of them. Empty: all, as far as we know."""
    thinking_switch: Literal["none", "asked", "always", "alone"] = "none"
    """chat: whether `thinking: {"type": "enabled"|"disabled"}` is sent. asked: when an effort is
    set; always: in every request; alone: in those without a `reasoning_effort`."""
    thinking_display: str = ""
    """anthropic: how thoughts are to be shown, where the model would leave their words out."""
    thinking_replay: Literal["keep", "drop"] = "keep"
    """Whether reasoning goes back to the provider that made it."""
    thinking_field: str = ""
    """chat: the assistant field reasoning text is sent back in, beside every tool call; empty: the
    one it came in."""
    schema: Literal["as_is", "gemini", "no_formats"] = "as_is"
    call_id: Literal["any", "word64", "alnum9"] = "any"
    """Which tool-call ids the API takes; others are remapped in the view."""
    flatten: bool = False
    """Tool calls and results are told as plain text: the form no endpoint can find illegal."""
    cache: Literal["none", "native", "envelope"] = "none"
    cache_results: bool = True
    """envelope: whether tool results may carry a cache marker."""
    store: bool = False
    """responses: let the provider keep the answer."""
    body: dict[str, Any] = {}
    """Fields added to every request body."""


def overlay_quirks(quirks: Quirks, changes: Mapping[str, Any]) -> Quirks:
    """`drop` accumulates; everything else is replaced."""
    if not changes:
        return quirks
    merged = dict(changes)
    if "drop" in merged:
        merged["drop"] = tuple(dict.fromkeys((*quirks.drop, *merged["drop"])))
    return msgspec.structs.replace(quirks, **merged)


class OAuthSpec(Struct, frozen=True):
    """How one logs in to a provider, and what calls carry then: a part of its row."""

    flow: Literal["device", "loopback"]
    """device: a code is typed in on another page (RFC 8628); loopback: the browser comes back to
    this machine with a code (RFC 8252, PKCE)."""
    client_id: str
    token_url: str
    device_url: str = ""
    authorize_url: str = ""
    scopes: str = ""
    parameters: dict[str, str] = {}
    """Added to the address the browser is sent to."""
    redirect_host: str = "127.0.0.1"
    redirect_ports: tuple[int, ...] = ()
    """Those registered with the provider; empty: any."""
    redirect_path: str = "/callback"
    body: Literal["form", "json"] = "form"
    state_in_body: bool = False
    """Whether the state is repeated when the code is traded in."""
    exchange_url: str = ""
    """Where the login's token is exchanged for a short-lived one that calls are made with."""
    headers: dict[str, str] = {}
    """Of calls with the login, and of the exchange."""
    account_claim: tuple[str, ...] = ()
    """Where in the id token the account is named."""
    account_header: str = ""
    """Which header calls name it in."""
    models: tuple[str, ...] = ()
    """Beginnings of the names of models that a login reaches; empty: all."""


class WireFacts(Struct, frozen=True, omit_defaults=True):
    """What must be known of a wire before it is spoken; its module holds them as FACTS."""

    family: str = ""
    """The older wire of the same vendor: endpoints and quirks of the two are alike, and what other
    vendors copied is that one."""
    url_pattern: str = ""
    """Regular expression over host and path: an address that is known to speak it."""
    server_path: str = ""
    """What the address of a server of one's own nearly always ends in."""
    list_path: str = ""
    """Where models are listed, behind the base URL; empty: nowhere."""
    list_marks: tuple[str, ...] = ()
    """Keys that only its list of models has."""
    default_output: int | None = None
    """The limit it is sent when nobody asks for one; None: it needs none."""
    signed: bool = False
    """Requests are signed, unless there is a key that travels as a bearer token."""
    probe: bool = False
    """Whether an empty request can be sent to find out if an address speaks it."""
    typed_errors: bool = False
    """Whether the body of an error says in `type` that it is one."""


class ProviderSpec(Struct, frozen=True):
    """One provider: a row. Facts only; what a quirk means is implemented once, in the codecs."""

    name: str
    wire: str
    base_url: str
    rank: int = 1000
    """Who is taken when nothing else decides: the lowest. Makers of models are below 100, hosts
    below 200, aggregators below 300, servers on this machine behind them."""
    keys: tuple[str, ...] = ()
    """Names of the environment variables its key may be in, in order of preference."""
    aliases: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Hosts it runs: an endpoint there goes by this row, whatever its configured name."""
    headers: dict[str, str] = {}
    auth: Auth = "bearer"
    aggregator: bool = False
    """It lists everybody's models: a bare name that is among them says nothing."""
    vendor_names: bool = False
    """It takes model names of the form vendor/model."""
    own_vendor_name: bool = False
    """Its own routes are named like a vendor's models: openrouter/auto."""
    model_prefixes: tuple[str, ...] = ()
    """How the names of its own models begin."""
    dashed_versions: bool = False
    """It writes claude-sonnet-4-5 where aggregators write claude-sonnet-4.5."""
    wire_reference: bool = False
    """An unknown endpoint that speaks its wire gets its headers and quirks."""
    quirks: Quirks = Quirks()
    models: dict[str, dict[str, Any]] = {}
    """glob over the model name -> quirk overrides, applied in order."""
    portable_models: str = ""
    """The glob among `models` whose overrides hold at unknown endpoints too."""
    default_model: str = ""
    small_model: str = ""
    """The cheap one for auxiliary jobs; empty: not known."""
    embedded: bool = False
    """Runs in a process of ours, from a file; its address is made when the file is found."""
    oauth: OAuthSpec | None = None
    """How one logs in instead of having a key."""
    about: tuple[InfoSource, ...] = ("list",)
    """How it is asked about a model, in order."""
    docs: str = ""

    @property
    def local_server(self) -> bool:
        """Whether it is a server that users run on their own machine."""
        return self.auth == "none" and not self.embedded

    def quirks_for(self, model: str) -> Quirks:
        quirks = self.quirks
        name = model.lower()
        for pattern, changes in self.models.items():
            if fnmatchcase(name, pattern):
                quirks = overlay_quirks(quirks, changes)
        return quirks
