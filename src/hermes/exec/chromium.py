"""Starts an installed Chromium under a keeper, driven over two pipes that nobody else can open."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.exec.process.local import Command, Outcome, run
from hermes.exec.process.output_capture import Capture
from hermes.exec.sandbox import Policy
from hermes.exec.sandbox_probe import probe

INSTALL = (
    "No Chromium was found. Install one (for example `apt install chromium`, or "
    "`playwright install chromium`), or set browser.executable to its path."
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_APPS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
_BUNDLED = (
    ".cache/ms-playwright/chromium-*/chrome-linux*/chrome",
    "Library/Caches/ms-playwright/chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
)
_PREFIX = "hermes-browser-"
_NEW = 60.0
"""Seconds in which a folder may not be locked yet by whoever made it."""
_SHORT = 36
_START_SECONDS = 30.0
_LAST_WORDS = 1.0
_FOREVER = 7 * 24 * 3600.0
_LARGEST = 256 * 1024 * 1024
"""Bytes of one message of the protocol."""
_WORDS = 2000
_FLAGS = """
    --headless=new --remote-debugging-pipe --no-startup-window --no-first-run
    --no-default-browser-check
    --disable-background-networking --disable-component-update --disable-default-apps
    --disable-sync --disable-domain-reliability --disable-breakpad --disable-crash-reporter
    --disable-client-side-phishing-detection --metrics-recording-only --no-pings
    --no-service-autorun --disable-search-engine-choice-screen --disable-extensions
    --password-store=basic --use-mock-keychain --disable-dev-shm-usage --mute-audio
    --disable-gpu --hide-scrollbars --disk-cache-size=52428800
    --disable-background-timer-throttling --disable-backgrounding-occluded-windows
    --disable-renderer-backgrounding --disable-popup-blocking --disable-prompt-on-repost
    --disable-back-forward-cache --disable-hang-monitor --disable-ipc-flooding-protection
    --disable-field-trial-config --disable-component-extensions-with-background-pages
    --force-color-profile=srgb --disable-quic --dns-prefetch-disable
    --force-webrtc-ip-handling-policy=disable_non_proxied_udp
    --webrtc-ip-handling-policy=disable_non_proxied_udp
""".split()
_FEATURES = (
    "AsyncDns,DnsOverHttps,NetworkPrediction,Translate,MediaRouter,DialMediaRouteProvider,"
    "OptimizationHints,AutofillServerCommunication,CertificateTransparencyComponentUpdater,"
    "InterestFeedContentSuggestions,GlobalMediaControls,DestroyProfileOnBrowserClose,"
    "PaintHolding,HttpsUpgrades,LensOverlay"
)
_NOWHERE = "http://nowhere.invalid:1"
"""For what it does on its own account: updates, suggestions, statistics."""
_RESOLVER = "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
"""The proxy looks names up; the browser itself must not ask anybody."""


class Pipe(Struct, frozen=True):
    """A running browser: what it says and where it is told, in messages that end in NUL."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ended: asyncio.Task[Outcome]
    """Done when its process has ended."""


def find(configured: str, env: Mapping[str, str]) -> str:
    """The program to start: the configured one, one on the PATH, or the one Playwright brought."""
    path = env.get("PATH", os.defpath)
    if configured:
        found = shutil.which(str(Path(configured).expanduser()), path=path)
        if found is None:
            raise ToolError(f"browser.executable is {configured}, which is no program.")
        return found
    for name in _NAMES:
        if found := shutil.which(name, path=path):
            return found
    bundled = sorted(str(p) for g in _BUNDLED for p in Path(env.get("HOME", "/")).glob(g))
    for place in (*_APPS, *reversed(bundled)):
        if os.access(place, os.X_OK):
            return place
    raise ToolError(INSTALL)


@contextmanager
def folder() -> Iterator[Path]:
    """A private temporary folder; what a killed agent left behind is removed as well."""
    _sweep()
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_root()))
    handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield made
    finally:
        os.close(handle)
        shutil.rmtree(made, ignore_errors=True)


def _root() -> Path:
    """The browser makes a socket below it, whose path must fit into 107 bytes."""
    usual = tempfile.gettempdir()
    return Path(usual if len(os.fsencode(usual)) <= _SHORT else "/tmp")


