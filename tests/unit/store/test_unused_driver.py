"""One machine needs nothing of a cluster: neither its driver nor its engine is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_UNWANTED = ("psycopg", "psycopg_pool", "procrastinate", "hermes.store.postgres")


def test_a_server_on_sqlite_imports_nothing_of_a_cluster() -> None:
    code = (
        "import sys, hermes.server.app, hermes.app.runtime, hermes.cli.server_process,"
        " hermes.gateway.service, hermes.store.sqlite\n"
        "hermes.server.app.list_routes()\n"
        f"print([m for m in sys.modules if m.startswith({_UNWANTED})])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("url", "said"),
    [("", "its database is not configured"), ("postgresql://h/n", "needs the extra `cluster`")],
)
@pytest.mark.parametrize("words", [["worker"], ["tenants", "list"], ["cluster", "status"]])
def test_commands_of_a_cluster_say_what_is_missing(
    tmp_path: Path, words: list[str], url: str, said: str
) -> None:
    code = (
        "import sys; sys.modules['psycopg'] = sys.modules['procrastinate'] = None\n"
        f"from hermes.cli.main import main; sys.exit(main({words!r}))"
    )
    env = {"HOME": str(tmp_path), "PATH": os.defpath, "HERMES_DATABASE_URL": url}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, env=env
    )
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_worker_names_the_queues_that_there_are(tmp_path: Path) -> None:
    code = (
        "import sys; from hermes.cli.main import main;"
        " sys.exit(main(['worker', '--queues', 'turns, node:a,turn']))"
    )
    env = {"HOME": str(tmp_path), "PATH": os.defpath}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, env=env
    )
    said = "hermes: worker: there is no queue turn: use turns, batch or node:NAME"
    assert done.returncode == 2 and done.stderr.startswith(said), done.stderr
