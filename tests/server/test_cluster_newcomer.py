"""What docs/cluster.md tells a newcomer to type, typed: three nodes on one machine."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit import Home, say
from tests.kit.postgres import copy_programs
from tests.kit.server import Provider

pytestmark = pytest.mark.e2e
DOCUMENT = Path(__file__).parents[2] / "docs/cluster.md"
INSTALLS = re.compile(r"^(python3 -m venv|pip install) .*\n", re.M)
FINDS_SERVER = re.compile(r"^PG=\$\(.*?\)\n", re.M | re.S)
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder of a short name: sockets are in it."""
    folder = Path(tempfile.mkdtemp(prefix="hermes-try-"))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
    yield folder
    with suppress(FileNotFoundError, ProcessLookupError):
        pid = int((folder / "pgdata/postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)
    shutil.rmtree(folder, ignore_errors=True)


def are_free(ports: list[int]) -> bool:
    for port in ports:
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def find_ports() -> str:
    """What three free ports begin with that end with 1, 2 and 3: none that the system gives out."""
    prefixes = random.sample(range(1100, 3200), 200)
    return str(next(p for p in prefixes if are_free([10 * p + n for n in (1, 2, 3)])))


def read_script(place: Path) -> str:
    """The commands, but those that install: all of it is there. PostgreSQL refuses root."""
    text = DOCUMENT.read_text()
    _, _, section = text.partition("### To try it on one machine\n")
    blocks = re.findall(r"^```sh\n(.*?)^```", section.partition("\n## ")[0], re.M | re.S)
    script, found = INSTALLS.subn("", "".join(blocks))
    assert found == 2, script
    if os.geteuid() == 0:
        programs = copy_programs(place)
        script, found = FINDS_SERVER.subn(f"PG={programs}\n", script)
        assert found == 1, script
        script = script.replace('"$PG/', f'{NOBODY} "$PG/')
    return re.sub(r"\b865(?=[$0-9])", find_ports(), script)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="needs setpriv")
async def test_the_commands_for_newcomers_lead_to_three_nodes(tmp_path: Path, place: Path) -> None:
    async with Provider(then=lambda request: say("Hello, newcomer.")) as provider:
        home = Home.of(tmp_path, provider)
        for number in (1, 2, 3):
            folder = place / f"node{number}"
            folder.mkdir(mode=0o700)
            shutil.copy(home.path / "config.yaml", folder)
        env = {name: value for name, value in home.env.items() if name != "HERMES_HOME"}
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        process = await asyncio.create_subprocess_exec(
            *("/bin/bash", "-euc", read_script(place)),
            cwd=place,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(200):
                told = (await process.communicate())[0].decode()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    logs = {file.name: file.read_text() for file in place.glob("*.log")}
    assert process.returncode == 0, f"{told}\n{logs}"
    assert len(re.findall(r"^\S+ +alive\b", told, re.M)) == 3, told
    answers = [json.loads(text) for text in re.findall(r'^\{"(?:id|object)".*?\}$', told, re.M)]
    answered, listed = answers
    assert answered["choices"][0]["message"]["content"] == "Hello, newcomer."
    assert len(listed["data"]) == 1
    assert not (place / "pgdata/postmaster.pid").exists()
