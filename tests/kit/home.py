"""A temporary HERMES_HOME, and the program run in it as its own process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tests.kit.server import Provider

RECORDING = "HERMES_TEST_REPLAY" in os.environ
"""Whether the sessions of tests/flow are recorded, and played again when their test has ended."""
KEY = "sk-kit-9f8e7d6c5b4a39281706f5e4d3c2b1a0"
SPARE_KEY = "sk-spare-1122334455667788990011223344"
MODEL = "kit-model"
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
LIMITS = {
    "ttfb_timeout_seconds": 150,
    "stale_timeout_seconds": 150,
    "request_timeout_seconds": 300,
}


class Home:
    """A private home with a config.yaml that points at a scripted provider, a working folder
    beside it, and the whole environment a process of it gets."""

    defaults: ClassVar[dict[str, Any]] = {}
    """What every home of a test is configured with."""

    def __init__(self, root: Path, **config: Any) -> None:
        self.path = root / "home"
        self.work = root / "work"
        self.path.mkdir(mode=0o700, exist_ok=True)
        self.work.mkdir(exist_ok=True)
        self.env: dict[str, str] = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(root),
            "HERMES_HOME": str(self.path),
            "LANG": "C.UTF-8",
            "KIT_KEY": KEY,
            "SPARE_KEY": SPARE_KEY,
        }
        self.config: dict[str, Any] = dict(self.defaults)
        self.configure(**config)

    @classmethod
    def of(cls, root: Path, provider: Provider, **config: Any) -> Home:
        """Configured for this provider; `config` is laid over it."""
        home = cls(root)
        home.configure(
            model={
                "default": MODEL,
                "provider": "custom",
                "base_url": provider.base_url,
                "api_mode": provider.wire,
                "api_key_env": "KIT_KEY",
            },
            providers={"custom": dict(LIMITS)},
            memory={"review": False},  # a call that no script expects
        )
        home.configure(**config)
        return home

    def configure(self, **sections: Any) -> None:
        """Merge into config.yaml, section by section."""
        self.config = _merged(self.config, sections)
        text = yaml.dump(self.config, Dumper=_DUMPER)
        (self.path / "config.yaml").write_text(text, encoding="utf-8")

    def fall_back(
        self, provider: Provider, name: str = "spare", model: str = "spare-model"
    ) -> None:
        """Add another provider to the end of the fallback list."""
        row = {
            "base_url": provider.base_url,
            "api_mode": provider.wire,
            "api_key_env": "SPARE_KEY",
            **LIMITS,
        }
        chain = [*self.config.get("fallback_providers", []), f"{name}:{model}"]
        self.configure(providers={name: row}, fallback_providers=chain)

    def file(self, name: str, content: str | bytes) -> Path:
        """A file in the working folder."""
        path = self.work / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def leaks(self) -> list[Path]:
        """Files of the home that hold one of the kit's keys; databases are left to SQLite."""
        found = []
        for path in self.path.rglob("*"):
            if path.is_file() and ".db" not in path.name and path.name != ".env":
                data = path.read_bytes()
                if KEY.encode() in data or SPARE_KEY.encode() in data:
                    found.append(path)
        return found


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, Mapping):
        return {**old, **{k: _merged(old.get(k), v) for k, v in new.items()}}
    return new


def program() -> list[str]:
    """The installed command, or the same entry point through the interpreter."""
    script = Path(sys.executable).parent / "hermes"
    return [str(script)] if script.exists() else [sys.executable, "-m", "hermes"]


@dataclass(frozen=True)
class Ran:
    """A finished process."""

    rc: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def json(self) -> Any:
        """The one object of `--output json`."""
        return json.loads(self.stdout)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of `--output stream-json`."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def result(self) -> dict[str, Any]:
        return self.events[-1]


async def start_hermes(
    args: Sequence[str],
    home: Home,
    *,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    cwd: Path | None = None,
    command: Sequence[str] = (),
) -> asyncio.subprocess.Process:
    """The program, running, for tests that talk to it or kill it. Its own session, so that a
    signal to the test runner does not reach it. `command`: what runs it instead."""
    return await asyncio.create_subprocess_exec(
        *(command or program()),
        *args,
        cwd=cwd or home.work,
        env={**home.env, **(env or {})},
        stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=64 * 1024 * 1024,
    )


async def run_hermes(
    args: Sequence[str],
    home: Home,
    *,
    stdin: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 90,
    cwd: Path | None = None,
) -> Ran:
    """Run the program to its end."""
    begin = time.monotonic()
    pipe = None if stdin is None else asyncio.subprocess.PIPE
    process = await start_hermes(args, home, env=env, stdin=pipe, cwd=cwd)
    data = stdin.encode() if isinstance(stdin, str) else stdin
    return await finish(process, data, begin=begin, timeout=timeout)


async def finish(
    process: asyncio.subprocess.Process,
    stdin: bytes | None = None,
    *,
    begin: float | None = None,
    timeout: float = 90,
) -> Ran:
    """Wait for a started process."""
    start = time.monotonic() if begin is None else begin
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate(stdin)
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(f"hermes did not end in {timeout} s\n{out!r}\n{err!r}") from None
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode(), time.monotonic() - start)
