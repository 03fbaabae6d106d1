"""`hermes status`, `logs`, `doctor`, `profile`, `sessions` and `update` as users start them."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hermes.app.control.doctor import connectivity
from hermes.app.live.log_records import make_filter, read_tail
from hermes.cli.main import main
from hermes.cli.maintenance.installation import PACKAGE, detect_installation, is_newer
from hermes.config.instances import announce_instance, list_instances, list_stale_files
from hermes.config.load import load_setup
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
from tests.kit import Home, Provider, Ran, run_hermes, say, start_hermes
from tests.kit.home import program
from tests.kit.replies import Gate

pytestmark = pytest.mark.e2e


async def hermes(home: Home, *words: str, **more: Any) -> Ran:
    return await run_hermes(words, home, **more)


def by_name(ran: Ran) -> dict[str, dict[str, Any]]:
    return {row["name"].partition(" tier")[0]: row for row in ran.json}


class Done(NamedTuple):
    rc: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The program in this process, for many small steps; keyword arguments are variables."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.excepthook", sys.excepthook)

    def run(*words: str, **env: str) -> Done:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            code = main(list(words))
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


# -- status ----------------------------------------------------------------------------------


async def test_what_runs_is_shown(tmp_path: Path) -> None:
    gate = Gate()
    async with Provider([say("one"), say("two").hold(gate)]) as provider:
        home = Home.of(tmp_path, provider, budget={"daily_tokens": 1_000_000})
        idle = await hermes(home, "status")
        assert idle.rc == 0 and "Nothing is running." in idle.stdout
        assert (await hermes(home, "chat", "-q", "first")).rc == 0
        serving = await start_hermes(["serve", "--port", "0"], home)
        assert serving.stderr is not None
        address = (await serving.stderr.readline()).decode().split()[-1]
        talking = await start_hermes(["chat", "-q", "a long question"], home)
        while len(provider.requests) < 2:
            await asyncio.sleep(0.01)
        found = (await hermes(home, "status", "--json")).json
        assert [s["title"] for s in found["sessions"]] == ["a long question"]
        assert [(s["kind"], s["address"]) for s in found["servers"]] == [("serve", address)]
        assert found["servers"][0]["pid"] == serving.pid
        assert found["today"]["calls"] == 1 and found["today"]["daily_tokens"] == 1_000_000
        assert found["today"]["unpriced_calls"] == 1
        assert found["model"] == "custom:kit-model"
        text = (await hermes(home, "status")).stdout
        assert "tokens allowed; 1 call of unknown price" in text
        assert "in progress: " in text and f"serve at {address}" in text
        talking.kill()
        await talking.communicate()
        serving.terminate()
        await serving.communicate()
        assert serving.returncode == 0
        gate.open()
        after = (await hermes(home, "status", "--json")).json
        assert not after["sessions"] and not after["servers"]
        assert [s["title"] for s in after["interrupted"]] == ["a long question"]


def test_a_presence_ends_with_its_process(tmp_path: Path) -> None:
    with announce_instance(tmp_path, "serve", "http://x"):
        assert [(p.kind, p.pid) for p in list_instances(tmp_path)] == [("serve", os.getpid())]
        assert list_stale_files(tmp_path) == []
    assert list_instances(tmp_path) == []
    (tmp_path / "run" / "serve-1.here").write_text("{}")
    assert list_instances(tmp_path) == [] and len(list_stale_files(tmp_path)) == 1


# -- logs ------------------------------------------------------------------------------------


def log(home: Home, *records: dict[str, Any]) -> None:
    folder = home.path / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "hermes.log").open("a") as file:
        for record in records:
            file.write(json.dumps({"time": "2026-01-01T00:00:00.000Z", **record}) + "\n")


async def test_logs_are_filtered_and_readable(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert (await hermes(home, "logs")).stderr == "The log is empty.\n"
    log(
        home,
        {"level": "warning", "logger": "a", "message": "old"},
        {"level": "error", "logger": "b", "message": "bad \x1b[31m", "trace": "x\ny"},
        {"level": "warning", "logger": "c", "message": "mine", "session": "20260101-aa"},
    )
    with (home.path / "logs" / "hermes.log").open("a") as file:
        file.write('{"cut sho')
    out = (await hermes(home, "logs")).stdout
    assert [word in out for word in ("old", "bad", "mine", "\n    y\n")] == [True] * 4
    assert "\x1b" not in out and "cut sho" not in out
    assert "old" not in (await hermes(home, "logs", "--level", "error")).stdout
    only = (await hermes(home, "logs", "--session", "20260101", "--json")).json
    assert only["message"] == "mine"
    assert (await hermes(home, "logs", "-n", "1")).stdout.count("\n") == 1


async def test_following_sees_what_comes_and_a_file_begun_anew(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log(home, {"level": "warning", "logger": "a", "message": "before"})
    running = await start_hermes(["logs", "-f"], home)
    assert running.stdout is not None
    assert b"before" in await asyncio.wait_for(running.stdout.readline(), 90)
    log(home, {"level": "warning", "logger": "a", "message": "after"})
    assert b"after" in await asyncio.wait_for(running.stdout.readline(), 90)
    file = home.path / "logs" / "hermes.log"
    file.rename(file.with_suffix(".log.1"))
    log(home, {"level": "warning", "logger": "a", "message": "anew"})
    assert b"anew" in await asyncio.wait_for(running.stdout.readline(), 90)
    running.terminate()
    await running.communicate()


def test_following_ends_with_its_reader(tmp_path: Path) -> None:
    home = Home(tmp_path)
    following = subprocess.Popen(
        [*program(), "logs", "-f"], env=home.env, cwd=home.work, stdout=subprocess.PIPE
    )
    assert following.stdout is not None
    following.stdout.close()
    try:
        assert following.wait(20) == 141
    finally:
        following.kill()


def test_a_record_names_the_session_whose_turn_it_was(tmp_path: Path) -> None:
    import logging

    from hermes.cli.log_file import LogFile
    from hermes.core.redaction.log_context import SESSION

    file = tmp_path / "logs" / "hermes.log"
    handler = LogFile(file, lambda text: text)
    token = SESSION.set("20260101-000000-abcd")
    record = logging.LogRecord("x", logging.WARNING, "", 0, "hm", None, None)
    handler.emit(record)
    SESSION.reset(token)
    handler.emit(record)
    handler.close()
    first, second = read_tail(file, 5, make_filter("debug", ""))[0]
    assert first["session"] == "20260101-000000-abcd" and "session" not in second


def test_a_process_that_writes_for_weeks_begins_its_log_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging

    from hermes.cli import log_file as logs

    monkeypatch.setattr(logs, "MAX_BYTES", 2000)
    file = tmp_path / "logs" / "hermes.log"
    mine, others = (logs.LogFile(file, lambda text: text) for _ in range(2))
    for n in range(200):
        record = logging.LogRecord("x", logging.WARNING, "", 0, f"number {n}", None, None)
        (others if n % 3 == 0 else mine).emit(record)
    mine.close()
    others.close()
    assert sorted(p.name for p in file.parent.iterdir()) == ["hermes.log", "hermes.log.1"]
    assert all(p.stat().st_size < 2500 for p in file.parent.iterdir())
    told = [r["message"] for r in read_tail(file, 9, make_filter("debug", ""))[0]]
    assert told == [f"number {n}" for n in range(191, 200)]


# -- doctor ----------------------------------------------------------------------------------


async def test_doctor_finds_and_mends(tmp_path: Path) -> None:
    async with Provider([say("x")]) as provider:
        home = Home.of(tmp_path, provider)
        home.env["TMPDIR"] = str(tmp_path)
        assert (await hermes(home, "chat", "-q", "hi")).rc == 0
        (home.path / "notes").write_text("x")
        (home.path / "notes").chmod(0o644)
        lock = home.path / "run" / f"{'a' * 32}.lock"
        lock.write_text("")
        half = home.path / ".config.yaml.1.new"
        half.write_text("x")
        folder = home.path / ".import-x"
        folder.mkdir()
        for path in (half, folder):
            os.utime(path, (1, 1))
        fresh = home.path / ".config.yaml.2.new"
        fresh.write_text("somebody writes this now")
        fresh.chmod(0o600)
        rows = by_name(await hermes(home, "doctor", "--json"))
        assert {"sqlite", "disk", "clock", "sandbox", "git", "chromium"} <= set(rows)
        assert rows["leftovers"]["state"] == "note" and len(rows["leftovers"]["details"]) == 3
        assert rows["home"]["state"] == "note"
        assert "can be reached" in rows["provider custom"]["text"]
        assert len(provider.requests) == 1, "nothing was sent"
        assert lock.exists() and half.exists(), "looking changes nothing"
        ran = await hermes(home, "doctor", "--fix", "--online", "--json")
        rows = by_name(ran)
        assert len(rows["mended"]["details"]) == 4
        assert rows["leftovers"]["state"] == rows["home"]["state"] == "ok"
        assert stat.S_IMODE((home.path / "notes").stat().st_mode) == 0o600
        assert not lock.exists() and not half.exists() and not folder.exists() and fresh.exists()
        assert ran.rc == 0 and "accepts the key" in rows["provider custom"]["text"]
        assert home.env["KIT_KEY"] not in ran.stdout
        child = await hermes(home, "doctor", "--fix", env={"HERMES_CHILD": "1"})
        assert child.rc == 2
    rows = by_name(await hermes(home, "doctor", "--json"))
    assert "cannot be reached" in rows["provider custom"]["text"]


@pytest.mark.parametrize(
    ("answer", "date", "state", "said"),
    [
        (200, "", "ok", "accepts the key"),
        (401, "", "failed", "rejects the key (401, KIT_KEY)"),
        (404, "", "ok", "it answers (404"),
        (503, "", "failed", "it answers 503"),
        (200, "Wed, 21 Oct 2015 07:28:00 GMT", "note", "accepts the key"),
    ],
)
async def test_what_a_provider_says_of_the_key(
    tmp_path: Path, answer: int, date: str, state: str, said: str
) -> None:
    async def models(request: web.Request) -> web.Response:
        assert request.headers["Authorization"].startswith("Bearer sk-kit")
        return web.json_response(
            {"data": []}, status=answer, headers={"Date": date} if date else {}
        )

    app = web.Application()
    app.router.add_get("/v1/models", models)
    async with TestServer(app) as server:
        home = Home(tmp_path)
        address = str(server.make_url("/v1"))
        home.configure(model={"default": "m", "base_url": address, "api_key_env": "KIT_KEY"})
        _, check = await connectivity.check_models(load_setup("", home.env), online=True)
    assert (check.state, said in check.text) == (state, True), check
    assert bool(check.details) is bool(date)


async def test_doctor_names_every_problem_with_its_line(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (home.path / "config.yaml").write_text("agent:\n  max_turn: 3\n  api_max_retries: x\n")
    ran = await hermes(home, "doctor", "--json")
    assert ran.rc == 1
    details = by_name(ran)["configuration"]["details"]
    assert by_name(ran)["sessions"]["text"] == "none yet" and "disk" in by_name(ran)
    assert ["line 2" in details[0], "line 3" in details[1]] == [True, True]


# -- profiles --------------------------------------------------------------------------------


def test_a_profile_from_beginning_to_end(run: Run, tmp_path: Path) -> None:
    home = Home(tmp_path, agent={"max_turns": 7})
    (home.path / ".env").write_text("MY_KEY=abcdefgh\n")
    assert run("profile", "create", "work", "--from", "default").rc == 0
    place = home.path / "profiles" / "work"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700 and not (place / ".env").exists()
    assert run("-p", "work", "config", "get", "agent.max_turns").out == "7\n"
    assert "Created the new profile wrok" in run("-p", "wrok", "sessions", "list").err
    assert run("-p", "wrok", "sessions", "list").err == "No sessions yet.\n"
    assert run("profile", "delete", "wrok", "--yes").rc == 0
    assert run("profile", "create", "work").rc == 2
    assert run("profile", "use", "work").rc == 0
    assert run("config", "path").out == f"{place}/config.yaml\n"
    assert run("-p", "default", "config", "path").out == f"{home.path}/config.yaml\n"
    rows = json.loads(run("profile", "list", "--json").out)
    assert [(row["name"], row["used"]) for row in rows] == [("default", False), ("work", True)]
    assert "work (in use)" in run("profile", "show").out
    assert run("profile", "use", "default", HERMES_CHILD="1").rc == 2
    assert "did you mean work?" in run("profile", "use", "wrok").err
    assert run("profile", "delete", "work").rc == 2, "nobody was asked"
    assert run("profile", "delete", "work", "--yes").rc == 0
    assert not place.exists()
    assert run("config", "path").out == f"{home.path}/config.yaml\n"
    assert run("profile", "delete", "default", "--yes").rc == 2 and home.path.exists()
    (home.path / "active_profile").write_text("gone\n")
    lost = run("config", "path")
    assert lost.rc == 2 and "hermes profile use default" in lost.err
    assert run("profile", "use", "default").rc == 0
    assert run("config", "path").rc == 0


# -- sessions --------------------------------------------------------------------------------


async def stored(home: Home, name: str, *, days: int, texts: tuple[str, ...] = ("hi",)) -> None:
    then = time.time() - days * 86400
    store = SqliteStore(home.path / "hermes.db", clock=lambda: then)
    meta = SessionMeta(name, system="be kind", title=name, created=then, updated=then)
    await store.sessions.append(name, [user_message(text) for text in texts], create=meta)
    await store.close()


def test_sessions_are_renamed_branched_and_pruned(run: Run, tmp_path: Path) -> None:
    home = Home(tmp_path)
    asyncio.run(stored(home, "old", days=100))
    asyncio.run(stored(home, "new", days=1, texts=("one", "two")))
    assert run("sessions", "rename", "new", "My", " talk").rc == 0
    assert run("sessions", "rename", "new").rc == 2
    made = run("sessions", "branch", "new")
    branch = json.loads(run("sessions", "show", made.out.strip(), "--json").out)
    assert branch["parent"] == "new" and branch["title"] == "My talk"
    assert branch["system"] == "be kind" and len(branch["messages"]) == 2
    assert run("sessions", "prune").rc == 2
    refused = run("sessions", "prune", "--days", "30")
    assert refused.rc == 2 and "--yes" in refused.err
    assert "2 left" in run("sessions", "prune", "--days", "30", "--yes").out
    left = json.loads(run("sessions", "list", "--json").out)
    assert {row["id"] for row in left} == {"new", branch["id"]}


# -- update ----------------------------------------------------------------------------------


class Installed:
    """What an installer leaves behind."""

    def __init__(self, **files: str) -> None:
        self._files = files

    def read_text(self, name: str) -> str | None:
        return self._files.get(name.partition(".")[0])


@pytest.mark.parametrize(
    ("mark", "files", "way", "command"),
    [
        ("uv-receipt.toml", {"INSTALLER": "uv"}, "uv tool", f"uv tool upgrade {PACKAGE}"),
        ("pipx_metadata.json", {"INSTALLER": "pip"}, "pipx", f"pipx upgrade {PACKAGE}"),
        ("", {"INSTALLER": "pip"}, "pip", f"-m pip install --upgrade {PACKAGE}"),
        ("", {"INSTALLER": "uv"}, "uv", f"uv pip install --python P --upgrade {PACKAGE}"),
        (
            "",
            {"direct_url": '{"url": "file:///src/h%20x", "dir_info": {"editable": true}}'},
            "git",
            "git -C '/src/h x' pull",
        ),
    ],
)
def test_the_right_way_to_update(
    tmp_path: Path, mark: str, files: dict[str, str], way: str, command: str
) -> None:
    if mark:
        (tmp_path / mark).write_text("")
    found = detect_installation(tmp_path, Installed(**files))  # type: ignore[arg-type]
    assert found.installer == way
    assert command.replace("P ", f"{tmp_path}/bin/python ", 1) in found.update_command


def test_versions_are_compared_as_numbers() -> None:
    assert is_newer("0.10.0", "0.9.1") and is_newer("1.0", "0.99") and is_newer("1.0.1", "1.0")
    assert not is_newer("1.0", "1.0.0") and not is_newer("0.9", "0.10")


async def test_the_newest_version_is_asked_for_on_request_only(tmp_path: Path) -> None:
    asked: list[str] = []

    async def page(request: web.Request) -> web.Response:
        asked.append(request.path)
        files = ["0.0.9", "9.10.0", "9.9.0", "10.0.0rc1"]
        names = [f"hermes_runtime-{version}-py3-none-any.whl" for version in files]
        links = "".join(f'<a href="{name}">{name}</a>' for name in names)
        return web.Response(text=links, content_type="text/html")

    app = web.Application()
    app.router.add_get("/simple/{name}/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    index = f"http://127.0.0.1:{runner.addresses[0][1]}/simple"
    home = Home(tmp_path)
    plain = await hermes(home, "update", env={"PIP_INDEX_URL": index})
    assert plain.rc == 0 and not asked
    ran = await hermes(home, "update", "--check", "--json", env={"PIP_INDEX_URL": index})
    assert ran.rc == 0 and ran.json["newest"] == "9.10.0" and ran.json["newer"] is True
    assert asked == [f"/simple/{PACKAGE}/"]
    await runner.cleanup()
    ran = await hermes(home, "update", "--check", env={"PIP_INDEX_URL": index})
    assert ran.rc == 1 and "Could not look up" in ran.stderr and "To update" in ran.stdout
    assert [p.name for p in home.path.iterdir()] == ["config.yaml"], "the home is not touched"
