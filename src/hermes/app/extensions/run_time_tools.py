"""Tools that no module defines: made at run time, for example by MCP servers."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, structs

from hermes.agent.turn import Agent
from hermes.app.agents import Options
from hermes.core.tool import Tool
from hermes.tools.registry import SEARCH


class SessionTraits(Struct, frozen=True):
    """What decides which tools a session is given."""

    options: Options
    platform: str
    cwd: Path
    tools: Mapping[str, Tool[Any]]
    """The tools that its toolsets select."""
    absent: frozenset[str] = frozenset()
    """Tools that it cannot have."""


class RunTimeTools(Protocol):
    """A source of tools. Those of the toolset `core` are declared in every request of a session;
    the model finds the others with `tool_search`."""

    def serves_session(self, session: SessionTraits) -> bool:
        """Whether it has tools for the session, or may find some while it runs."""

    def list_tools(self, session: SessionTraits) -> tuple[Tool[Any], ...]:
        """The tools it has now; the same object as before when nothing changed."""

    def list_declared(self, session: SessionTraits) -> tuple[Tool[Any], ...]:
        """Those of the toolset `core`. It is asked once, when the session begins."""


class SessionTools(Mapping[str, Tool[Any]]):
    """The selected tools of a session, and those that are made while it runs. A selected tool
    hides one of the same name; the others are looked up only when a name is not selected."""

    def __init__(self, session: SessionTraits, sources: Sequence[RunTimeTools]) -> None:
        self.selected = session.tools
        self._session = session
        self._sources = sources
        self._lists: tuple[tuple[Tool[Any], ...], ...] = ()
        self._made: dict[str, Tool[Any]] = {}

    def __getitem__(self, name: str) -> Tool[Any]:
        return self.selected[name] if name in self.selected else self.list_made()[name]

    def __contains__(self, name: object) -> bool:
        return name in self.selected or name in self.list_made()

    def __iter__(self) -> Iterator[str]:
        yield from self.selected
        yield from self.list_made()

    def __len__(self) -> int:
        return len(self.selected) + len(self.list_made())

    def __bool__(self) -> bool:
        return True

    def list_made(self) -> dict[str, Tool[Any]]:
        """The tools that no module defines, by name."""
        lists = tuple([source.list_tools(self._session) for source in self._sources])
        if len(lists) != len(self._lists) or any(
            new is not old for new, old in zip(lists, self._lists, strict=True)
        ):
            self._lists = lists
            found = {tool.name: tool for tools in reversed(lists) for tool in tools}
            hidden = {*self.selected, *self._session.absent}
            self._made = {n: t for n, t in sorted(found.items()) if n not in hidden}
        return self._made


def extend_agent(agent: Agent, session: SessionTraits, sources: Sequence[RunTimeTools]) -> Agent:
    """The agent with the run-time tools of a session; the same agent if it has none."""
    active = [source for source in sources if source.serves_session(session)]
    if not active:
        return agent
    tools = SessionTools(session, active)
    if not agent.providers:
        return structs.replace(agent, tools=tools)
    declared = [tool for source in active for tool in source.list_declared(session)]
    if SEARCH not in session.tools:  # otherwise the model could not find them
        declared = list(tools.values())
    taken = {spec.name for spec in agent.specs}
    taken |= {*session.tools, *session.absent}
    more = {t.name: t.spec for t in declared if t.name not in taken}
    return structs.replace(agent, tools=tools, specs=(*agent.specs, *more.values()))