def _sweep() -> None:
    for left in _root().glob(_PREFIX + "*"):
        with suppress(OSError):
            found = left.lstat()
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if not ours or time.time() - found.st_ctime < _NEW:
                continue
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(handle)


@asynccontextmanager
async def running(
    executable: str, home: Path, *, env: Mapping[str, str], policy: Policy | None
) -> AsyncIterator[Pipe]:
    """A browser with its profile in `home`; ended with the block. It has no way to the network:
    whoever drives it gives each context its proxy. With a policy it is confined by that; a
    browser of root cannot confine itself."""
    for name in ("in", "out"):
        os.mkfifo(home / name, 0o600)
    words = _Words(home)
    inside = {**_environment(env), "HOME": str(home), "TMPDIR": str(home)}
    text = _command(executable, home, bare=os.geteuid() == 0)
    tier = await probe() if policy else None
    command = Command(text, home, inside, _FOREVER, policy, tier)
    with _ends(home) as (ours, theirs):
        task = asyncio.ensure_future(run(command, words))
        try:
            async with _talk(ours, task) as pipe:
                await _greet(pipe, words)
                while theirs:
                    os.close(theirs.pop())
                yield pipe
        finally:
            task.cancel()
            await asyncio.wait([task])


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in env}


def _command(executable: str, home: Path, *, bare: bool) -> str:
    flags = [
        *_FLAGS,
        f"--user-data-dir={home / 'profile'}",
        f"--disable-features={_FEATURES}",
        f"--host-resolver-rules={_RESOLVER}",
        f"--proxy-server={_NOWHERE}",
        "--proxy-bypass-list=<-loopback>",
    ]
    if bare:
        flags.append("--no-sandbox")
    words = " ".join(map(quote, (executable, *flags)))
    return f"exec {words} 3<{quote(str(home / 'in'))} 4>{quote(str(home / 'out'))}"


@contextmanager
def _ends(home: Path) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """Our ends of both pipes, to read from and to write to; and the other two, which only hold
    the pipes open until the browser has opened them itself."""
    how = os.O_NONBLOCK | os.O_CLOEXEC
    held = os.open(home / "in", os.O_RDONLY | how)
    write = os.open(home / "in", os.O_WRONLY | how)
    read = os.open(home / "out", os.O_RDONLY | how)
    theirs = [held, os.open(home / "out", os.O_WRONLY | how)]
    try:
        yield (read, write), theirs
    finally:
        for fd in theirs:
            os.close(fd)


@asynccontextmanager
async def _talk(ours: tuple[int, int], task: asyncio.Task[Outcome]) -> AsyncIterator[Pipe]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LARGEST)
    heard, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours[0], "rb", 0)
    )
    told, flow = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(), os.fdopen(ours[1], "wb", 0)
    )
    writer = asyncio.StreamWriter(told, flow, None, loop)
    try:
        yield Pipe(reader, writer, task)
    finally:
        if not told.is_closing():  # it was, when the browser ended by itself
            told.abort()
        heard.close()


async def _greet(pipe: Pipe, words: _Words) -> None:
    """Until it answers; what it printed says why when it does not."""
    pipe.writer.write(b'{"id":1,"method":"Browser.getVersion"}\0')
    answer = asyncio.ensure_future(pipe.reader.readuntil(b"\0"))
    answer.add_done_callback(lambda said: said.cancelled() or said.exception())
    watched: list[asyncio.Future[Any]] = [answer, pipe.ended]
    try:
        await asyncio.wait(watched, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if answer.done() and answer.exception() is None:
            return
    finally:
        answer.cancel()
    await asyncio.wait([pipe.ended], timeout=_LAST_WORDS)
    if pipe.ended.done() and (error := pipe.ended.exception()) is not None:
        raise ToolError(f"The browser did not start: {error}")
    raise ToolError(f"The browser did not start. {words.text().strip()[-500:]}".strip())


class _Words(Capture):
    """The last of what it printed; there is no end to it, so it is not saved."""

    def __init__(self, home: Path) -> None:
        super().__init__(_WORDS, home)
        self._last = b""

    def feed(self, data: bytes) -> None:
        self._last = (self._last + data)[-_WORDS:]

    def text(self) -> str:
        return self._last.decode("utf-8", "replace")
