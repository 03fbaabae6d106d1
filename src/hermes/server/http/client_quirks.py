"""Programs that read more into an answer than it says, known by what they tell of themselves."""

from __future__ import annotations

from collections.abc import Mapping

OFFICIAL = "X-Stainless-Lang"
"""Sent by every official SDK."""
_CHUNKS_ONLY = (
    "ai-sdk/",
    "async-openai",
    "go-http-client",
    "langchain",
    "litellm",
    "openai/",
    "opencode",
)
"""They read every event of a chat stream as a chunk, whatever its name."""
_RUNNERS = ("agents/", "ai-sdk/", "codex", "opencode")
"""They run every function call they see, or end with an error when they have no such function:
what was run already is asked for again, without end."""


def reads_chunks_only(headers: Mapping[str, str]) -> bool:
    return OFFICIAL in headers or _is_one(headers, _CHUNKS_ONLY)


def runs_every_call(headers: Mapping[str, str]) -> bool:
    return _is_one(headers, _RUNNERS)


def _is_one(headers: Mapping[str, str], marks: tuple[str, ...]) -> bool:
    told = f"{headers.get('User-Agent', '')} {headers.get('Originator', '')}".lower()
    return any(mark in told for mark in marks)
