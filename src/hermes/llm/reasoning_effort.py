"""Finds a reasoning effort that a model supports."""

import re
from collections.abc import Sequence
from typing import get_args

from hermes.core.provider import Effort

EFFORTS: tuple[Effort, ...] = get_args(Effort)
"""From least to most."""
_LISTED = re.compile(
    r"(?:(?:values|options|efforts|levels) ?(?:are|is|:|include)|one of|should be|expected|choose"
    r" from)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_REFUSED = re.compile(
    r"(?:not|n't|un|in)[ -]?(?:support|valid|allow|accept|permit|recogni[sz]|know)", re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z]+")


def fit_effort(asked: Effort | None, known: Sequence[Effort]) -> Effort | None:
    """The requested effort, else the next lower one that is known, else the lowest that still
    reasons. None: leave it to the model."""
    if asked is None or not known or asked in known:
        return asked
    levels = [effort for effort in EFFORTS[1:] if effort in known]
    lower = [effort for effort in levels if effort in EFFORTS[: EFFORTS.index(asked)]]
    return next(iter(lower[-1:] or levels), None)


def parse_efforts(message: str) -> tuple[Effort, ...]:
    """The efforts that remain after a refusal in these words: those it lists, else those below the
    one it names. Empty: it is not about a value."""
    if (match := _LISTED.search(message)) and (listed := _find_efforts(match["rest"])):
        return listed
    named = _find_efforts(message)
    if len(named) != 1 or named[0] == EFFORTS[0] or not _REFUSED.search(message):
        return ()
    return EFFORTS[: EFFORTS.index(named[0])]


def _find_efforts(text: str) -> tuple[Effort, ...]:
    words = set(_WORD.findall(text.lower()))
    return tuple(effort for effort in EFFORTS if effort in words)
