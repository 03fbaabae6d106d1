"""Facts about providers and wires as data: codecs read quirks, never the provider's name."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from hermes.core.provider import Effort

Auth: TypeAlias = Literal["bearer", "x-api-key", "x-goog-api-key", "aws", "none"]
"""How a key is sent: in which header, as a signature, or not at all."""
InfoSource: TypeAlias = Literal["list", "show", "props", "studio"]
"""Ways to ask an endpoint about a model: its list of models, Ollama's /api/show, llama.cpp's
/props, LM Studio's own list."""


ATTRIBUTION = {"HTTP-Referer": "https://hermes.localhost/", "X-Title": "Hermes"}
"""Headers by which aggregators attribute calls to a program."""


class Quirks(Struct, frozen=True):
    """Every way in which an endpoint can differ, each with a neutral default."""

    stream: bool = True
    """Off: responses are not streamed."""
    drop: tuple[str, ...] = ()
    """Request fields that are never sent (known, or learned from a 400)."""
    max_tokens_field: str = "max_tokens"
    max_tokens_default: int | None = None
    """The output limit to send when the user set none; None: send none if the wire allows it."""
    system_role: Literal["system", "developer"] = "system"
    usage_in_stream: bool = True
    tools: bool = True
    calling: Literal["native", "text", "schema"] = "native"
    """How tools are called. native: as the protocol says. text: calls that a small model wrote into
    its text are found there, too. schema: the answer is forced into a JSON schema with one object
    per tool, for models that cannot call tools at endpoints that enforce schemas."""
    favourites: tuple[str, ...] = ()
    """schema: offer only these tools, if available."""
    small: bool = False
    """A small model: short prompt, short results, and every command needs approval."""
    media: bool = True
    """Off: images are replaced by a note."""
    media_from: int = 0
    """Images in messages before this index are left out: one of them was refused."""
    media_in_tool_result: bool = True
    """Off: images that a tool returned are moved behind the results."""
    effort: Literal["omit", "effort", "object", "budget", "adaptive", "level", "think"] = "omit"
    """How reasoning effort is requested. effort: `reasoning_effort`; object: `reasoning: {}`;
    budget: a token budget; adaptive: Anthropic's adaptive thinking; level: Gemini's
    thinkingLevel; think: Ollama's `think`."""
    efforts: tuple[Effort, ...] = ()
    """The efforts it supports; others are lowered to one of them. Empty: all, as far as known."""
    fast: bool = False
    """Whether requests may ask to be answered before others (`service_tier`)."""
    thinking_switch: Literal["none", "asked", "always", "alone"] = "none"
    """chat: whether `thinking: {"type": "enabled"|"disabled"}` is sent. asked: when an effort is
    set; always: in every request; alone: in those without a `reasoning_effort`."""
    thinking_display: str = ""
    """anthropic: how to display thoughts, for models that omit their text by default."""
    thinking_replay: Literal["keep", "drop"] = "keep"
    """Whether reasoning is sent back to the provider it came from."""
    thinking_field: str = ""
    """chat: the message field in which reasoning is sent back with every tool call; empty: the one
    it came in."""
    schema: Literal["as_is", "gemini", "no_formats"] = "as_is"
    answer_schema: Literal["no", "alone", "always"] = "no"
    """Whether it enforces a JSON Schema of the answer. alone: only in requests without tools, which
    it would otherwise never call."""
    call_id: Literal["any", "word64", "alnum9"] = "any"
    """Which tool-call ids the API accepts; others are replaced."""
    flatten: bool = False
    """Tool calls and results are sent as plain text, which every endpoint accepts."""
    cache: Literal["none", "native", "envelope"] = "none"
    cache_results: bool = True
    """envelope: whether tool results may carry a cache marker."""
    store: bool = False
    """responses: let the provider store the answer."""
    body: dict[str, Any] = {}
    """Fields added to every request body."""

    def accepts_schema(self, *, has_tools: bool) -> bool:
        """Whether a request may carry a JSON Schema of the answer."""
        return self.answer_schema == "always" or (self.answer_schema == "alone" and not has_tools)


def overlay_quirks(quirks: Quirks, changes: Mapping[str, Any]) -> Quirks:
    """The quirks with these changes: `drop` accumulates, everything else is replaced."""
    if not changes:
        return quirks
    merged = dict(changes)
    if "drop" in merged:
        merged["drop"] = tuple(dict.fromkeys((*quirks.drop, *merged["drop"])))
    return msgspec.structs.replace(quirks, **merged)


