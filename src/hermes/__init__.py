"""Hermes, an AI agent you run yourself. As a library: docs/library.md lists what is public."""

# The program and its helper processes import this package too, and must start at once: a public
# name is imported when it is first used.

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.api import *  # noqa: F403
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from hermes import api

        return getattr(api, name)


__all__ = [  # noqa: F405
    "Agent", "ApprovalRequest", "ConfigError", "Decision", "ErrorInfo", "Event", "HermesError",
    "Notice", "OutputError", "Question", "ReasoningDelta", "Recovering", "Result", "Session",
    "StoreError", "TextDelta", "ToolCall", "ToolCompleted", "ToolError", "ToolStarted",
    "TurnError", "Usage", "run_sync", "tool",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
