"""Small questions to a model beside the conversation: summaries, titles, pictures, judgements."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hermes.agent.deps import Agent, Endpoint, Turn, sees_images
from hermes.agent.recovery import Attempt
from hermes.agent.step import Stopped, sample
from hermes.core.errors import ConfigError, ToolError
from hermes.core.history import History
from hermes.core.message import Media, Message, ToolCall
from hermes.core.provider import Settings
from hermes.core.tool import ToolContext
from hermes.llm.catalog import Choice, resolve
from hermes.llm.client import Client

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime


class Auxiliary:
    """One per process. A job has the model the configuration gives it, else the conversation's
    own; when the job's own fails, the conversation's is asked."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._clients: dict[str, tuple[Endpoint, ...]] = {}

    async def ask(
        self, job: str, prompt: Message, *, main: Agent, system: str = "", max_output: int = 1024
    ) -> str:
        """The answer's text. ToolError says in one sentence why there is none."""
        chain = (*self._own(job), *main.providers)
        if not any(isinstance(part, Media) for part in prompt.parts):
            return (await self._sample(chain, prompt, main, system, max_output)).text
        learned = self._runtime.learned
        while seeing := tuple(e for e in chain if sees_images(e, learned)):
            answer = await self._sample(seeing, prompt, main, system, max_output)
            # A model that refused the picture was asked again without it: that is no answer.
            if any(e.target == answer.origin and sees_images(e, learned) for e in seeing):
                return answer.text
        raise ToolError(f"No model here takes images; name one that does in auxiliary.{job}.")

    async def _sample(
        self,
        chain: tuple[Endpoint, ...],
        prompt: Message,
        main: Agent,
        system: str,
        max_output: int,
    ) -> Message:
        agent = Agent(chain, limits=structs.replace(main.limits, tries=2), redactor=main.redactor)
        turn = Turn(
            system=system,
            history=History((prompt,)),
            record=_forget,
            emit=_nothing,
            steer=_no_steer,
            context=_no_tools,
            absorb=_nothing_read,
            sleep=self._runtime.sleep,
            learned=self._runtime.learned,
        )
        try:
            return await sample(agent, turn, Attempt(Settings(max_output=max_output)))
        except Stopped as stop:
            raise ToolError(stop.error) from None

    def _own(self, job: str) -> Sequence[Endpoint]:
        wanted = self._runtime.setup.config.auxiliary.get(job)
        if wanted is None:
            return ()
        if job not in self._clients:
            self._clients[job] = self._open(job)
        return self._clients[job]

    def _open(self, job: str) -> tuple[Endpoint, ...]:
        runtime = self._runtime
        wanted = runtime.setup.config.auxiliary[job]
        choice = Choice(
            model=wanted.model,
            provider=wanted.provider,
            base_url=wanted.base_url,
            api_key_env=wanted.api_key_env,
            api_mode=wanted.api_mode or "",
        )
        try:
            endpoint = resolve(runtime.setup.config, runtime.setup.secrets, choice)[0]
        except ConfigError as error:
            raise ToolError(f"auxiliary.{job}: {error}") from None
        return (Client(endpoint, runtime.transport, sleep=runtime.sleep),)


async def _forget(message: Message | None, state: Any) -> None:
    return None


def _nothing(event: object) -> None:
    return None


def _no_steer() -> str:
    return ""


def _nothing_read(brings: Collection[Any]) -> None:
    return None


def _no_tools(call: ToolCall) -> ToolContext:
    raise AssertionError("an auxiliary call has no tools")
