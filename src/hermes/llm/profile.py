"""Provider facts and quirks as data. Codecs read Quirks; they never ask who the provider is."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

WireName: TypeAlias = Literal["chat", "responses", "anthropic", "gemini", "bedrock"]
About: TypeAlias = Literal["list", "show", "props", "studio"]
"""Ways to ask an endpoint about a model: its list of models, Ollama's /api/show, llama.cpp's
/props, LM Studio's own list."""


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
    media_in_tool_result: bool = True
    """Off: an image a tool returned is moved behind the results, into the user's part."""
    effort: Literal["omit", "effort", "object", "budget", "adaptive", "level", "think"] = "omit"
    """How reasoning effort is asked for. effort: `reasoning_effort`; object: `reasoning: {}`;
    budget: a token budget; adaptive: Anthropic's adaptive thinking; level: Gemini's
    thinkingLevel; think: Ollama's `think`."""
    thinking_replay: Literal["keep", "drop"] = "keep"
    """Whether reasoning goes back to the provider that made it."""
    thinking_field: str = ""
    """chat: the assistant field reasoning text is sent back in; empty: the one it came in."""
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


def overlay(quirks: Quirks, changes: Mapping[str, Any]) -> Quirks:
    """`drop` accumulates; everything else is replaced."""
    if not changes:
        return quirks
    merged = dict(changes)
    if "drop" in merged:
        merged["drop"] = tuple(dict.fromkeys((*quirks.drop, *merged["drop"])))
    return msgspec.structs.replace(quirks, **merged)


class ProviderSpec(Struct, frozen=True):
    """One provider: a row. Facts only; what a quirk means is implemented once, in the codecs."""

    name: str
    wire: WireName
    base_url: str
    keys: tuple[str, ...] = ()
    """Names of the environment variables its key may be in, in order of preference."""
    aliases: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    auth: Literal["bearer", "x-api-key", "x-goog-api-key", "aws", "none"] = "bearer"
    quirks: Quirks = Quirks()
    models: dict[str, dict[str, Any]] = {}
    """glob over the model name -> quirk overrides, applied in order."""
    default_model: str = ""
    small_model: str = ""
    """The cheap one for auxiliary jobs; empty: not known."""
    embedded: bool = False
    """Runs in a process of ours, from a file; its address is made when the file is found."""
    about: tuple[About, ...] = ("list",)
    """How it is asked about a model, in order."""
    docs: str = ""

    def for_model(self, model: str) -> Quirks:
        quirks = self.quirks
        name = model.lower()
        for pattern, changes in self.models.items():
            if fnmatchcase(name, pattern):
                quirks = overlay(quirks, changes)
        return quirks
