"""Asks the user a question and waits for the answer."""

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, tool

MAX_CHOICES = 8
MAX_WAIT = 3600.0
_NO_ANSWER = (
    "Nobody can answer now. Decide yourself and say what you assumed, or end your turn with the "
    "question."
)


class Params(Struct, frozen=True):
    question: str
    choices: list[str] | None = None


@tool(
    "Ask the user when you cannot go on without an answer; they may also answer in their own "
    "words.",
    exclusive=True,
    timeout=MAX_WAIT,
)
async def clarify(p: Params, ctx: ToolContext) -> ToolResult:
    question = p.question.strip()
    if not question:
        raise ToolError("The question is empty.")
    choices = tuple(dict.fromkeys(c.strip() for c in p.choices or () if c.strip()))[:MAX_CHOICES]
    answer = await ctx.user.ask(question, choices)
    if answer is None:
        return ToolResult(_NO_ANSWER, error=True)
    text = answer.strip()
    return ToolResult(f"The user answers: {text}" if text else "The user gave an empty answer.")
