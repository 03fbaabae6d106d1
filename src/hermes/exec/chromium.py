"""Starts an installed Chromium under a supervisor and connects to it over two private pipes."""

import asyncio
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.text import WordLists
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.process.supervisor_client import CommandResult
from hermes.exec.sandbox import SandboxPolicy
from hermes.exec.sandbox_probe import probe_tier

INSTALL_HINT = (
    "No Chromium was found. Install one (for example `apt install chromium`, or "
    "`playwright install chromium`), or set browser.executable to its path."
)
_PREFIX = "hermes-browser-"
_LOCK_GRACE_SECONDS = 60.0
"""Seconds in which whoever created a folder may not have locked it yet."""
_MAX_ROOT_PATH = 36
_START_SECONDS = 30.0
_LAST_OUTPUT_SECONDS = 1.0
_UNLIMITED_SECONDS = 7 * 24 * 3600.0
_MAX_MESSAGE = 256 * 1024 * 1024
_MAX_OUTPUT = 2000
_LISTS = WordLists(Path(__file__).with_suffix(".txt"))
_DEAD_PROXY = "http://nowhere.invalid:1"
"""For requests the browser makes by itself: updates, suggestions, statistics."""
_RESOLVER_RULES = "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
"""The browser resolves no names; the proxy does."""


class BrowserPipe(Struct, frozen=True):
    """The connection to a running browser; messages end in NUL."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ended: asyncio.Task[CommandResult]


def find_browser(configured: str, env: Mapping[str, str]) -> str:
    """The program to start: the configured one, one on PATH, or one installed by Playwright."""
    path = env.get("PATH", os.defpath)
    if configured:
        found = shutil.which(str(Path(configured).expanduser()), path=path)
        if found is None:
            raise ToolError(f"browser.executable is {configured}, which is not a program.")
        return found
    for name in _LISTS.get_lines("programs"):
        if found := shutil.which(name, path=path):
            return found
    folders = (Path(env.get("HOME", "/")).glob(g) for g in _LISTS.get_lines("playwright's"))
    bundled = sorted(str(path) for folder in folders for path in folder)
    for path in (*_LISTS.get_lines("programs of macOS"), *reversed(bundled)):
        if os.access(path, os.X_OK):
            return path
    raise ToolError(INSTALL_HINT)


@contextmanager
def temporary_profile() -> Iterator[Path]:
    """A private temporary folder; those left behind by killed agents are removed as well."""
    _remove_orphans()
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_profile_root()))
    handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield made
    finally:
        os.close(handle)
        shutil.rmtree(made, ignore_errors=True)


def _profile_root() -> Path:
    """The browser creates a socket below it, whose path must fit into 107 bytes."""
    usual = tempfile.gettempdir()
    return Path(usual if len(os.fsencode(usual)) <= _MAX_ROOT_PATH else "/tmp")


def _remove_orphans() -> None:
    for left in _profile_root().glob(_PREFIX + "*"):
        with suppress(OSError):
            found = left.lstat()
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if not ours or time.time() - found.st_ctime < _LOCK_GRACE_SECONDS:
                continue
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(handle)


@asynccontextmanager
async def run_browser(
    executable: str, home: Path, *, env: Mapping[str, str], policy: SandboxPolicy | None
) -> AsyncIterator[BrowserPipe]:
    """Run a browser with its profile in `home` until the block ends. The policy confines it where
    it cannot confine itself, as when it runs as root."""
    printed = _LastOutput(home)
    inside = {name: env[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in env}
    inside |= {"HOME": str(home), "TMPDIR": str(home)}
    text = _build_command(executable, home, bare=os.geteuid() == 0)
    tier = await probe_tier() if policy else None
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_MAX_MESSAGE)
    theirs, ours = os.pipe()
    with ExitStack() as lent:
        lent.callback(os.close, theirs)
        transport, flow = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(), os.fdopen(ours, "wb", 0)
        )
        command = CommandSpec(text, home, inside, _UNLIMITED_SECONDS, policy, tier, stdin=theirs)
        task = asyncio.ensure_future(run_command(command, _Messages(home, reader), printed))
        task.add_done_callback(lambda _: reader.feed_eof())
        pipe = BrowserPipe(reader, asyncio.StreamWriter(transport, flow, None, loop), task)
        try:
            await _await_greeting(pipe, printed)
            lent.close()
            yield pipe
        finally:
            if not transport.is_closing():  # it is when the browser ended by itself
                transport.abort()
            task.cancel()
            await asyncio.wait([task])


def _build_command(executable: str, home: Path, *, bare: bool) -> str:
    flags = [
        *sorted(_LISTS.get_words("flags")),
        f"--user-data-dir={home / 'profile'}",
        f"--disable-features={','.join(sorted(_LISTS.get_words('disabled features')))}",
        f"--host-resolver-rules={_RESOLVER_RULES}",
        f"--proxy-server={_DEAD_PROXY}",
        "--proxy-bypass-list=<-loopback>",
    ]
    if bare:
        flags.append("--no-sandbox")
    words = " ".join(map(quote, (executable, *flags)))
    return f"exec {words} 3<&0 4>&1 </dev/null >&2"


async def _await_greeting(pipe: BrowserPipe, printed: "_LastOutput") -> None:
    """Wait until it answers; if it does not, raise ToolError with what it printed."""
    pipe.writer.write(b'{"id":1,"method":"Browser.getVersion"}\0')
    answer = asyncio.ensure_future(pipe.reader.readuntil(b"\0"))
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    watched: list[asyncio.Future[Any]] = [answer, pipe.ended]
    try:
        await asyncio.wait(watched, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if answer.done() and answer.exception() is None:
            return
    finally:
        answer.cancel()
    await asyncio.wait([pipe.ended], timeout=_LAST_OUTPUT_SECONDS)
    if pipe.ended.done() and (error := pipe.ended.exception()) is not None:
        raise ToolError(f"The browser did not start: {error}")
    raise ToolError(f"The browser did not start. {printed.text().strip()[-500:]}".strip())


class _Messages(OutputCapture):
    """Passes on what the browser sends."""

    def __init__(self, home: Path, reader: asyncio.StreamReader) -> None:
        super().__init__(0, home)
        self._reader = reader

    def feed(self, data: bytes) -> None:
        self._reader.feed_data(data)


class _LastOutput(OutputCapture):
    """Keeps only the end of what the browser printed."""

    def __init__(self, home: Path) -> None:
        super().__init__(_MAX_OUTPUT, home)
        self._last = b""

    def feed(self, data: bytes) -> None:
        self._last = (self._last + data)[-_MAX_OUTPUT:]

    def text(self) -> str:
        return self._last.decode("utf-8", "replace")
