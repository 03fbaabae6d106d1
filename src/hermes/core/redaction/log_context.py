"""The session that log lines of the current task belong to."""

from contextvars import ContextVar

SESSION: ContextVar[str] = ContextVar("session", default="")
"""The id of the session whose turn runs in this task."""
