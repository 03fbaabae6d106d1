"""A real Matrix homeserver: Synapse, installed once into a folder of its own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

SHARED_SECRET = "kit-registration-secret"
_INSTALLATION = Path(__file__).parents[2] / ".cache" / "synapse"
_FAST = "{per_second: 1000, burst_count: 1000}"
_CONFIG = """
server_name: localhost
pid_file: {folder}/pid
signing_key_path: {folder}/signing.key
media_store_path: {folder}/media
database: {{name: sqlite3, args: {{database: '{folder}/homeserver.sqlite'}}}}
listeners:
  - port: {port}
    type: http
    bind_addresses: [127.0.0.1]
    resources: [{{names: [client], compress: false}}]
registration_shared_secret: {secret}
macaroon_secret_key: kit-macaroons
form_secret: kit-forms
trusted_key_servers: []
report_stats: false
rc_message: {fast}
rc_registration: {fast}
rc_login: {{address: {fast}, account: {fast}, failed_attempts: {fast}}}
rc_joins: {{local: {fast}}}
rc_invites: {{per_room: {fast}, per_user: {fast}, per_issuer: {fast}}}
"""


async def _run(*command: str | Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()[-2000:]


async def _install() -> Path:
    """The interpreter that has Synapse."""
    python = _INSTALLATION / "bin" / "python"
    if not (_INSTALLATION / "installed").exists():
        await _run(sys.executable, "-m", "venv", _INSTALLATION)
        await _run(python, "-m", "pip", "install", "--quiet", "matrix-synapse")
        (_INSTALLATION / "installed").touch()
    return python


@dataclass
class Synapse:
    url: str

    async def register(self, name: str, password: str) -> str:
        """A new account; its id."""
        address = f"{self.url}/_synapse/admin/v1/register"
        async with aiohttp.ClientSession() as session:
            async with session.get(address) as response:
                nonce = (await response.json())["nonce"]
            signed = "\0".join((nonce, name, password, "notadmin")).encode()
            mac = hmac.new(SHARED_SECRET.encode(), signed, hashlib.sha1).hexdigest()
            body = {"nonce": nonce, "username": name, "password": password, "mac": mac}
            async with session.post(address, json={**body, "admin": False}) as response:
                assert response.status == 200, await response.text()
        return f"@{name}:localhost"


def _find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def synapse(folder: Path) -> AsyncIterator[Synapse]:
    python = await _install()
    folder.mkdir()
    port = _find_port()
    config = folder / "homeserver.yaml"
    config.write_text(
        _CONFIG.format(folder=folder, port=port, secret=SHARED_SECRET, fast=_FAST), "utf-8"
    )
    await _run(python, "-m", "synapse._scripts.generate_signing_key", "-o", folder / "signing.key")
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            python,
            "-m",
            "synapse.app.homeserver",
            "-c",
            config,
            cwd=folder,
            stdout=log,
            stderr=log,
            env={"PATH": os.defpath},
        )
    server = Synapse(f"http://127.0.0.1:{port}")
    try:
        await _until_up(server.url, process, folder / "log")
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _until_up(url: str, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(180), aiohttp.ClientSession() as session:
        while True:
            assert process.returncode is None, log.read_text("utf-8")[-3000:]
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{url}/_matrix/client/versions") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.2)
