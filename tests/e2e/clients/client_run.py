"""Installs the clients of others, pinned, and runs them against a server under test."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients.scripted_model import answer_request
from tests.kit.api import Api, api
from tests.kit.server import Provider

CACHE = Path(__file__).parents[3] / ".cache" / "clients"
SCRIPTS = Path(__file__).parent / "scripts"
_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


@dataclass
class Ran:
    status: int
    out: str
    error: str

    @property
    def told(self) -> str:
        """Everything that the person sees."""
        return self.out + self.error

    def read_cases(self) -> dict[str, str]:
        """What the client says about each case: ok or failed, then the text."""
        return read_cases(self.out)


def read_cases(out: str) -> dict[str, str]:
    return dict(part.partition(" ")[::2] for part in out.split("\n== ")[1:])


def install_python(packages: Sequence[str]) -> Path:
    """The interpreter of an environment with these packages."""
    folder = _locate("python", packages)
    python = folder / "bin" / "python"
    with _lock_folder(folder) as is_complete:
        if not is_complete:
            uv = Path(sys.executable).parent / "uv"
            _install([str(uv), "venv", "-q", "--python", sys.executable, str(folder)])
            _install([str(uv), "pip", "install", "-q", "--python", str(python), *packages], folder)
    return python


def install_node(packages: Sequence[str]) -> Path:
    """A folder with these packages in node_modules."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = _locate("node", packages)
    with _lock_folder(folder) as is_complete:
        if not is_complete:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text("{}")
            options = ["--no-audit", "--no-fund", "--loglevel=error"]
            _install(["npm", "install", *options, *packages], folder)
    return folder


def locate_script(work: Path, folder: Path, name: str) -> Path:
    """A script beside the packages of `folder`: Node looks for them where the script is."""
    script = work / name
    if not script.exists():
        shutil.copy(SCRIPTS / name, script)
        (work / "node_modules").symlink_to(folder / "node_modules")
    return script


def _locate(kind: str, packages: Sequence[str]) -> Path:
    digest = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    return CACHE / f"{kind}-{digest}"


@contextmanager
def _lock_folder(folder: Path) -> Iterator[bool]:
    """Whether the folder is complete; while it is not, other processes wait here. What an installer
    left half done is removed first."""
    CACHE.mkdir(parents=True, exist_ok=True)
    mark = folder / ".complete"
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_complete = mark.exists()
        if not is_complete:
            shutil.rmtree(folder, ignore_errors=True)
        yield is_complete
        mark.touch()


def _install(command: list[str], folder: Path | None = None) -> None:
    """Run an installer; a folder that it could not complete is removed."""
    ran = subprocess.run(
        command, cwd=folder or CACHE, capture_output=True, text=True, timeout=600, check=False
    )
    if ran.returncode:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"a client cannot be installed here: {ran.stderr[-300:]}")


async def start_client(
    command: Sequence[str | Path], folder: Path, url: str, key: str, **env: str
) -> asyncio.subprocess.Process:
    """Start a client in a folder of its own, with the usual variables of both protocols."""
    image = folder / "image.png"
    image.write_bytes(_PIXEL)
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "CLIENT_IMAGE": str(image),
        "NO_COLOR": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        **env,
    }
    return await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=folder,
        env=variables,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


class ClientRig:
    """A server with the scripted model behind it, and a folder for what a client stores."""

    def __init__(self, a: Api, folder: Path) -> None:
        self.api = a
        self.folder = folder

    @property
    def effects(self) -> int:
        made = self.api.home.work / "effects.log"
        return len(made.read_text().split()) if made.exists() else 0

    async def run(self, command: Sequence[str | Path], *, seconds: float = 200, **env: str) -> Ran:
        process = await start_client(command, self.folder, self.api.url, self.api.key, **env)
        try:
            async with asyncio.timeout(seconds):
                out, error = await process.communicate(b"")
        except TimeoutError:
            process.kill()
            raise
        return Ran(process.returncode or 0, out.decode(), error.decode())


@asynccontextmanager
async def client_rig(tmp_path: Path, *, enforcing: bool = False) -> AsyncIterator[ClientRig]:
    """`enforcing`: the endpoint of the model enforces schemas."""
    (tmp_path / "client").mkdir()
    config: dict[str, Any] = {"compression": {"enabled": False}, "agent": {"api_max_retries": 1}}
    env: dict[str, str] = {}
    wire = "responses" if enforcing else "chat"
    async with Provider(wire=wire, then=answer_request) as provider:
        if enforcing:
            config["model"] = {"provider": "openai", "default": "gpt-4.1"}
            env = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": provider.base_url}
        async with api(tmp_path, provider, config=config, env=env) as a:
            yield ClientRig(a, tmp_path / "client")
