"""One machine needs nothing of a cluster: neither its driver nor its engine is imported."""

import subprocess
import sys

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
