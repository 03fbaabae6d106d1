"""Files and facts together: several processes at once, kills at any point, many facts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.config.schema import MemorySection
from hermes.memory.entries import read_entries
from hermes.memory.notebook import Change, Notebook
from hermes.memory.page import Author
from hermes.memory.scope import PROFILE_SCOPE, MemoryScope
from hermes.store.sqlite import SqliteStore

WRITER = """
import asyncio, sys
from pathlib import Path
from tests.unit.memory.test_notebook import open_book
from hermes.memory.notebook import Change
from hermes.memory.page import Author

async def main(home, name, count):
    store, book = open_book(Path(home))
    for n in range(count):
        change = Change("add", "memory", f"{name} fact {n}")
        if n % 5 == 4:
            change = Change("replace", "memory", f"{name} fact {n}", f"{name} fact {n - 1}")
        await book.apply_changes((change,), Author())
        print(n, flush=True)
    await store.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def open_book(
    home: Path, scope: MemoryScope = PROFILE_SCOPE, **settings: int
) -> tuple[SqliteStore, Notebook]:
    store = SqliteStore(home / "hermes.db")
    section = MemorySection(**{"memory_char_limit": 10**6, **settings})  # type: ignore[arg-type]
    return store, Notebook(store.facts, home, section, scope, str)


def start_writer(home: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(home), name, str(count)],
        env={"PATH": os.defpath, "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )


def expected_texts(name: str, count: int) -> set[str]:
    replaced = {n - 1 for n in range(count) if n % 5 == 4}
    return {f"{name} fact {n}" for n in range(count) if n not in replaced}


async def check_agreement(home: Path) -> set[str]:
    """File and table say the same, and the file has no half entry."""
    store, book = open_book(home)
    facts = await book.list_facts()
    await store.close()
    texts = read_entries(home / "memories" / "MEMORY.md")
    assert [fact.text for fact in facts] == texts
    assert all(text.split()[1] == "fact" and text.split()[2].isdigit() for text in texts)
    return set(texts)


async def write_together(home: Path, processes: int, count: int) -> None:
    writers = [start_writer(home, f"p{n}", count) for n in range(processes)]
    for writer in writers:
        await asyncio.to_thread(writer.communicate)
        assert writer.returncode == 0
    wanted = set().union(*(expected_texts(f"p{n}", count) for n in range(processes)))
    assert await check_agreement(home) == wanted


async def test_processes_that_write_at_once_keep_everything(tmp_path: Path) -> None:
    await write_together(tmp_path, 3, 20)


async def kill_writers(home: Path, writes: int, seed: int) -> None:
    rnd = random.Random(seed)
    done = life = 0
    while done < writes:
        life += 1
        writer = start_writer(home, f"life{life}", writes)
        assert writer.stdout is not None
        stop = rnd.randint(1, 25)
        seen = -1
        for line in writer.stdout:
            seen = int(line)
            if seen >= stop:
                await asyncio.sleep(rnd.random() / 100)
                break
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()
        writer.stdout.close()
        writer.wait()
        seen = max([seen, *(int(line) for line in rest.split("\n")[:-1])])
        done += seen + 1
        left = {text for text in await check_agreement(home) if text.startswith(f"life{life} ")}
        first, second = (expected_texts(f"life{life}", seen + n) for n in (1, 2))
        assert left in (first, second), "an acknowledged change is missing"


async def test_a_kill_leaves_file_and_table_in_agreement(tmp_path: Path) -> None:
    await kill_writers(tmp_path, 30, 1)


async def test_the_stored_fact_that_was_unused_longest_goes(tmp_path: Path) -> None:
    store, book = open_book(tmp_path, memory_char_limit=20, max_facts=2000)
    changes = [Change("add", "memory", f"fact {n} about {n % 97} things") for n in range(2000)]
    await book.apply_changes(changes, Author())
    found = await book.search_facts("fact 1234", 5)
    assert found[0].text == "fact 1234 about 70 things"
    await book.apply_changes([Change("add", "memory", "one more of them")], Author())
    facts = await book.list_facts()
    assert len(facts) == 2000
    texts = {fact.text for fact in facts}
    assert "one more of them" in texts and "fact 1234 about 70 things" in texts
    assert "fact 0 about 0 things" not in texts, "unused longest"
    assert not await book.search_facts("zeppelin", 5)
    await store.close()


@pytest.mark.parametrize("text", ["日本語のメモです", "naïve café", 'say "x" OR NOT (y)', "***"])
async def test_any_text_is_kept_and_found(tmp_path: Path, text: str) -> None:
    store, book = open_book(tmp_path)
    await book.apply_changes([Change("add", "user", text)], Author())
    assert [fact.text for fact in await book.list_facts()] == [text]
    words = {"日本語のメモです": "メモ", "naïve café": "cafe"}.get(text, text)
    found = await book.search_facts(words, 5)
    assert [fact.text for fact in found] == ([] if text == "***" else [text])
    await store.close()
