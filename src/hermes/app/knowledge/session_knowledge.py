"""What sessions know beyond their conversation: chooses their memory and connects it to them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.agent.system_prompt import PromptExtras
from hermes.agent.turn import Agent
from hermes.app.context_window import is_small_window
from hermes.app.knowledge.skill_access import list_own_roots, make_needs, open_library
from hermes.config.load import Setup
from hermes.config.paths import skills_folder
from hermes.core.errors import ConfigError
from hermes.core.store import Store
from hermes.memory.scope import MEMORY, MemoryScope, choose_scope, has_memory
from hermes.skills.skill import SKILLS, Skill

if TYPE_CHECKING:
    from hermes.app.knowledge.recall import FindFacts, SessionRecall
    from hermes.app.knowledge.review import Reviews
    from hermes.app.knowledge.titles import SpawnTask
    from hermes.app.session import Session
    from hermes.app.session_host import Pause, SessionHost
    from hermes.core.services import Services
    from hermes.memory.external_memory import ExternalMemory
    from hermes.memory.notebook import Notebook
    from hermes.memory.provider import MemoryProvider
    from hermes.memory.session_memory import SessionMemory
    from hermes.skills.session_skills import SessionSkills

_MEMORY_TOOLS = frozenset({"memory"})
_MEMORY_BYTES = 3600
"""What a memory may take of a prompt before the list of skills becomes shorter."""
_LEAST_INDEX = 700
_DANGEROUS = (
    "The skill {name} was not used: {finding}. Nobody watches a scheduled run: change the skill, "
    "or the job with hermes cron edit."
)


class Knowledge:
    """One per process. A home without memories costs a look at the file system."""

    def __init__(self, setup: Setup, store: Store, spawn: SpawnTask) -> None:
        self.learns = setup.config.memory.review
        """Whether conversations are reviewed; not for single prompts."""
        self.plugin_skills: tuple[Skill, ...] = ()
        self.plugin_memories: Mapping[str, MemoryProvider] = {}
        self.external: ExternalMemory | None = None
        """Opened by the first session that has a memory."""
        self._spawn = spawn
        self._reviews: Reviews | None = None
        self._setup = setup
        self._store = store
        self._settings = setup.config.memory

    def find_scope(self, source: str, key: str, user: str) -> MemoryScope | None:
        """Whose memory a session has; None: it has none."""
        if not self._settings.enabled:
            return None
        return choose_scope(source, key, user=user, owners=self._settings.owners)

    def list_absent_tools(self, scope: MemoryScope | None) -> frozenset[str]:
        """Tools that a session with this scope cannot have."""
        return frozenset() if scope else _MEMORY_TOOLS

    async def build_extras(
        self, place: str, agent: Agent, cwd: Path, scope: MemoryScope | None
    ) -> PromptExtras:
        """What the prompt of a new session says about where commands run and what is known."""
        window = agent.providers[0].endpoint.context_length if agent.providers else None
        if agent.small or is_small_window(window):
            return PromptExtras(place)
        memory = await self.show_memory(agent, scope) if scope else ""
        excess = len(memory.encode()) + memory.count("\n") - _MEMORY_BYTES
        skills = await self._list_skills(agent, cwd, max(0, excess))
        return PromptExtras(place, memory=memory, skills=skills)

    async def _list_skills(self, agent: Agent, cwd: Path, excess: int) -> str:
        """The list of skills for a prompt, shorter by the `excess` of a long memory: the first
        request stays small. Built-in ones alone are not worth its bytes."""
        limit = self._setup.config.skills.index_bytes
        limit = max(min(limit, _LEAST_INDEX), limit - excess)
        if not limit or "skill_view" not in agent.tools:
            return ""
        roots = list_own_roots(self._setup, cwd)
        if not roots and not self.plugin_skills:
            return ""
        from hermes.skills.index_block import build_skills_block
        from hermes.skills.skill_uses import SkillUses

        disabled = self._setup.config.skills.disabled
        needs = make_needs(self._setup, agent.tools)
        found = [
            skill
            for skill in open_library(self._setup, roots, self.plugin_skills).list_skills()
            if not skill.problem and skill.name not in disabled and not needs.find_unmet(skill)
        ]
        if all(skill.source == "builtin" for skill in found):
            return ""
        uses = await SkillUses(self._store.objects).count_uses()
        return agent.redactor.redact(build_skills_block(found, uses, limit))

    async def show_memory(self, agent: Agent, scope: MemoryScope) -> str:
        """What a new session would be shown of its memory now."""
        if not has_memory(self._setup.home, scope):
            return ""
        from hermes.memory.prompt_block import build_memory_block

        return await build_memory_block(
            self._store.facts, self._setup.home, self._settings, scope, agent.redactor.redact
        )

    def open_notebook(self, agent: Agent, scope: MemoryScope) -> Notebook:
        from hermes.memory.notebook import Notebook

        return Notebook(
            self._store.facts,
            self._setup.home,
            self._settings,
            scope,
            agent.redactor.redact,
            lambda: self.external.begin_delivery() if self.external else None,
        )

    def connect_session(
        self, session: Session, services: Services, scope: MemoryScope | None
    ) -> None:
        """Give the tools of a session its memory and its skills."""
        services.set(SKILLS, lambda: self.open_skills(session))
        if scope is None:
            return

        def open_memory() -> SessionMemory:
            from hermes.memory.page import Author
            from hermes.memory.session_memory import SessionMemory

            transcript = session.transcript
            return SessionMemory(
                self.open_notebook(session.agent, scope),
                self._settings.write_approval,
                lambda: transcript.taint.untrusted,
                lambda: Author("tool", transcript.id, session.options.user),
                session.host.emit_notice,
                link.find_facts if link else None,
            )

        services.set(MEMORY, open_memory)
        link = self._connect_provider(session, scope)

        def look_back(pause: Pause, copied: int) -> None:
            if pause == "end" and session.transcript.meta.source == "api":
                return  # every request ends there; the conversation does not
            if link is not None:
                link.end_part(pause)
            if not self.learns or not session.transcript.stored:
                return
            if pause == "continue":
                self._open_reviews().skip_copied(session.id, copied)
            else:
                ending = pause != "turn"
                self._open_reviews().begin_review(session, open_memory(), ending=ending)

        if scope.writable and not session.agent.small:
            session.host.on_pause = look_back

    def _connect_provider(self, session: Session, scope: MemoryScope) -> SessionRecall | None:
        """Let a session use the memory provider, and recall facts with each message if that is
        configured; None: there is no provider."""
        is_automatic = self._settings.recall == "auto"
        external = self._open_external(session)
        if session.agent.small or (external is None and not is_automatic):
            return None
        from hermes.app.knowledge.recall import MessageRecall, SessionRecall, search_notebook

        link = SessionRecall(session, scope, external) if external else None
        find_facts: FindFacts | None = None
        if is_automatic and link is not None:
            find_facts = link.find_facts
        elif is_automatic:
            find_facts = search_notebook(session, self.open_notebook(session.agent, scope))
        session.host.recall = MessageRecall(session, find_facts, link)
        if external is not None:
            external.begin_delivery()
        return link

    def _open_external(self, session: Session) -> ExternalMemory | None:
        """The process's link to the memory provider; None: none is configured, or it cannot be
        used, which is said once."""
        if not self._settings.provider:
            return None
        if self.external is None:
            from hermes.app.knowledge.providers import open_provider
            from hermes.memory.delivery_queue import DeliveryQueue
            from hermes.memory.external_memory import ExternalMemory

            try:
                provider = open_provider(self._setup, self.plugin_memories)
            except ConfigError as error:
                notices = session.host.shared.notices
                notices += [] if str(error) in notices else [str(error)]
                return None
            seconds = self._settings.http.timeout_seconds
            queue = DeliveryQueue(self._store, self._setup.home, provider)
            self.external = ExternalMemory(queue, seconds, self._spawn)
        return self.external

    def open_skills(self, session: Session) -> SessionSkills:
        from hermes.skills.installer import SkillInstaller, refuse_download
        from hermes.skills.proposals import SkillProposals
        from hermes.skills.session_skills import SessionSkills
        from hermes.skills.skill_uses import SkillUses

        setup, objects = self._setup, self._store.objects
        installer = SkillInstaller(skills_folder(setup.home), refuse_download)
        roots = list_own_roots(setup, session.host.workspace.cwd)
        return SessionSkills(
            open_library(setup, roots, self.plugin_skills),
            make_needs(setup, session.agent.tools),
            setup.config.skills.disabled,
            installer,
            SkillUses(objects),
            SkillProposals(objects, installer),
            partial(_allow_reading, session.host),
        )

    def list_skill_names(self, cwd: Path) -> frozenset[str]:
        """The skills that sessions in a folder can use."""
        roots = list_own_roots(self._setup, cwd)
        found = open_library(self._setup, roots, self.plugin_skills).list_skills()
        disabled = self._setup.config.skills.disabled
        return frozenset(s.name for s in found if not s.problem and s.name not in disabled)

    async def use_skill(self, session: Session, name: str, arguments: str) -> str:
        """The instructions of a skill as a message; empty: there is none of this name."""
        from hermes.skills.skill_tools import expand_skill

        mine = self.open_skills(session)
        skill = mine.find_skill(name)
        if skill is None:
            return ""
        await mine.open_skill(skill)
        return expand_skill(skill, arguments)

    async def use_skill_unattended(self, session: Session, name: str, arguments: str) -> str:
        """The same where nobody watches; ConfigError when a scan finds the skill dangerous."""
        mine = self.open_skills(session)
        skill = mine.find_skill(name)
        if skill and (danger := await asyncio.to_thread(mine.find_danger, skill)):
            raise ConfigError(_DANGEROUS.format(name=name, finding=danger))
        return await self.use_skill(session, name, arguments)

    def _open_reviews(self) -> Reviews:
        if self._reviews is None:
            from hermes.app.knowledge.review import Reviews

            self._reviews = Reviews(self._store, self._settings, self._spawn)
        return self._reviews

    async def wait_unfinished(self) -> None:
        """Give what was begun in the background a moment to complete."""
        if self._reviews is not None:
            await self._reviews.wait_unfinished()
        if self.external is not None:
            await self.external.close()


def _allow_reading(host: SessionHost, folder: str) -> None:
    """Let the tools of a session read a folder from now on."""
    real = Path(os.path.realpath(folder))
    if real not in host.workspace.readable:
        readable = (*host.workspace.readable, real)
        host.workspace = structs.replace(host.workspace, readable=readable)
