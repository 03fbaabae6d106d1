"""Calls the hooks around a whole turn."""

from hermes.agent.turn import Agent
from hermes.core.events import TurnResult
from hermes.core.hooks import SessionHooks, add_context, parse_context
from hermes.core.message import Message


class HookedTurn:
    """One turn that hooks are told about."""

    def __init__(self, hooks: SessionHooks, agent: Agent, prompt: str) -> None:
        self._hooks = hooks
        self._model = agent.providers[0].target.model if agent.providers else ""
        self._prompt = prompt
        self._is_first = False

    async def begin_turn(self, message: Message, *, is_first: bool) -> Message:
        """The message to answer: the user's, with what hooks add to it."""
        self._is_first = is_first
        if is_first:
            await self._hooks.notify("on_session_start", model=self._model)
        contexts = await self._hooks.ask_all(
            "pre_llm_call",
            parse_context,
            user_message=self._prompt,
            is_first_turn=is_first,
            model=self._model,
        )
        return add_context(message, contexts)

    async def end_turn(self, result: TurnResult) -> None:
        completed = result.status == "completed"
        if completed:
            await self._hooks.notify(
                "post_llm_call",
                user_message=self._prompt,
                is_first_turn=self._is_first,
                model=self._model,
                assistant_response=result.text,
            )
        await self._hooks.notify(
            "on_session_end", completed=completed, interrupted=result.status == "interrupted"
        )
