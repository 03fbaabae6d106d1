"""A model behind a bare endpoint, with no configuration but its address: how many tasks it does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestServer

from hermes.config.paths import models_folders
from hermes.llm.endpoints.embedded import is_engine_installed
from tests.kit import Home, run_hermes
from tests.local.first_questions import QUESTIONS
from tests.local.tasks import TASKS, Task

NAME = "qwen2.5-coder-1.5b"
LEAST = 20
"""Of 24."""
LEAST_FIRST = 26
"""Of thirty."""
MOST_BYTES = 6 * 1024
"""Of the first request of a task."""
PATIENCE = {"ttfb_timeout_seconds": 900, "stale_timeout_seconds": 900}
"""Not how fast this machine is at the moment is measured."""
_SERVER = """
import os, socket, sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.port = int(sys.argv[2])
params.n_ctx = 16384
params.n_parallel = 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(sys.argv[3])
params.ui = False
params.warmup = False
params.verbosity = 1
server = xllamacpp.Server(params)
os.write(1, b"ready\\n")
while os.read(0, 4096):
    pass
os._exit(0)
"""


def model_file() -> Path | None:
    named = os.environ.get("HERMES_TEST_LARGER_MODEL")
    files = [folder / f"{NAME}.gguf" for folder in models_folders(os.environ.get)]
    return next((f for f in ([Path(named)] if named else files) if f.is_file()), None)


FILE = model_file()
pytestmark = [
    pytest.mark.local,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        FILE is None or not is_engine_installed() or not os.environ.get("HERMES_TEST_MEASURE"),
        reason=f"a measurement with a larger model: hermes model pull {NAME}; make test-local",
    ),
]


class Recorder:
    """Passes requests on to the model's server and keeps the size of each prompt."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.sizes: list[int] = []

    async def forward(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.path.endswith("/chat/completions"):
            self.sizes.append(len(body))
        headers = {"content-type": request.headers.get("content-type", "application/json")}
        async with (
            ClientSession(timeout=ClientTimeout(3600)) as client,
            client.request(
                request.method, self._address + request.path_qs, data=body, headers=headers
            ) as answer,
        ):
            response = web.StreamResponse(
                status=answer.status, headers={"content-type": answer.headers["content-type"]}
            )
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response


@pytest.fixture(scope="module")
def engine_address() -> Iterator[str]:
    """Where llama.cpp serves the model as any other program would."""
    from tests.server.test_serve import find_free_port

    port = find_free_port()
    idle = max(1, len(os.sched_getaffinity(0)) - round(os.getloadavg()[0]))
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(FILE), str(port), str(idle)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield f"http://127.0.0.1:{port}"
        process.kill()


@pytest.fixture
async def recorder(engine_address: str) -> AsyncIterator[tuple[Recorder, str]]:
    recorder = Recorder(engine_address)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", recorder.forward)
    async with TestServer(app) as server:
        yield recorder, str(server.make_url("/v1"))


@pytest.mark.parametrize(
    ("tasks", "least"), [(TASKS, LEAST), (QUESTIONS, LEAST_FIRST)], ids=["tasks", "questions"]
)
async def test_how_much_it_does(
    tmp_path: Path,
    recorder: tuple[Recorder, str],
    tasks: tuple[Task, ...],
    least: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All tasks in one folder, which is emptied between them, and in one home, which knows only the
    address and that the machine may be slow. One folder is one prompt: it is read once."""
    recorded, address = recorder
    model = {"provider": "custom", "base_url": address, "default": NAME}
    home = Home(tmp_path, model=model, providers={"custom": PATIENCE})
    failed, first_sizes = [], []
    for task in tasks:
        folder = home.work
        shutil.rmtree(folder)
        folder.mkdir()
        for name, content in task.files.items():
            (folder / name).write_text(content)
        recorded.sizes.clear()
        question = ["chat", "--yolo", "-q", task.request, "--output", "json"]
        ran = await run_hermes(question, home, timeout=900, cwd=folder)
        first_sizes.append(recorded.sizes[0])
        is_done = ran.rc == 0 and task.check(folder, ran.json["text"])
        calls = [(c["name"], c["arguments"]) for c in ran.json["tool_calls"]]
        report = f"{task.request} -> {calls} {ran.json['text'][:200]!r}"
        with capsys.disabled():
            print("\n", "done" if is_done else "WRONG", report, end="", flush=True)
        failed += [] if is_done else [report]
    score = f"{len(tasks) - len(failed)} of {len(tasks)}, prompts of up to {max(first_sizes)} bytes"
    with capsys.disabled():
        print(f"\n{NAME} behind a bare endpoint: {score}", flush=True)
    assert len(tasks) - len(failed) >= least, "\n".join(failed)
    assert max(first_sizes) < MOST_BYTES
