"""What follows from a model's context window: limits of tool results, and who may summarise."""

from hermes.agent.turn import Compression, TurnLimits
from hermes.config.schema import Config
from hermes.core.errors import ConfigError
from hermes.llm.endpoints.endpoint import ModelEndpoint

MIN_WINDOW = 4096
"""Tokens; a smaller window has no room for a prompt, a tool result and an answer."""
SMALL_WINDOW = 32_768
"""Up to this many tokens a session gets the tiny prompt and few tools."""
MIN_SUMMARIZER_WINDOW = 64_000


def check_window(endpoint: ModelEndpoint, window: int | None) -> None:
    """ConfigError when the window is too small for any useful turn."""
    if window is not None and window < MIN_WINDOW:
        model = endpoint.target.model
        raise ConfigError(
            f"{model} has a context window of {window} tokens; at least {MIN_WINDOW} are needed. "
            "Choose another model, load it with a larger context, or correct model.context_length."
        )


def is_small_window(window: int | None) -> bool:
    return window is not None and window <= SMALL_WINDOW


def limit_result_chars(window: int | None) -> int:
    """The longest tool result: an eighth of the window."""
    default = TurnLimits().result_chars
    return default if window is None else min(default, window // 2)


def choose_compression(
    config: Config, main: ModelEndpoint, window: int | None, summarizer: ModelEndpoint | None
) -> Compression:
    """When to compress. `summarizer`: the model that summarises, if it is not `main`; ConfigError
    when its window is known to be too small."""
    settings = config.compression
    room = summarizer.context_length if summarizer is not None else None
    if not settings.enabled or summarizer is None or room is None:
        return Compression(settings.enabled, settings.threshold)
    if window is not None:
        needed = min(MIN_SUMMARIZER_WINDOW, window)
        if room < needed:
            raise ConfigError(
                f"auxiliary.compression: {summarizer.target.model} has a context window of {room} "
                f"tokens, but summarising for {main.target.model} ({window} tokens) needs at least "
                f"{needed}. Choose a larger model there, or set "
                "auxiliary.compression.context_length if its window is larger."
            )
    known = window or 2 * MIN_SUMMARIZER_WINDOW
    if room >= settings.threshold * known:
        return Compression(settings.enabled, settings.threshold)
    lowered = max(0.01, int(90 * room / known) / 100)
    warning = (
        f"compression.threshold is {lowered:g} instead of {settings.threshold:g} in this run: "
        f"{summarizer.target.model}, which summarises, has a context window of only {room} tokens. "
        f"To make it permanent: hermes config set compression.threshold {lowered:g}"
    )
    return Compression(settings.enabled, lowered, warning)
