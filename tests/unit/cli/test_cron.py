"""What `hermes cron` accepts and refuses, without a process for each call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes.cli.main import main


class Cron:
    """The command in a home of its own; returns what it printed."""

    def __init__(self, patch: pytest.MonkeyPatch, output: pytest.CaptureFixture[str]) -> None:
        self.patch = patch
        self._output = output

    def __call__(self, *args: str, rc: int = 0) -> str:
        assert main(["cron", *args]) == rc
        shown = self._output.readouterr()
        return shown.out + shown.err


@pytest.fixture
def cron(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cron:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("HERMES_CHILD", raising=False)
    monkeypatch.chdir(tmp_path)
    return Cron(monkeypatch, capsys)


def test_what_is_refused(cron: Cron) -> None:
    wrong = cron("add", "0 0 9 * * 1", "x", rc=2)
    assert 'Schedule "0 0 9 * * 1" is not understood. Examples: 30m,' in wrong
    assert "is in the past" in cron("add", "2020-01-01T09:00", "x", rc=2)
    assert "needs a PROMPT" in cron("add", "1h", rc=2)
    assert "is not known" in cron("add", "1h", "x", "--tz", "Mars/Base", rc=2)
    assert "no script" in cron("add", "1h", "x", "--script", "x.sh", rc=2)
    assert "is not a target" in cron("add", "1h", "x", "--deliver", "me", rc=2)
    assert "no toolset" in cron("add", "1h", "x", "--toolsets", "magic", rc=2)
    assert cron("status", rc=1) == "scheduler: none\n"
    cron.patch.setenv("HERMES_CHILD", "1")
    for words in (["add", "1h", "x"], ["run-due"], ["daemon"], ["pause", "x"]):
        assert "may not change or run" in cron(*words, rc=2)
    assert "No jobs yet" in cron("list")


def test_next_is_exact(cron: Cron) -> None:
    found = cron(
        "next", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-28T12:00", "-n", "2"
    )
    assert found == "2026-03-29T03:00:00+02:00\n2026-03-30T02:30:00+02:00\n"
    many = cron("next", "* * * * *", "-n", "3000")
    assert len(set(many.splitlines())) == 3000


def test_jobs_of_the_original_are_imported(cron: Cron, tmp_path: Path) -> None:
    common = {"prompt": "look", "deliver": "origin", "repeat": {"times": None, "completed": 0}}
    jobs = [
        {**common, "name": "a", "schedule": {"kind": "interval", "minutes": 30}},
        {**common, "name": "b", "schedule": {"kind": "cron", "expr": "0 9 * * *"},
         "enabled": False},
        {**common, "name": "c", "schedule": {"kind": "once", "run_at": "2020-01-01T09:00:00Z"}},
        {**common, "name": "d", "schedule": "every 2h", "repeat": {"times": 5, "completed": 2},
         "origin": {"platform": "telegram", "chat_id": "12", "thread_id": None}},
    ]  # fmt: skip
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps({"jobs": jobs}))
    assert "imported 3, left out 1" in cron("import", str(file), rc=1)
    rows = {row["name"]: row for row in json.loads(cron("list", "--json"))}
    assert (rows["a"]["schedule"], rows["a"]["deliver"]) == ("every 30m", ["local"])
    assert rows["b"]["state"] == "paused"
    assert (rows["d"]["deliver"], rows["d"]["repeat"]) == (["telegram:12"], 3)
    file.write_text("{")
    assert "is not a jobs.json" in cron("import", str(file), rc=2)


def test_a_target_that_nothing_delivers_to_is_said(cron: Cron) -> None:
    assert "results are sent to home while" in cron("add", "1h", "x", "--deliver", "local,home")
    (row,) = json.loads(cron("list", "--json"))
    assert row["deliver"] == ["local", "home"] and row["state"] == "active"


def test_a_skill_that_is_missing_is_said(cron: Cron) -> None:
    told = cron("add", "daily 09:00", "look", "--skill", "code-review", "--skill", "nosuch")
    assert "There is no skill nosuch. Runs fail until it is installed." in told
    assert "timeout: 30m\n" in cron("show", told.split()[0])
