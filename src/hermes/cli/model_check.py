"""One real answer from a model, through everything a conversation goes through; then it is kept."""

from __future__ import annotations

import asyncio
import time

from msgspec import Struct, structs

from hermes.app.runtime import Options, Runtime
from hermes.cli.terminal.text import one_line
from hermes.config.load import Setup
from hermes.core.errors import HermesError
from hermes.core.events import TurnResult
from hermes.core.message import user
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.http.transport import EMBEDDED

_HELLO = "Say hello in one short sentence."
_CALLS = 3
"""Model calls: hello takes one, and a small model may try a tool first."""
_SECONDS = 60.0
_SHOWN = 300


class Answer(Struct, frozen=True):
    text: str = ""
    session: str = ""
    provider: str = ""
    model: str = ""
    seconds: float = 0.0
    problem: str = ""
    """Why there is none: a sentence."""

    @property
    def name(self) -> str:
        return self.model if self.provider == "custom" else f"{self.provider}:{self.model}"


async def hello(setup: Setup, choice: ModelChoice) -> Answer:
    """Exactly this model, once: nobody else answers in its place."""
    config = setup.config
    alone = structs.replace(
        config, fallback_providers=(), agent=structs.replace(config.agent, api_max_retries=1)
    )
    try:
        async with Runtime.open(structs.replace(setup, config=alone)) as runtime:
            return await _asked(runtime, choice)
    except HermesError as error:
        return Answer(problem=str(error))


async def _asked(runtime: Runtime, choice: ModelChoice) -> Answer:
    session = await runtime.session(
        cwd=runtime.folder, options=Options(choice=choice, max_turns=_CALLS)
    )
    endpoint = session.agent.providers[0].endpoint
    embedded = endpoint.base_url.startswith(EMBEDDED)
    if embedded:
        from hermes.cli.terminal.download import prepare

        await prepare(endpoint.base_url, runtime.transport)
    began = time.monotonic()
    try:
        async with asyncio.timeout(None if embedded else _SECONDS):
            result = await session.turn(user(_HELLO))
    except TimeoutError:
        result = TurnResult(failed=True, error=f"No answer in {_SECONDS:.0f} s.")
    seconds = time.monotonic() - began
    target = endpoint.target
    text = one_line(result.text, _SHOWN)
    if not text and result.completed:
        result = structs.replace(result, completed=False, error="The answer was empty.")
    if not text or not (result.completed or result.partial):
        await session.close()
        await runtime.store.delete(session.id)  # a failed try is no conversation
        return Answer(problem=f"{target.provider}:{target.model} does not work: {result.error}")
    return Answer(text, session.id, target.provider, target.model, seconds)


def keep(setup: Setup, choice: ModelChoice, answer: Answer) -> None:
    """Into config.yaml; what belonged to another model goes."""
    from hermes.config.update import editing

    old = setup.config.model
    with editing(setup.home) as put:
        put("model.provider", answer.provider)
        put("model.default", answer.model)
        kept = ["model.provider", "model.default"]
        for name, new in (("base_url", choice.base_url), ("api_key_env", choice.api_key_env)):
            if new or getattr(old, name):
                put(f"model.{name}", new)
                kept.append(f"model.{name}")
        if old.api_mode and old.provider != answer.provider:
            put("model.api_mode", "null")
    print(f"Kept in {setup.home / 'config.yaml'}: {', '.join(kept)}.")
