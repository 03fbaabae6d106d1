"""Installs the clients of others, pinned, and runs them against a server under test."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients.scripted_model import answer_request
from tests.kit.api import Api, api

CACHE = Path(__file__).parents[3] / ".cache" / "clients"
SCRIPTS = Path(__file__).parent / "scripts"


@dataclass
class Ran:
    status: int
    out: str
    error: str

    @property
    def told(self) -> str:
        """Everything that the person sees."""
        return self.out + self.error


def install_python(packages: Sequence[str]) -> Path:
    """The interpreter of an environment with these packages."""
    folder = _locate("python", packages)
    python = folder / "bin" / "python"
    if not python.exists():
        uv = Path(sys.executable).parent / "uv"
        _install([str(uv), "venv", "-q", "--python", sys.executable, str(folder)])
        _install([str(uv), "pip", "install", "-q", "--python", str(python), *packages], folder)
    return python


def install_node(packages: Sequence[str]) -> Path:
    """A folder with these packages in node_modules."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = _locate("node", packages)
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        options = ["--no-audit", "--no-fund", "--loglevel=error"]
        _install(["npm", "install", *options, *packages], folder)
    return folder


def _locate(kind: str, packages: Sequence[str]) -> Path:
    digest = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    return CACHE / f"{kind}-{digest}"


def _install(command: list[str], folder: Path | None = None) -> None:
    """Run an installer; a folder that it could not complete is removed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    ran = subprocess.run(
        command, cwd=folder or CACHE, capture_output=True, text=True, timeout=600, check=False
    )
    if ran.returncode:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"a client cannot be installed here: {ran.stderr[-300:]}")


class ClientRig:
    """A server with the scripted model behind it, and a folder for what a client stores."""

    def __init__(self, a: Api, folder: Path) -> None:
        self.api = a
        self.folder = folder

    @property
    def effects(self) -> int:
        made = self.api.home.work / "effects.log"
        return len(made.read_text().split()) if made.exists() else 0

    async def run(
        self, command: Sequence[str | Path], *, cwd: Path | None = None, **env: str
    ) -> Ran:
        """Run a client with the usual variables of both protocols."""
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "OPENAI_BASE_URL": f"{self.api.url}/v1",
            "OPENAI_API_BASE": f"{self.api.url}/v1",
            "OPENAI_API_KEY": self.api.key,
            "ANTHROPIC_BASE_URL": self.api.url,
            "ANTHROPIC_API_KEY": self.api.key,
            "NO_COLOR": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            **env,
        }
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            cwd=cwd or self.folder,
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(200):
                out, error = await process.communicate()
        except TimeoutError:
            process.kill()
            raise
        return Ran(process.returncode or 0, out.decode(), error.decode())


@asynccontextmanager
async def client_rig(tmp_path: Path, **settings: Any) -> Any:
    (tmp_path / "client").mkdir()
    config = {"compression": {"enabled": False}, "agent": {"api_max_retries": 1}}
    async with api(tmp_path, then=answer_request, settings=settings, config=config) as a:
        yield ClientRig(a, tmp_path / "client")
