"""The memory of one scope: what may be written, searched, approved and restored."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, structs

from hermes.config.schema import MemorySection
from hermes.core.store import Fact, FactAction, Facts, FactState, FactTable, FactTarget
from hermes.memory import entries
from hermes.memory.delivery_queue import queue_change
from hermes.memory.page import (
    Author,
    JournalEntry,
    MemoryPage,
    MemoryRefused,
    Slot,
    get_fact,
    make_fact,
)
from hermes.memory.scope import MemoryScope

T = TypeVar("T")
_ARCHIVE_SECONDS = 30 * 86400
_SECRET = "That looks like a secret; memory is no place for it."
_MAX_SIMILAR = 5
_MAX_COMPARED = 50
"""Changes of one call whose entries are compared with the others."""
_CANDIDATES = 1000
"""Stored facts that are compared with a new one."""


class Change(Struct, frozen=True):
    """One wish of the model or of a person."""

    action: FactAction
    target: FactTarget = "memory"
    content: str = ""
    old_text: str = ""


class Outcome(Struct, frozen=True):
    """What became of a change. `status`: pinned, stored, known, removed or pending."""

    change: Change
    status: str
    text: str
    fact: Fact | None
    usage: str
    similar: tuple[str, ...] = ()
    replaced: str = ""
    """The text that the change removed."""


class Notebook:
    """All changes of one call are made together or not at all."""

    def __init__(
        self,
        facts: Facts,
        home: Path,
        settings: MemorySection,
        scope: MemoryScope,
        redact: Callable[[str], str],
        on_queued: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_queued` is called when there is something to tell the memory provider."""
        self.scope = scope
        self._facts = facts
        self._home = home
        self._settings = settings
        self._redact = redact
        self._on_queued = on_queued

    async def preview_changes(self, changes: Sequence[Change]) -> list[Outcome]:
        """What the changes would do; MemoryRefused when they cannot be made."""
        return await self._facts.read(lambda table: self._plan(self._open_pages(table), changes))

    async def apply_changes(self, changes: Sequence[Change], author: Author) -> list[Outcome]:
        def apply(table: FactTable) -> list[Outcome]:
            pages = self._open_pages(table)
            slots = self._make_changes(pages, changes)
            self._save_pages(table, pages, author)
            few = len(changes) <= _MAX_COMPARED
            return [
                self._describe(pages[change.target], change, slot, replaced, compare=few)
                for change, (slot, replaced) in zip(changes, slots, strict=True)
            ]

        return await self._change(apply)

    async def hold_changes(self, changes: Sequence[Change], author: Author) -> list[Outcome]:
        """Keep the changes as pending facts, which nothing shows until a person approves them."""

        def hold(table: FactTable) -> list[Outcome]:
            pages = self._open_pages(table)
            self._save_pages(table, pages, author)  # every entry gets an id
            olds = [self._find_old(pages[change.target], change) for change in changes]
            usages = {target: page.usage for target, page in pages.items()}
            planned = self._plan(pages, changes)
            held = []
            for change, outcome, old in zip(changes, planned, olds, strict=True):
                if outcome.status == "known":
                    held.append(outcome)
                    continue
                scope, now = self.scope.get_name(change.target), time.time()
                made = make_fact(author, scope, change.target, outcome.text, "pending", now)
                old_id = old.id if old else 0
                made = structs.replace(made, action=change.action, old=old_id)
                fact = table.insert_fact(made)
                usage = usages[change.target]
                held.append(Outcome(change, "pending", outcome.text, fact, usage))
            return held

        return await self._change(hold)

    async def list_facts(
        self, target: FactTarget | None = None, limit: int | None = None
    ) -> list[Fact]:
        """The facts that prompts show, then those that only search finds, the newest first."""
        await self._synchronize()

        def list_all(table: FactTable) -> list[Fact]:
            pages = self._open_pages(table)
            wanted = [pages[t] for t in self.scope.targets if target in (None, t)]
            rows = [row for page in wanted for row in page.list_facts()]
            shown = [fact for fact, is_shown in rows if is_shown]
            others = [structs.replace(f, state="stored") for f, is_shown in rows if not is_shown]
            return [*shown, *sorted(others, key=lambda fact: -fact.id)][:limit]

        return await self._facts.read(list_all)

    async def search_facts(
        self, query: str, limit: int, target: FactTarget | None = None
    ) -> list[Fact]:
        scopes = [pair for pair in self.scope.pairs if target in (None, pair[1])]

        def search(table: FactTable) -> list[Fact]:
            return table.search_facts(scopes, query, limit=limit)

        # One look at both: a search is made while a person waits for the first word.
        found = await self._facts.read(
            lambda table: search(table) if _are_synced(self._open_pages(table)) else None
        )
        if found is None:
            await self.apply_changes((), Author())
            found = await self._facts.read(search)
        if stored := [fact.id for fact in found if fact.state == "stored"]:
            await self._facts.change(lambda table: table.mark_used(stored))
        return found

    async def list_pending(self, target: FactTarget | None = None) -> list[Fact]:
        def list_all(table: FactTable) -> list[Fact]:
            return [
                fact
                for scope, name in self.scope.pairs
                if target in (None, name)
                for fact in table.list_facts(scope, name, states=("pending",))
            ]

        return await self._facts.read(list_all)

    async def approve_fact(self, number: int) -> Outcome:
        """Make a pending change."""

        def approve(table: FactTable) -> Outcome:
            fact = self._require_fact(table, number, "pending")
            pages = self._open_pages(table)
            page, change = pages[fact.target], Change(fact.action, fact.target, fact.text)
            old = page.find_by_id(fact.old) if fact.old else None
            if fact.action == "remove":
                if old is not None:
                    page.remove(old)
                slot = Slot(fact.text, fact)
                table.delete_fact(number)
            elif old is not None:
                slot = page.replace(old, fact.text, fact)
            else:
                slot = page.add(fact.text, fact)
            if slot.is_known:
                table.delete_fact(number)
            self._save_pages(table, pages, Author())
            return self._describe(page, change, slot, old.text if old else "")

        return await self._change(approve)

    async def reject_fact(self, number: int) -> Fact:
        def reject(table: FactTable) -> Fact:
            fact = self._require_fact(table, number, "pending")
            table.delete_fact(number)
            return fact

        return await self._facts.change(reject)

    async def remove_fact(self, number: int) -> Fact:
        await self._synchronize()

        def remove(table: FactTable) -> Fact:
            fact = self._require_fact(table, number, "pinned", "stored")
            pages = self._open_pages(table)
            old = pages[fact.target].find_by_id(number)
            assert old is not None
            pages[fact.target].remove(old)
            self._save_pages(table, pages, Author())
            return fact

        return await self._change(remove)

    async def restore_fact(self, number: int) -> Outcome:
        """Bring back what was removed."""

        def restore(table: FactTable) -> Outcome:
            fact = self._require_fact(table, number, "archived")
            pages = self._open_pages(table)
            slot = pages[fact.target].add(fact.text, fact)
            self._save_pages(table, pages, Author())
            return self._describe(pages[fact.target], Change("add", fact.target), slot, "")

        return await self._change(restore)

    async def clear_facts(self, target: FactTarget | None = None) -> int:
        """Archive everything, or all about one target; how many facts that were."""

        def clear(table: FactTable) -> int:
            pages = self._open_pages(table)
            count = sum(page.clear() for t, page in pages.items() if target in (None, t))
            self._save_pages(table, pages, Author())
            return count

        return await self._change(clear)

    async def measure_usage(self) -> dict[FactTarget, str]:
        def measure(table: FactTable) -> dict[FactTarget, str]:
            return {target: page.usage for target, page in self._open_pages(table).items()}

        return await self._facts.read(measure)

    def _open_pages(self, table: FactTable) -> dict[FactTarget, MemoryPage]:
        limits = {
            "memory": self._settings.memory_char_limit,
            "user": self._settings.user_char_limit,
        }
        journal: list[JournalEntry] = []
        return {
            target: MemoryPage(
                table, self._home, scope, target, limit=limits[target], journal=journal
            )
            for scope, target in self.scope.pairs
        }

    async def _change(self, run: Callable[[FactTable], T]) -> T:
        outcome = await self._facts.change(run)
        self._on_queued()
        return outcome

    async def _synchronize(self) -> None:
        """Let the table learn what people changed in the files."""
        if not await self._facts.read(lambda table: _are_synced(self._open_pages(table))):
            await self.apply_changes((), Author())

    def _save_pages(
        self, table: FactTable, pages: dict[FactTarget, MemoryPage], author: Author
    ) -> None:
        for page in pages.values():
            page.save(author)
            table.drop_surplus(page.scope, self._settings.max_facts)
        table.drop_archived(time.time() - _ARCHIVE_SECONDS)
        journal = pages["memory"].journal
        if self._settings.provider:
            for row in journal:
                queue_change(table, row)
        journal.clear()

    def _plan(
        self, pages: dict[FactTarget, MemoryPage], changes: Sequence[Change]
    ) -> list[Outcome]:
        slots = self._make_changes(pages, changes)
        return [
            Outcome(
                change,
                "known" if slot.is_known else change.action,
                slot.text,
                slot.fact,
                pages[change.target].usage,
                replaced=replaced,
            )
            for change, (slot, replaced) in zip(changes, slots, strict=True)
        ]

    def _make_changes(
        self, pages: dict[FactTarget, MemoryPage], changes: Sequence[Change]
    ) -> list[tuple[Slot, str]]:
        """Each change's entry, and the text it removed. Nothing is written yet."""
        made = []
        for number, change in enumerate(changes, 1):
            page = pages.get(change.target)
            try:
                if page is None:
                    raise MemoryRefused("Several people talk here: nothing is kept about a user.")
                made.append(self._make_change(page, change))
            except MemoryRefused as refusal:
                refusal.number = number
                raise
        return made

    def _make_change(self, page: MemoryPage, change: Change) -> tuple[Slot, str]:
        if change.action == "add":
            return page.add(self._check_content(change.content)), ""
        old = page.find_entry(change.old_text)
        text = old.text
        if change.action == "replace":
            return page.replace(old, self._check_content(change.content)), text
        page.remove(old)
        return Slot(text, get_fact(old)), text

    def _check_content(self, content: str) -> str:
        text = entries.clean_entry(content)
        if not text:
            raise MemoryRefused("content is empty: say what to remember.")
        if len(text) > entries.MAX_ENTRY_CHARS:
            raise MemoryRefused(
                f"An entry has at most {entries.MAX_ENTRY_CHARS} characters; this one has "
                f"{len(text)}. Shorten or split it."
            )
        if self._redact(text) != text:
            raise MemoryRefused(_SECRET)
        return text

    def _find_old(self, page: MemoryPage, change: Change) -> Fact | None:
        if change.action == "add":
            return None
        return get_fact(page.find_entry(change.old_text))

    def _describe(
        self, page: MemoryPage, change: Change, slot: Slot, replaced: str, *, compare: bool = True
    ) -> Outcome:
        status = "known" if slot.is_known else "removed"
        similar: tuple[str, ...] = ()
        # Without a fact a later change of the same call has taken it back.
        if change.action != "remove" and not slot.is_known and slot.fact is not None:
            status = slot.fact.state
            similar = tuple(self._find_similar(page, slot)) if compare else ()
        return Outcome(change, status, slot.text, slot.fact, page.usage, similar, replaced)

    def _find_similar(self, page: MemoryPage, slot: Slot) -> list[str]:
        texts = [other.text for other in page.slots if other is not slot]
        texts += [fact.text for fact in page.stored[-_CANDIDATES:] if fact is not slot.fact]
        return entries.find_similar(slot.text, texts)[:_MAX_SIMILAR]

    def _require_fact(self, table: FactTable, number: int, *states: FactState) -> Fact:
        fact = table.find_fact(number)
        if (
            fact is None
            or fact.state not in states
            or (fact.scope, fact.target) not in (self.scope.pairs)
        ):
            state = f"{states[0]} " if len(states) == 1 else ""
            raise MemoryRefused(f"There is no {state}fact f{number} here.")
        return fact


def _are_synced(pages: Mapping[FactTarget, MemoryPage]) -> bool:
    """Whether the table knows exactly what is in the files."""
    return all(page.is_synced for page in pages.values())
