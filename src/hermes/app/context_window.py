"""What follows from how much a model holds: how long results may be, and who may summarise."""

from __future__ import annotations

from hermes.agent.turn import Compression, TurnLimits
from hermes.config.schema import Config
from hermes.core.errors import ConfigError
from hermes.llm.endpoints.endpoint import ModelEndpoint

LEAST = 4096
"""Below this there is no room for a prompt, a tool's result and an answer."""
SMALL = 32_768
"""Up to this a session gets the tiny prompt and few tools."""
SUMMARISER = 64_000


def check(endpoint: ModelEndpoint, window: int | None) -> None:
    """ConfigError when nothing useful can be done with so little."""
    if window is not None and window < LEAST:
        model = endpoint.target.model
        raise ConfigError(
            f"{model} holds {window} tokens; at least {LEAST} are needed. Choose another model, "
            "load it with a larger context, or correct model.context_length."
        )


def is_small(window: int | None) -> bool:
    return window is not None and window <= SMALL


def result_chars(window: int | None) -> int:
    """Longest tool result: an eighth of the window."""
    usual = TurnLimits().result_chars
    return usual if window is None else min(usual, window // 2)


def compression(
    config: Config, main: ModelEndpoint, window: int | None, summariser: ModelEndpoint | None
) -> Compression:
    """`summariser`: the model of the job, where it is another. ConfigError when it is known to
    hold too little."""
    settings = config.compression
    reads = summariser.context_length if summariser is not None else None
    if not settings.enabled or summariser is None or reads is None:
        return Compression(settings.enabled, settings.threshold)
    if window is not None:
        needed = min(SUMMARISER, window)
        if reads < needed:
            raise ConfigError(
                f"auxiliary.compression: {summariser.target.model} holds {reads} tokens, and "
                f"summarising for {main.target.model} ({window} tokens) takes at least {needed}. "
                "Choose a larger model there, or set auxiliary.compression.context_length if it "
                "holds more."
            )
    known = window or 2 * SUMMARISER
    if reads >= settings.threshold * known:
        return Compression(settings.enabled, settings.threshold)
    lowered = max(0.01, int(90 * reads / known) / 100)
    warning = (
        f"compression.threshold is {lowered:g} instead of {settings.threshold:g} in this run: "
        f"{summariser.target.model}, which summarises, holds only {reads} tokens. `hermes config "
        f"set compression.threshold {lowered:g}` makes it permanent."
    )
    return Compression(settings.enabled, lowered, warning)
