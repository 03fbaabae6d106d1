"""For every test: who runs it and when, who may open a database file, and no skip in silence."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.home import RECORDING
from tests.kit.processes import living

COMPLETE = "HERMES_TEST_COMPLETE"
"""Set where every real part must be there: a case skipped for want of one fails."""
# A gate gives the same verdict twice; elsewhere new examples are tried at each run. No clock
# decides: on a busy machine examples may be made and run slowly.
settings.register_profile(
    "gate",
    deadline=None,
    derandomize=COMPLETE in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("gate")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # run in the background; children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # run by nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
_DATABASE = re.compile(r"\.db(-wal|-shm|-journal)?$")
_opened: list[str] = []
_watching = True


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event not in ("open", "os.truncate", "sqlite3.connect") or not _watching:
        return
    path = args[0]
    if isinstance(path, str | bytes | os.PathLike) and _DATABASE.search(os.fsdecode(path)):
        where = "".join(traceback.format_stack(limit=6)[:-1])
        _opened.append(f"{event}: {os.fsdecode(path)}\n{where}")


sys.addaudithook(_audit)

_REAL = re.compile(
    r"chrom|playwright|bubblewrap|ripgrep|git is not|confine|\btier\b|control groups|ssh|toolchain"
    r"|ngircd|dovecot",
    re.I,
)
"""What the reasons of such skips speak of."""


def _reason(report: Any) -> str:
    longrepr = getattr(report, "longrepr", None)
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return str(text).removeprefix("Skipped: ")


def _must_not(report: Any) -> None:
    """Whole files are skipped while they are collected, single cases when they run."""
    if not report.skipped or hasattr(report, "wasxfail") or not os.environ.get(COMPLETE):
        return
    why = _reason(report)
    if _REAL.search(why):
        report.outcome = "failed"
        report.longrepr = f"{COMPLETE} is set, and this was skipped: {why}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    outcome: Any = yield
    _must_not(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    outcome: Any = yield
    _must_not(outcome.get_result())


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many cases did not run, and why."""
    reasons = Counter(_reason(r) for r in terminalreporter.stats.get("skipped", ()))
    if not reasons:
        return
    terminalreporter.section(f"{reasons.total()} cases skipped")
    for why, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5}  {why}")


