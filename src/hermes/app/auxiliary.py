"""Small questions to a model beside the conversation: summaries, titles, pictures, judgements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from hermes.agent.recovery import Attempt
from hermes.agent.step import Stopped, sample
from hermes.agent.turn import Agent, Endpoint, Metering, Turn, sees_images
from hermes.app.auxiliary_models import Jobs
from hermes.app.side_turn import turn_aside
from hermes.core.errors import ToolError
from hermes.core.message import Media, Message
from hermes.core.provider import Settings

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime


class Auxiliary:
    """One per process. A job has a model of its own (see `jobs`); where there is none, or when it
    fails, the conversation's is asked."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.jobs = Jobs(runtime.setup, runtime.client)

    async def ask(
        self,
        job: str,
        prompt: Message,
        *,
        main: Agent,
        system: str = "",
        max_output: int = 1024,
        meter: Metering | None = None,
    ) -> str:
        """The answer's text. ToolError says in one sentence why there is none."""
        own = self.jobs.callees(job, main)
        chain = (*own, *main.providers)
        if not any(isinstance(part, Media) for part in prompt.parts):
            turn = self._turn(prompt, system, meter)
            answer = await self._sample(chain, main, turn, max_output)
            if 0 < len(own) <= turn.active:
                self.jobs.failed(job, f"{own[0].target.model} did not answer")
            return answer.text
        learned = self._runtime.learned
        while seeing := tuple(e for e in chain if sees_images(e, learned)):
            turn = self._turn(prompt, system, meter)
            answer = await self._sample(seeing, main, turn, max_output)
            # A model that refused the picture was asked again without it: that is no answer.
            if any(e.target == answer.origin and sees_images(e, learned) for e in seeing):
                return answer.text
        raise ToolError(f"No model here takes images; name one that does in auxiliary.{job}.")

    def _turn(self, prompt: Message, system: str, meter: Metering | None) -> Turn:
        runtime = self._runtime
        return turn_aside(runtime, prompt, system, learned=runtime.learned, meter=meter)

    async def _sample(
        self, chain: tuple[Endpoint, ...], main: Agent, turn: Turn, max_output: int
    ) -> Message:
        agent = Agent(chain, limits=structs.replace(main.limits, tries=2), redactor=main.redactor)
        try:
            return await sample(agent, turn, Attempt(Settings(max_output=max_output)))
        except Stopped as stop:
            raise ToolError(stop.error) from None
