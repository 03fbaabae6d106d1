"""Runs embedded models: one child process per model file, started by the first call."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.config.env import build_minimal_env
from hermes.core.errors import Failure, Kind, ProviderError
from hermes.llm.http.failures import connection_failure
from hermes.llm.http.lazy_tls import load_aiohttp
from hermes.llm.http.transport import Exchange
from hermes.llm.local.models import find_model
from hermes.llm.local.uri import ServedModel, parse_uri

if TYPE_CHECKING:
    import aiohttp

ENGINE_NAME = "the local model"
START_SECONDS = 180.0
CHILD = Path(__file__).with_name("server_process.py")
_LAST_WORDS = 400
_UNLOADABLE = "error loading model"
_TRACEBACK = "Traceback (most recent call last)"
_MEMORY_FACTOR = 1.15
"""Memory a model needs without its context, as a multiple of its file size."""
_CONTEXT_BYTES = 40_000
"""Memory per token of context, estimated generously for small models."""
_MOST_THREADS = 8


class LocalEngines:
    """The embedded models in use by this process."""

    def __init__(self) -> None:
        self._engines: dict[ServedModel, LocalEngine] = {}

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes
    ) -> Exchange:
        served, path = parse_uri(url)
        engine = self._engines.setdefault(served, LocalEngine(served))
        return await engine.send(method, path, headers=headers, body=body)

    async def close(self) -> None:
        engines, self._engines = list(self._engines.values()), {}
        for engine in engines:
            await engine.close()


class LocalEngine:
    """A child process that loads the model once and keeps it loaded. When it dies, the current call
    fails with the reason, and the next call starts another."""

    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self._child: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self._session: aiohttp.ClientSession | None = None
        self._starting: asyncio.Task[None] | None = None

    async def send(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes
    ) -> Exchange:
        await self._ensure_child()
        assert self._session is not None
        aiohttp = load_aiohttp()
        try:
            url, data = f"http://local{path}", body or None
            response = await self._session.request(method, url, data=data, headers=headers)
        except (aiohttp.ClientError, OSError) as error:
            failure = await self.explain_failure(connection_failure(error, ENGINE_NAME))
            raise ProviderError(failure) from None
        return _EngineExchange(response, self)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        child, self._child = self._child, None
        if child is not None:
            await asyncio.to_thread(_end_child, child, self._folder)

    async def _ensure_child(self) -> None:
        child = self._child
        if child is not None and child.poll() is None and self._starting is None:
            return
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start_child())
            self._starting.add_done_callback(self._forget_start)
        await asyncio.shield(self._starting)

    def _forget_start(self, task: asyncio.Task[None]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # already raised to whoever waited

    async def _start_child(self) -> None:
        await self.close()
        _check_model(self._served)
        self._folder = Path(tempfile.mkdtemp(prefix="hermes-model-"))
        socket = self._folder / "model.sock"
        child = self._child = _spawn_child(self._served, socket, self._folder / "log")
        assert child.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await asyncio.to_thread(child.stdout.readline)
        except TimeoutError:
            line = b""
        finally:
            if child.poll() is None and not socket.exists():
                child.kill()
        if line != b"ready\n":
            child.kill()
            await asyncio.to_thread(child.wait)
            raise ProviderError(_start_failure(self._served, child, self._folder))
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path=str(socket), limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def explain_failure(self, failure: Failure) -> Failure:
        """The failure, with the reason why the child ended if it did."""
        child = self._child
        if child is None:
            return failure
        try:
            await asyncio.wait_for(asyncio.to_thread(child.wait, 2), 3)
        except (TimeoutError, subprocess.TimeoutExpired):
            return failure
        reason = _describe_end(child, self._folder)
        text = f"{ENGINE_NAME} ended unexpectedly: {reason}; the next call starts it again"
        return Failure(Kind.NETWORK, text)


class _EngineExchange(Exchange):
    """A response that says what happened to the child when it breaks off."""

    __slots__ = ("_engine",)

    def __init__(self, response: "aiohttp.ClientResponse", engine: LocalEngine) -> None:
        super().__init__(response, ENGINE_NAME)
        self._engine = engine

    async def read(self) -> bytes:
        try:
            return await super().read()
        except ProviderError as error:
            raise ProviderError(await self._engine.explain_failure(error.failure)) from None


def _check_model(served: ServedModel) -> None:
    """Raise before the start for what would make the child crash."""
    if find_spec("xllamacpp") is None:
        raise ProviderError(Failure(Kind.MODEL_NOT_FOUND, "the extra `local` is not installed"))
    try:
        size = Path(served.file).stat().st_size
        with Path(served.file).open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        known = find_model(Path(served.file).name)
        todo = f"; `hermes model pull {known.name}` downloads it" if known else ""
        text = f"{served.file} cannot be read: {error.strerror}{todo}"
        raise ProviderError(Failure(Kind.MODEL_NOT_FOUND, text)) from None
    if magic != b"GGUF":
        raise ProviderError(Failure(Kind.MODEL_NOT_FOUND, f"{served.file} is not a GGUF file"))
    needed = int(size * _MEMORY_FACTOR) + served.context * _CONTEXT_BYTES
    free = _free_memory()
    if free is not None and free < needed:
        text = (
            f"{Path(served.file).name} needs about {needed // 10**6} MB of memory, "
            f"{free // 10**6} MB are free; use a smaller model"
        )
        raise ProviderError(Failure(Kind.MODEL_NOT_FOUND, text))


def _free_memory() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _spawn_child(served: ServedModel, socket: Path, log: Path) -> subprocess.Popen[bytes]:
    numbers = (served.context, max(1, min(_idle_cores(), _MOST_THREADS)))
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-I", str(CHILD), served.file, str(socket), *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=handle,
            env=build_minimal_env(),
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(handle)


def _idle_cores() -> int:
    """The cores that are idle now. The threads wait for each other at every layer, so one that has
    to share its core slows all down; a single thread is ten times faster then."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    return cores - round(os.getloadavg()[0])


def _end_child(child: subprocess.Popen[bytes], folder: Path) -> None:
    """Close the child's standard input, which ends it, or kill it after three seconds."""
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    try:
        child.wait(3)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _start_failure(served: ServedModel, child: subprocess.Popen[bytes], folder: Path) -> Failure:
    if child.returncode == 1 and _UNLOADABLE in _read_child_log(folder):
        file = Path(served.file)
        known = find_model(file.name)
        todo = f"; delete it and run `hermes model pull {known.name}` again" if known else ""
        text = f"{file.name} is incomplete, damaged or not supported by this engine{todo}"
        return Failure(Kind.MODEL_NOT_FOUND, text)
    return Failure(Kind.UNKNOWN, f"{ENGINE_NAME} did not start: {_describe_end(child, folder)}")


def _read_child_log(folder: Path) -> str:
    try:
        return (folder / "log").read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _describe_end(child: subprocess.Popen[bytes], folder: Path) -> str:
    code = child.poll()
    said, traceback, raised = _read_child_log(folder).partition(_TRACEBACK)
    lines = said.splitlines()[-2:] + raised.splitlines()[-1:] if traceback else said.splitlines()
    last = " ".join(lines[-3:])[-_LAST_WORDS:]
    if code is None:
        reason = "it took too long"
    elif code < 0:
        memory = " (out of memory?)" if -code == signal.SIGKILL else ""
        reason = f"killed by {signal.Signals(-code).name}{memory}"
    else:
        reason = f"exit status {code}"
    return f"{reason}: {last}" if last else reason
