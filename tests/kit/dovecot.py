"""A real IMAP server: dovecot with a mailbox of its own, which mail is put into as a file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_CONFIG = """
protocols = imap
listen = 127.0.0.1
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
ssl = no
disable_plaintext_auth = no
default_login_user = {user}
default_internal_user = {user}
default_internal_group = {group}
first_valid_uid = 0
mail_location = maildir:{folder}/mail
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/mail allow_all_users=yes
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
"""


@dataclass
class Dovecot:
    folder: Path
    port: int
    delivered: int = 0

    def deliver(self, data: bytes) -> None:
        """As a mail server does: a finished file, moved into the mailbox."""
        self.delivered += 1
        name = f"{self.delivered}.kit"
        draft = self.folder / "mail" / "tmp" / name
        draft.write_bytes(data)
        os.chown(draft, *self.owner)
        draft.rename(self.folder / "mail" / "new" / name)

    @property
    def owner(self) -> tuple[int, int]:
        found = (self.folder / "mail").stat()
        return found.st_uid, found.st_gid

    def list_flags(self) -> dict[str, str]:
        """The flags of each mail, by its name; `S` is seen."""
        files = (self.folder / "mail" / "cur").iterdir()
        return {file.name.partition(":")[0]: file.name.partition(",")[2] for file in files}


def _find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def dovecot(password: str) -> AsyncIterator[Dovecot]:
    program = shutil.which("dovecot") or "/usr/sbin/dovecot"
    if not Path(program).exists() or not Path("/usr/lib/dovecot/imap").exists():
        pytest.skip("dovecot is not installed")
    # Not among pytest's folders: nobody else may enter those.
    with tempfile.TemporaryDirectory(prefix="kit-dovecot-") as name:
        Path(name).chmod(0o755)
        async with _serve(program, Path(name), password) as box:
            yield box


@asynccontextmanager
async def _serve(program: str, folder: Path, password: str) -> AsyncIterator[Dovecot]:
    # Its processes refuse to read mail as root.
    person = pwd.getpwnam("nobody") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
    group = "nogroup" if os.getuid() == 0 else str(os.getgid())
    for name in ("run", "state", "mail", "mail/cur", "mail/new", "mail/tmp"):
        (folder / name).mkdir(parents=True)
        if os.getuid() == 0:
            os.chown(folder / name, person.pw_uid, person.pw_gid)
    port = _find_port()
    config = folder / "dovecot.conf"
    config.write_text(
        _CONFIG.format(
            folder=folder,
            port=port,
            password=password,
            user=person.pw_name,
            group=group,
            uid=person.pw_uid,
            gid=person.pw_gid,
        ),
        "utf-8",
    )
    process = await asyncio.create_subprocess_exec(program, "-F", "-c", config)
    try:
        await _until_up(port, process, folder / "log")
        yield Dovecot(folder, port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _until_up(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(90):
        while True:
            assert process.returncode is None, log.read_text("utf-8") if log.exists() else "no log"
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                await writer.wait_closed()
                return
            await asyncio.sleep(0.1)
