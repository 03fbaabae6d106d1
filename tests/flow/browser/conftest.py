"""A site on loopback, and browsers that visit it."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hermes.core.errors import ToolError
from hermes.exec.chromium import find_browser
from tests.kit import Received, Reply, call, say
from tests.kit.bodies import messages, quoted


def _missing() -> str:
    if find_spec("playwright") is None:
        return "Playwright is not installed"
    try:
        find_browser("", os.environ)
    except ToolError:
        return "no Chromium is installed"
    return ""


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing() or "-")


class Site:
    """Pages by path; what was asked for is noted."""

    def __init__(self) -> None:
        self.port = 0
        self.pages: dict[str, str] = {}
        self.moved: dict[str, str] = {}
        self.asked: list[str] = []

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def config(self) -> dict[str, Any]:
        return {"web": {"allow_hosts": [f"127.0.0.1:{self.port}"]}}

    def put(self, path: str, body: str, title: str = "") -> str:
        self.pages[path] = f"<!doctype html><title>{title}</title>{body}"
        return self.base + path

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        if request.path in self.moved:
            return web.Response(status=302, headers={"Location": self.moved[request.path]})
        if request.path == "/file":
            name = 'attachment; filename="../../evil.sh"'
            return web.Response(body=b"rm", headers={"Content-Disposition": name})
        if request.path not in self.pages:
            return web.Response(status=404, text="nothing here")
        return web.Response(text=self.pages[request.path], content_type="text/html")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    runner = web.ServerRunner(web.Server(made.serve), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of its own: what a browser leaves there can be told from what others
    leave. Its name is short, for the paths of sockets."""
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as made:
        monkeypatch.setattr("tempfile.tempdir", made)
        yield Path(made)


def use(number: int, name: str, **args: Any) -> Reply:
    return call((f"c{number}", f"browser_{name}", args))


def on(number: int, name: str, what: str, **args: Any) -> Callable[[Received], Reply]:
    """A call with the ref of the element whose line of the tree begins like this."""

    def step(request: Received) -> Reply:
        trees = "\n".join(reversed(answers(request)))
        found = re.search(rf"- {re.escape(what)}.*?\[ref=(\w+)\]", trees)
        assert found, f"no {what} in {trees}"
        return use(number, name, ref=found[1], **args)

    return step


def answers(request: Received) -> list[str]:
    return [quoted(text) for m in messages(request) for _, text in m.results]


def processes(folder: Path) -> list[int]:
    """Those whose command line names a folder below this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if str(folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def go_on(request: Received) -> Reply:
    """Reads the rest of a page that came in parts."""
    found = re.search(r"continue with browser_snapshot offset=(\d+)", answers(request)[-1])
    number = len(answers(request)) + 20
    return use(number, "snapshot", offset=int(found[1])) if found else say("done")


def list_children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
            if stat and int(stat.rpartition(") ")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found
