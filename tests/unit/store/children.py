"""Programs that use a store in a process of their own, and what they are expected to say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hermes.core.errors import StoreError
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore

STRACE = shutil.which("strace")
ROOT = os.geteuid() == 0

PRELUDE = """
import asyncio, json, os, pathlib, resource, sys
from hermes.core.errors import StoreError
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
path = pathlib.Path(sys.argv[1])
store = SqliteStore(path)
acked, refused = [], []
async def put(text):
    try:
        await store.sessions.append("s", [user_message(text)])
        acked.append(text)
    except StoreError as error:
        refused.append([text, error.code, str(error)])
def report():
    print(json.dumps({"acked": acked, "refused": refused}))
"""


def run_child(code: str, path: Path, *args: object, prefix: tuple[str, ...] = ()) -> dict[str, Any]:
    done = subprocess.run(
        [*prefix, sys.executable, "-c", PRELUDE + code, str(path), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


async def read_texts(path: Path) -> list[str]:
    store = SqliteStore(path)
    try:
        return [m.text for m in await store.sessions.load_messages("s")]
    finally:
        await store.close()


async def fill(path: Path, count: int = 5, size: int = 10) -> None:
    store = SqliteStore(path)
    messages = [user_message(f"{n} " + "x" * size) for n in range(count)]
    await store.sessions.append("s", messages, create=SessionMeta("s"))
    await store.search.find_messages("nothing")
    await store.close()


def check_sentence(error: StoreError, code: str) -> None:
    """What a person is told: what failed, what was lost, what to do; short."""
    text = str(error)
    assert error.code == code, text
    assert len(text) <= 300 and "\n" not in text
    assert any(word in text for word in ("lost", "saved", "safe", "left as it is")), text
