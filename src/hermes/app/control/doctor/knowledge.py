"""The checks of memory and skills: what waits for a person, and whether the provider answers."""

from hermes.app.control.doctor.check import Check
from hermes.config import paths
from hermes.config.load import Setup
from hermes.core.errors import StoreError
from hermes.core.store import DELIVERIES
from hermes.core.text import format_plural
from hermes.skills.proposals import SKILL_CHANGES
from hermes.store.sqlite import SqliteStore


async def check_knowledge(setup: Setup) -> list[Check]:
    pending = proposals = deliveries = 0
    if paths.database_file(setup.home).exists():
        store = SqliteStore(paths.database_file(setup.home))
        try:
            pending = len(await store.facts.read(lambda t: t.list_facts("", states=("pending",))))
            deliveries = len(await store.objects.list_all(DELIVERIES))
            proposals = len(await store.objects.list_all(SKILL_CHANGES))
        except StoreError:  # the check of the sessions says why
            return [Check("memory", "note", "the facts could not be read")]
        finally:
            await store.close()
    return [await _check_memory(setup, pending, deliveries), _check_skills(setup, proposals)]


async def _check_memory(setup: Setup, pending: int, deliveries: int) -> Check:
    settings = setup.config.memory
    if not settings.enabled:
        return Check("memory", "ok", "off (memory.enabled)")
    details = _find_unreadable_notes(setup)
    if pending:
        details.append(f"{format_plural(pending, 'fact')} for your approval: hermes memory pending")
    if deliveries:
        count = format_plural(deliveries, "delivery", "deliveries")
        details.append(f"{count} to the memory provider not made yet")
    if settings.provider:
        from hermes.app.knowledge.providers import check_provider

        answer = await check_provider(setup)
        if answer.startswith("failed"):
            details.append(f"provider {settings.provider} {answer}")
    return Check("memory", "note" if details else "ok", "on", tuple(details))


def _find_unreadable_notes(setup: Setup) -> list[str]:
    from hermes.memory.entries import read_entries
    from hermes.memory.scope import PROFILE_SCOPE, find_file

    problems = []
    for scope, target in PROFILE_SCOPE.pairs:
        file = find_file(setup.home, scope, target)
        try:
            read_entries(file)
        except OSError as error:
            problems.append(f"{file.name} could not be read ({error.strerror})")
    return problems


def _check_skills(setup: Setup, proposals: int) -> Check:
    from pathlib import Path

    from hermes.app.knowledge.skill_access import list_own_roots, open_library
    from hermes.skills.installer import SkillInstaller, refuse_download

    found = open_library(setup, list_own_roots(setup, Path.cwd())).list_skills()
    details = [f"{skill.name}: left out: {skill.problem}" for skill in found if skill.problem]
    if proposals:
        count = format_plural(proposals, "change")
        details.append(f"{count} for your approval: hermes skills pending")
    folder = paths.skills_folder(setup.home)
    if folder.is_dir():
        installer = SkillInstaller(folder, refuse_download)
        changed = [name for name in installer.read_records() if installer.find_changes(name)]
        details += [f"{name}: changed since it was installed" for name in changed]
    text = format_plural(len(found), "skill")
    return Check("skills", "note" if details else "ok", text, tuple(details))
