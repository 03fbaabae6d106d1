"""The subagents of a process: connects sessions with what is loaded when one delegates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes.core.message import Message
from hermes.core.services import ServiceKey

if TYPE_CHECKING:
    from hermes.app.background_commands import BackgroundCommands
    from hermes.app.extensions.background_results import BackgroundNews, BackgroundResults
    from hermes.app.extensions.delegation import Child, ChildOpener, SessionDelegation
    from hermes.app.knowledge.titles import SpawnTask
    from hermes.app.session import Session
    from hermes.config.schema import DelegationSection
    from hermes.core.services import Services
    from hermes.core.store import Store

DELEGATION: ServiceKey[Callable[[], SessionDelegation]] = ServiceKey("delegation")
"""Opens the delegation of a session, when it is first needed."""
_OPEN_DELEGATION: ServiceKey[SessionDelegation] = ServiceKey("open delegation")


class Delegations:
    """One per process; a process that delegates nothing pays nothing."""

    def __init__(
        self,
        settings: DelegationSection,
        store: Store,
        open_child: ChildOpener,
        commands: BackgroundCommands,
        spawn_task: SpawnTask,
    ) -> None:
        self.is_single = False
        """Whether this process answers one prompt and exits."""
        self._settings = settings
        self._store = store
        self._open_child = open_child
        self._commands = commands
        self._spawn_task = spawn_task
        self._open: dict[Session, SessionDelegation] = {}
        self._results: BackgroundResults | None = None

    def connect_session(self, session: Session, services: Services, *, is_resumed: bool) -> None:
        """Let the tools of a session delegate. One that is resumed may have results waiting."""
        services.set(DELEGATION, lambda: self._open_delegation(session, services))
        if is_resumed:
            session.host.news = _LateNews(lambda: self.open_news(session))

    def list_children(self, session: Session) -> list[Child]:
        """The subagents of a session that are at work."""
        found = self._open.get(session)
        return list(found.children.values()) if found is not None else []

    def _open_delegation(self, session: Session, services: Services) -> SessionDelegation:
        found = self._open.get(session)
        if found is None:
            from hermes.app.extensions.delegation import DelegationServices, SessionDelegation

            shared = DelegationServices(
                self._settings,
                self._open_child,
                self._commands,
                self._open_results(),
                self.open_news,
                self._spawn_task,
                lambda closed: self._open.pop(closed, None),
            )
            found = SessionDelegation(shared, session, is_single=self.is_single)
            self._open[session] = found
            services.set(_OPEN_DELEGATION, found)
        return found

    def _open_results(self) -> BackgroundResults:
        if self._results is None:
            from hermes.app.extensions.background_results import BackgroundResults

            self._results = BackgroundResults(self._store)
        return self._results

    def open_news(self, session: Session) -> BackgroundNews:
        """Have a session told the results of its background subagents with its next message."""
        from hermes.app.extensions.background_results import BackgroundNews

        def end(ended: BackgroundNews) -> None:
            if session.host.news is ended:
                session.host.news = None

        news = BackgroundNews(self._open_results(), session.transcript, end)
        session.host.news = news
        return news


class _LateNews:
    """Looks for results when a resumed conversation has its next message."""

    def __init__(self, open_news: Callable[[], BackgroundNews]) -> None:
        self._open_news = open_news
        self._news: BackgroundNews | None = None

    async def add_news(self, message: Message) -> Message:
        self._news = self._open_news()
        return await self._news.add_news(message)

    async def settle_news(self) -> None:
        if self._news is not None:
            await self._news.settle_news()
