"""A model behind a bare endpoint, with no configuration but its address: how many tasks it does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.config.paths import models_folders
from hermes.llm.endpoints.embedded import is_engine_installed
from tests.kit import Home, run_hermes
from tests.local.tasks import TASKS

NAME = "qwen2.5-coder-1.5b"
LEAST = 20
"""Of 24."""
_SERVER = """
import os, socket, sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.port = int(sys.argv[2])
params.n_ctx = 16384
params.n_parallel = 1
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


@pytest.fixture
def address() -> Iterator[str]:
    """Where llama.cpp serves the model as any other program would."""
    from tests.server.test_serve import find_free_port

    port = find_free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(FILE), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield f"http://127.0.0.1:{port}/v1"
    process.kill()
    process.wait()


async def test_how_many_tasks_it_does(tmp_path: Path, address: str) -> None:
    failed = []
    for number, task in enumerate(TASKS):
        (root := tmp_path / str(number)).mkdir()
        home = Home(root, model={"provider": "custom", "base_url": address, "default": NAME})
        for name, content in task.files.items():
            home.file(name, content)
        ran = await run_hermes(
            ["chat", "--yolo", "-q", task.request, "--output", "json"], home, timeout=900
        )
        if ran.rc or not task.check(home.work, ran.json["text"]):
            calls = [(c["name"], c["arguments"]) for c in ran.json["tool_calls"]]
            failed.append(f"{task.request} -> {calls} {ran.json['text'][:200]!r}")
            print(failed[-1], flush=True)
    assert len(TASKS) - len(failed) >= LEAST, "\n".join(failed)
