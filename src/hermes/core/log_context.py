"""Whose work is being done now: what is logged meanwhile carries its name."""

from __future__ import annotations

from contextvars import ContextVar

SESSION: ContextVar[str] = ContextVar("session", default="")
"""The id of the session whose turn runs in this task."""
