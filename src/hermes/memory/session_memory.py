"""The memory of a session: who writes, whether a person is asked, and what is said about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from hermes.core.message import ToolCall
from hermes.core.tool import Confirmation
from hermes.memory.notebook import Change, Notebook, Outcome
from hermes.memory.page import Author, MemoryRefused
from hermes.memory.provider import RecalledFact

_TAINTED = "it changes the memory, and this session has read untrusted text"
_ALWAYS = "it changes the memory"
_DENIED = "The user does not want this in memory. Nothing was changed."
_READ_ONLY = "Memory cannot be changed from here. Nothing was changed."
_LONGEST_NOTICE = 200


class SessionMemory(Struct, frozen=True):
    """What the tool `memory` may use."""

    notebook: Notebook
    write_approval: str
    is_tainted: Callable[[], bool]
    """Whether the session has read untrusted text."""
    author: Callable[[], Author]
    notify: Callable[[str, str], None]
    """Shows the people of the session a notice: its code and its text."""
    recall: Callable[[str, int], Awaitable[Sequence[RecalledFact]]] | None = None
    """Asks the memory provider; None: there is none."""

    async def write_changes(
        self, changes: Sequence[Change], call: ToolCall, confirm: Confirmation
    ) -> list[Outcome]:
        """Make the changes, or hold them until a person answers."""
        if not self.notebook.scope.writable:
            raise MemoryRefused(_READ_ONLY)
        planned = await self.notebook.preview_changes(changes)
        if any(outcome.status != "known" for outcome in planned) and self._asks:
            reason = _TAINTED if self.is_tainted() else _ALWAYS
            answer = await confirm(call, reason, "\n".join(map(format_diff, planned)))
            if answer is None:
                return self._announce(
                    await self.notebook.hold_changes(changes, self.author()),
                )
            if not answer:
                raise MemoryRefused(_DENIED)
        return self._announce(await self.notebook.apply_changes(changes, self.author()))

    async def learn_entry(self, change: Change, author: Author) -> None:
        """Keep what a review noted; nobody is asked, so what needs a person waits for one."""
        if self._asks:
            self._announce(await self.notebook.hold_changes((change,), author))
        else:
            self._announce(await self.notebook.apply_changes((change,), author))

    @property
    def _asks(self) -> bool:
        if self.write_approval == "tainted":
            return self.is_tainted()
        return self.write_approval == "always"

    def _announce(self, outcomes: list[Outcome]) -> list[Outcome]:
        for outcome in outcomes:
            if text := describe_outcome(outcome):
                self.notify("memory", text)
        return outcomes


def format_diff(outcome: Outcome) -> str:
    """The exact texts that a change takes away and adds."""
    target = "USER.md" if outcome.change.target == "user" else "MEMORY.md"
    lines = [f"{target}:"]
    if outcome.replaced:
        lines += [f"-{line}" for line in outcome.replaced.split("\n")]
    if outcome.change.action != "remove":
        lines += [f"+{line}" for line in outcome.text.split("\n")]
    return "\n".join(lines)


def describe_outcome(outcome: Outcome) -> str:
    """A sentence for people; empty when nothing changed."""
    if outcome.fact is None:
        return ""
    text = " ".join(outcome.text.split())
    if len(text) > _LONGEST_NOTICE:
        text = f"{text[: _LONGEST_NOTICE - 1]}…"
    match outcome.status:
        case "known":
            return ""
        case "pending":
            return f'Memory: waits for your word ({outcome.fact.name}): "{text}".'
        case "removed":
            return f'Memory: forgot "{text}".'
    return f'Memory: kept "{text}".'
