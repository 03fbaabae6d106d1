"""One memory file with its facts, and the changes that are made to both at once."""

import time
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.store import Fact, FactAction, FactState, FactTable, FactTarget
from hermes.memory import entries
from hermes.memory.scope import find_file


class MemoryRefused(ToolError):
    """A change that cannot be made. `entries` are those it could mean; `number` is its place among
    several changes."""

    def __init__(self, sentence: str, entries: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.entries = entries
        self.number = 1


class Author(Struct, frozen=True):
    """Who writes."""

    origin: str = "person"
    session: str = ""
    user: str = ""


class Slot(Struct, eq=False):
    """One entry: with its fact, or new. `pending` is the fact that becomes this entry."""

    text: str
    fact: Fact | None = None
    is_new: bool = False
    pending: Fact | None = None
    is_known: bool = False
    """Whether an equal one was there already."""


class JournalEntry(Struct, frozen=True):
    """A change of one entry, in the order in which changes were made."""

    action: FactAction
    entry: Slot | Fact
    replaced: Slot | Fact | None = None


class MemoryPage:
    """Reading changes nothing. `save` replaces the file first and the rows second, so that whatever
    interrupts it, the next one completes the same change from the file."""

    def __init__(
        self,
        table: FactTable,
        home: Path,
        scope: str,
        target: FactTarget,
        *,
        limit: int,
        journal: list[JournalEntry],
    ) -> None:
        self.scope = scope
        self.target: FactTarget = target
        self.limit = limit
        self.file = find_file(home, scope, target)
        self._table = table
        try:
            self._texts = entries.read_entries(self.file)
        except OSError as error:
            text = f"{self.file.name} could not be read ({error.strerror})."
            raise MemoryRefused(f"{text} Nothing was changed.") from None
        pinned = {f.text: f for f in table.list_facts(scope, target, states=("pinned",))}
        self.slots = [Slot(text, pinned.pop(text, None)) for text in self._texts]
        self._removed = list(pinned.values())
        """Facts to archive: at first those whose entry somebody deleted from the file."""
        self.journal = journal
        journal += [JournalEntry("remove", fact) for fact in self._removed]
        journal += [JournalEntry("add", slot) for slot in self.slots if slot.fact is None]

    @cached_property
    def stored(self) -> list[Fact]:
        """The facts that are not in the file. There may be thousands: they are read for changes,
        not for a look at the file."""
        return self._table.list_facts(self.scope, self.target, states=("stored",))

    @cached_property
    def _keys(self) -> dict[str, Slot | Fact]:
        return {entries.normalize_entry(old.text): old for old in self._list_entries()}

    @property
    def is_synced(self) -> bool:
        """Whether the table knows exactly what is in the file."""
        return not self._removed and all(slot.fact for slot in self.slots)

    @property
    def usage(self) -> str:
        return f"{entries.count_chars([slot.text for slot in self.slots])}/{self.limit}"

    def list_facts(self) -> list[tuple[Fact, bool]]:
        """Each fact, and whether prompts show it."""
        shown = set(entries.take_shown([slot.text for slot in self.slots], self.limit))
        pinned = [(slot.fact, slot.text in shown) for slot in self.slots if slot.fact]
        return [*pinned, *((fact, False) for fact in self.stored)]

    def add(self, text: str, pending: Fact | None = None) -> Slot:
        key = entries.normalize_entry(text)
        known = self._keys.get(key)
        if known is not None:
            return Slot(known.text, get_fact(known), is_known=True)
        slot = self._keys[key] = Slot(text, is_new=True, pending=pending)
        self.slots.append(slot)
        self.journal.append(JournalEntry("add", slot))
        return slot

    def _list_entries(self) -> list[Slot | Fact]:
        return [*self.slots, *self.stored]

    def replace(self, old: Slot | Fact, text: str, pending: Fact | None = None) -> Slot:
        """The new entry, in the place of the old one."""
        at = len(self.slots) if isinstance(old, Fact) else self.slots.index(old)
        self.remove(old)
        new = self.add(text, pending)
        if not new.is_known:
            self.slots.insert(at, self.slots.pop())
            self.journal[-2:] = [JournalEntry("replace", new, old)]
        return new

    def remove(self, old: Slot | Fact) -> None:
        self._keys.pop(entries.normalize_entry(old.text), None)
        self.journal.append(JournalEntry("remove", old))
        if isinstance(old, Fact):
            self.stored.remove(old)
            self._removed.append(old)
            return
        self.slots.remove(old)
        if old.fact is not None:
            self._removed.append(old.fact)

    def find_entry(self, part: str) -> Slot | Fact:
        """The only entry that contains this text, or that is this text."""
        if not part.strip():
            raise MemoryRefused("old_text is empty: give a part of the entry.")
        found = [entry for entry in self._list_entries() if part in entry.text]
        if len(found) > 1:
            found = [entry for entry in found if entry.text == part.strip()] or found
        if not found:
            raise MemoryRefused(f'No entry matches "{part}".')
        if len(found) > 1:
            texts = tuple(entry.text for entry in found)
            raise MemoryRefused(f'"{part}" matches {len(found)} entries.', texts)
        return found[0]

    def find_by_id(self, number: int) -> Slot | Fact | None:
        for entry in self._list_entries():
            fact = get_fact(entry)
            if fact is not None and fact.id == number:
                return entry
        return None

    def clear(self) -> int:
        """Remove every entry; how many there were."""
        olds = self._list_entries()
        for old in olds:
            self.remove(old)
        return len(olds)

    def save(self, author: Author) -> None:
        """Write the file, then the rows. New entries that do not fit into the file are stored."""
        kept = self._select_pinned()
        texts = [slot.text for slot in kept]
        if texts != self._texts:
            try:
                entries.write_entries(self.file, texts, self.scope)
            except OSError as error:
                text = f"{self.file.name} could not be written ({error.strerror})."
                raise MemoryRefused(f"{text} Nothing was changed.") from None
            self._texts = texts
        for fact in self._removed:
            self._table.change_state(fact.id, "archived")
        pinned = set(map(id, kept))
        for slot in self.slots:
            if slot.fact is None and id(slot) in pinned:
                slot.fact = self._save_row(slot, author, pinned=True)
            elif slot.fact is None:
                stored = self.stored  # read before the row is there
                slot.fact = self._save_row(slot, author, pinned=False)
                stored.append(slot.fact)
        self._removed, self.slots = [], kept

    def _select_pinned(self) -> list[Slot]:
        """The entries for the file: the old ones, and the new ones for which there is room."""
        old = [slot.text for slot in self.slots if not slot.is_new]
        pinned, used = [], entries.count_chars(old)
        for slot in self.slots:
            if slot.is_new:
                needed = entries.count_chars([slot.text, ""] if used else [slot.text])
                if used + needed > self.limit:
                    continue
                used += needed
            pinned.append(slot)
        return pinned

    def _save_row(self, slot: Slot, author: Author, *, pinned: bool) -> Fact:
        state: FactState = "pinned" if pinned else "stored"
        if slot.pending is not None:
            self._table.change_state(slot.pending.id, state)
            fact = self._table.find_fact(slot.pending.id)
            assert fact is not None
            return fact
        created = time.time()
        if not slot.is_new:
            author, created = Author("file"), self.file.stat().st_mtime
        return self._table.insert_fact(
            make_fact(author, self.scope, self.target, slot.text, state, created)
        )


def get_fact(entry: Slot | Fact) -> Fact | None:
    """None: the entry is new and not saved."""
    return entry if isinstance(entry, Fact) else entry.fact


def make_fact(
    author: Author, scope: str, target: FactTarget, text: str, state: FactState, created: float
) -> Fact:
    """A fact that has no id yet."""
    return Fact(0, scope, target, text, state, created, author.session, author.user, author.origin)