class OAuthSpec(Struct, frozen=True):
    """How to log in to a provider, and what calls with that login carry."""

    flow: Literal["device", "loopback"]
    """device: the user enters a code on a web page (RFC 8628); loopback: the browser is redirected
    to this machine (RFC 8252, PKCE)."""
    client_id: str
    token_url: str
    device_url: str = ""
    authorize_url: str = ""
    scopes: str = ""
    parameters: dict[str, str] = {}
    """Query parameters added to the address for the browser."""
    redirect_host: str = "127.0.0.1"
    redirect_ports: tuple[int, ...] = ()
    """The ports registered with the provider; empty: any."""
    redirect_path: str = "/callback"
    body: Literal["form", "json"] = "form"
    state_in_body: bool = False
    """Whether the state is repeated when the code is exchanged for a token."""
    exchange_url: str = ""
    """Where the login's token is exchanged for the short-lived one that calls use."""
    headers: dict[str, str] = {}
    """Sent with calls that use the login, and with the exchange."""
    account_claim: tuple[str, ...] = ()
    """Path of the account in the id token."""
    account_header: str = ""
    """The header in which calls name the account."""
    models: tuple[str, ...] = ()
    """Name prefixes of the models that a login covers; empty: all."""


class WireFacts(Struct, frozen=True, omit_defaults=True):
    """What must be known about a wire before it is loaded; its module holds them as FACTS."""

    family: str = ""
    """The older wire of the same vendor, which has the same endpoints and quirks and is the one
    that other vendors copied."""
    url_pattern: str = ""
    """Regular expression over host and path of addresses that are known to speak it."""
    server_path: str = ""
    """The path that self-hosted servers nearly always expect."""
    list_path: str = ""
    """Path of the list of models, after the base URL; empty: there is none."""
    list_marks: tuple[str, ...] = ()
    """Keys that occur only in its list of models."""
    default_output: int | None = None
    """The output limit to send when none is set; None: it needs none."""
    signed: bool = False
    """Requests are signed, unless the key is a bearer token."""
    probe: bool = False
    """Whether an empty request can tell if an address speaks it."""
    typed_errors: bool = False
    """Whether an error body has the type `error`."""


class ProviderSpec(Struct, frozen=True):
    """One provider: a row of facts. What a quirk means is implemented once, in the codecs."""

    name: str
    wire: str
    base_url: str
    rank: int = 1000
    """The lowest rank is chosen when nothing else decides. Makers of models are below 100, hosts
    below 200, aggregators below 300; servers on this machine follow."""
    keys: tuple[str, ...] = ()
    """Environment variables that may hold its key, in order of preference."""
    aliases: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Its hosts: this row describes every endpoint there, whatever its configured name."""
    headers: dict[str, str] = {}
    auth: Auth = "bearer"
    aggregator: bool = False
    """It offers the models of others, so that a model name alone does not point to it."""
    vendor_names: bool = False
    """It accepts model names of the form vendor/model."""
    own_vendor_name: bool = False
    """Its own routes are named like a vendor's model: openrouter/auto."""
    model_prefixes: tuple[str, ...] = ()
    """Prefixes of the names of its own models."""
    dashed_versions: bool = False
    """It writes claude-sonnet-4-5 where aggregators write claude-sonnet-4.5."""
    wire_reference: bool = False
    """An unknown endpoint that speaks its wire gets its headers and quirks."""
    quirks: Quirks = Quirks()
    models: dict[str, dict[str, Any]] = {}
    """glob over the model name -> quirk overrides, applied in order."""
    portable_models: str = ""
    """The glob in `models` whose overrides also apply at unknown endpoints."""
    default_model: str = ""
    small_model: str = ""
    """The cheap model for auxiliary jobs; empty: unknown."""
    media_models: dict[str, str] = {}
    """Its models for the auxiliary jobs `image`, `speech` and `transcription`."""
    embedded: bool = False
    """Runs on this machine from a model file, which its address names."""
    oauth: OAuthSpec | None = None
    """How to log in instead of using a key."""
    about: tuple[InfoSource, ...] = ("list",)
    """How to ask it about a model, in order."""
    docs: str = ""

    def quirks_for(self, model: str) -> Quirks:
        quirks = self.quirks
        name = model.lower()
        for pattern, changes in self.models.items():
            if fnmatchcase(name, pattern):
                quirks = overlay_quirks(quirks, changes)
        return quirks
