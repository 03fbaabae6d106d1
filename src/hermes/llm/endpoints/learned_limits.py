"""What endpoints have stated or shown, stored so that no process has to learn it again."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from hermes.config.paths import make_private_folder
from hermes.config.private_files import replace_file
from hermes.llm.endpoints.endpoint import ModelEndpoint

log = logging.getLogger(__name__)

MONTH = 30 * 86400.0
"""How long a limit is kept: a server may be set up differently later."""
MAX_ENTRIES = 500
LEAST_CONTEXT, LEAST_OUTPUT = 1024, 256
"""A smaller stated limit is taken for a mistake."""


class LearnedLimit(Struct, frozen=True, omit_defaults=True):
    context: int | None = None
    output: int | None = None
    when: float = 0.0
    calling: str = ""
    """How the model calls tools: native, text or schema."""


class LearnedLimits:
    """Reads its file on first use and replaces it at every change; only the owner can read it. A
    file that cannot be used does no harm: the limit is learned again."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._known: dict[str, LearnedLimit] | None = None

    def find(self, base_url: str, model: str) -> LearnedLimit:
        if self._known is None:
            self._known = self._read_file()
        return self._known.get(_limit_key(base_url, model), LearnedLimit())

    def apply_to(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        """The endpoint with the context length it stated, which replaces what tables say (what is
        configured stays), and the way of calling tools that worked."""
        lesson = self.find(endpoint.base_url, endpoint.target.model)
        if endpoint.finds_calling and lesson.calling:
            endpoint = structs.replace(endpoint, learned_calling=lesson.calling)
        if endpoint.learned_calling == "schema":
            quirks = structs.replace(endpoint.quirks, calling="schema")
            endpoint = structs.replace(endpoint, quirks=quirks)
        known = endpoint.context_length
        if lesson.context in (None, known) or endpoint.has_configured_context:
            return endpoint
        log.info(
            "%s has a context of %d tokens, as its endpoint stated on %s, instead of %s",
            endpoint.target.model,
            lesson.context,
            time.strftime("%Y-%m-%d", time.localtime(lesson.when)),
            known or "an unknown number",
        )
        return structs.replace(endpoint, context_length=lesson.context)

    def learn_limit(
        self, base_url: str, model: str, *, context: int | None = None, output: int | None = None
    ) -> None:
        """Store limits that are new and plausible."""
        changes: dict[str, int] = {}
        if context and context >= LEAST_CONTEXT:
            changes["context"] = context
        if output and output >= LEAST_OUTPUT:
            changes["output"] = output
        self._store(base_url, model, **changes)

    def learn_calling(self, base_url: str, model: str, calling: str) -> None:
        """Store the way of calling tools that worked."""
        self._store(base_url, model, calling=calling)

    def _store(self, base_url: str, model: str, **changes: Any) -> None:
        old = self.find(base_url, model)
        new = structs.replace(old, **changes)
        if new == old:
            return
        new = structs.replace(new, when=self._clock())
        if new.context != old.context:
            log.info(
                "%s has a context of %s tokens, as its endpoint states: sessions without a "
                "configured context_length get it from now on",
                model,
                new.context,
            )
        # Another process may have written meanwhile.
        known = self._read_file() | {_limit_key(base_url, model): new}
        self._known = dict(sorted(known.items(), key=lambda item: item[1].when)[-MAX_ENTRIES:])
        with suppress(OSError):
            make_private_folder(self._file.parent)
            replace_file(self._file, msgspec.json.encode(self._known))

    def _read_file(self) -> dict[str, LearnedLimit]:
        try:
            found = msgspec.json.decode(self._file.read_bytes(), type=dict[str, LearnedLimit])
        except (OSError, ValueError):
            return {}
        oldest = self._clock() - MONTH
        return {key: limit for key, limit in found.items() if limit.when >= oldest}


def _limit_key(base_url: str, model: str) -> str:
    return f"{base_url.partition('?')[0].rstrip('/')} {model}"