_LONGEST = (
    "e2e/test_kill",
    "server/test_fuzz",
    "flow/browser",
    "e2e/dashboard",
    "e2e/test_store_kill",
    "e2e/test_toolchains",
    "e2e/test_obedience",
    "e2e/test_memory_races",
    "unit/tools/test_file_boundary",
    "flow/test_backend_docker",
    "wire/test_other_fuzz",
    "gateway/test_gateway_kills",
    "gateway/test_irc_ngircd",
    "gateway/test_matrix_synapse",
    "gateway/test_email_dovecot",
    "unit/cron/test_schedule_oracle",
    "e2e/test_cron_crowd",
    "e2e/test_batch_kills",
    "e2e/test_mcp_counterparts",
    "e2e/test_installation",
    "e2e/test_repl_fuzz",
    "server/test_serve_kills",
    "e2e/clients",
    "gateway/test_messenger_kills",
    "gateway/test_discord_faults",
    "gateway/test_slack_faults",
    "e2e/test_repl_commands",
    "e2e/test_repl_sessions",
    "e2e/test_repl_changes",
    "e2e/test_repl_views",
    "e2e/test_repl_models",
    "unit/tools/test_credentials",
    "unit/tools/test_edited_bytes",
    "flow/test_backend_ssh",
    "e2e/test_escapes",
    "gateway/test_discord",
    "gateway/test_slack",
    "gateway/test_matrix",
    "gateway/test_email",
    "gateway/test_irc",
    "gateway/test_signal",
    "gateway/test_whatsapp",
    "gateway/test_schedule",
    "gateway/test_chat_settings",
    "gateway/test_soak",
    "gateway/test_threats",
    "gateway/test_restarts",
    "e2e/test_repl_prompt",
    "e2e/test_repl_live",
    "e2e/test_wires",
    "e2e/test_mcp_cli",
    "e2e/test_mcp_kill",
    "e2e/test_memory_review_kill",
    "e2e/test_mcp_login",
    "e2e/test_batch",
    "e2e/test_compression_cli",
    "server/test_load",
    "flow/test_faults_transport",
    "flow/test_processes",
    "flow/test_containment",
    "flow/test_mcp.py",
    "e2e/test_commands_cli",
    "e2e/test_eval",
    "e2e/test_swe",
    "flow/test_faults_stream",
    "server/test_dashboard_mcp",
    "server/test_dashboard_restart",
    "server/test_dashboard_contract",
    "flow/test_replay",
    "e2e/test_replay_cli",
    "e2e/test_examples",
    "flow/test_traces",
    "editors/test_acp",
    "flow/test_memory_provider",
    "flow/test_stable_prompt",
    "e2e/test_knowledge",
    "e2e/test_skill_validator",
    "server/test_cluster_",
    "[postgres",
    "gateway/test_streamed_answers",
    "gateway/test_rights",
    "gateway/test_failures",
    "gateway/test_conversations",
    "gateway/test_turns",
    "gateway/test_delivery",
    "gateway/test_commands",
    "e2e/test_cron",
    "e2e/test_auth_cli",
    "e2e/test_storage",
    "e2e/test_tools_cli",
    "e2e/test_model_cli",
    "e2e/test_mcp_serve",
    "e2e/test_setup",
    "e2e/test_insights",
    "flow/test_faults_chaos",
    "e2e/test_backup",
    "e2e/test_request_size",
    "flow/test_walls",
    "e2e/test_oneshot",
    "server/test_cluster.py",
    "unit/exec/command_policy",
)
"""They begin first: none of them is to be what everybody waits for at the end."""
_HEAVY = _LONGEST[: _LONGEST.index("e2e/test_oneshot")]
"""Minutes of kills, races and fuzzing, a browser, toolchains, a daemon, clients, much of the
terminal: `make e2e` runs them, `make test` does not."""
_PARTS = {
    "e2e/test_escapes.py": r"tier\d",
    "e2e/test_obedience.py": r"tier\d",
    "e2e/test_session_sockets.py": r"tier\d",
    "server/test_fuzz.py": r"\[\d+\]",
    "unit/tools/test_file_boundary.py": r"\[\d+\]",
}
"""Files that several workers share, and what a case's name says about its share."""


def _rank(item: pytest.Item) -> int:
    return next((n for n, name in enumerate(_LONGEST) if name in item.nodeid), len(_LONGEST))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)
    for item in items:
        if any(name in item.nodeid for name in _HEAVY) or (RECORDING and "flow/" in item.nodeid):
            item.add_marker("heavy")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file goes to one worker, so that what is set up for all of it is set up once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, case = nodeid.partition("::")
            parts = next((p for name, p in _PARTS.items() if file.endswith(name)), "$")
            found = re.search(parts, case)
            return file + (found[0] if found else "")

    if config.getvalue("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.fixture(autouse=True)
def only_sqlite_opens_databases() -> Iterator[None]:
    """One open and close of the file by anybody else drops SQLite's locks for the whole process;
    rows committed after that can be lost."""
    _opened.clear()
    yield
    assert not _opened, "a database file was opened by Python:\n" + "\n".join(_opened)


@pytest.fixture
def mark() -> Iterator[str]:
    """How long this test's `sleep`s last: nobody else's do. None of them may live on."""
    name = f"{100_000 + os.getpid()}.{next(_marks)}"
    yield name
    left = living(name)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left


_marks = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server, started by the first test that needs one."""
    from tests.kit.postgres import provide_server

    with provide_server() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A database that tests share: each uses a tenant of its own."""
    from tests.kit.postgres import create_database

    with create_database(postgres_server) as url:
        yield url


@pytest.fixture
def raw_database() -> Callable[[], AbstractContextManager[None]]:
    """For tests that damage or inspect a file on purpose, with no connection open on it."""

    @contextmanager
    def allowed() -> Iterator[None]:
        global _watching
        _watching = False
        try:
            yield
        finally:
            _watching = True

    return allowed
