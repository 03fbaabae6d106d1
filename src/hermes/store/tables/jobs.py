"""The jobs of the schedule and their runs; storing a run first is what claims it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import structs

from hermes.core.store import JobRun, ScheduledJob
from hermes.core.text import replace_invalid
from hermes.store.codec import Column
from hermes.store.tables.connection import SqlConnection, SqlDatabase

MAX_RUNS = 1000
"""Ended runs that are kept of each job."""
_FIELDS = structs.fields(JobRun)
_NAMES = ", ".join(field.name for field in _FIELDS)
_SELECT = f"SELECT {_NAMES}, owner FROM runs"
_OPEN = "state IN ('claimed', 'running')"
_UNWRITTEN = "output = '' AND state NOT IN ('skipped', 'missed')"
_TRIM = f"""
DELETE FROM runs WHERE job = ?1 AND NOT {_OPEN} AND delivery <> 'pending' AND due <
    (SELECT due FROM runs WHERE job = ?1 ORDER BY due DESC LIMIT 1 OFFSET {MAX_RUNS})"""


class SqlJobs:
    """Implements `core.store.JobStore`."""

    def __init__(self, database: SqlDatabase) -> None:
        self._read = database.read
        self._write = database.writer.submit
        self._process = database.process

    async def add_job(self, job: ScheduledJob) -> None:
        await self._write(lambda db: _put_job(db, job))

    async def change_job(
        self, job_id: str, change: Callable[[ScheduledJob], ScheduledJob]
    ) -> ScheduledJob | None:
        def change_row(db: SqlConnection) -> ScheduledJob | None:
            job = _get_job(db, job_id)
            if job is not None:
                job = change(job)
                _put_job(db, job)
            return job

        return await self._write(change_row)

    async def remove_job(self, job_id: str) -> bool:
        def delete_rows(db: SqlConnection) -> bool:
            db.execute("DELETE FROM runs WHERE job = ?", (job_id,))
            db.execute("DELETE FROM jobs WHERE id = ?", (job_id,))
            return bool(db.changes())

        return await self._write(delete_rows)

    async def list_jobs(self) -> list[ScheduledJob]:
        sql = "SELECT body FROM jobs ORDER BY created, id"
        return await self._read(lambda db: [_decode_job(row[0]) for row in db.execute(sql)])

    async def list_due(self, now: float) -> list[ScheduledJob]:
        sql = "SELECT body FROM jobs WHERE wake <= ? ORDER BY wake, id"
        return await self._read(lambda db: [_decode_job(row[0]) for row in db.execute(sql, (now,))])

    async def claim_runs(
        self, job: ScheduledJob, advanced: ScheduledJob, runs: Sequence[JobRun]
    ) -> list[JobRun]:
        def insert_runs(db: SqlConnection) -> list[JobRun]:
            current = _get_job(db, job.id)
            if current is None or _timing(current) != _timing(job):
                return []
            owner = self._process.acquire()
            is_busy = self._has_living_run(db, job.id)
            claimed = []
            for run in runs:
                if is_busy and run.state == "claimed":
                    run = structs.replace(run, state="skipped")
                if _insert_run(db, run, owner) and run.state == "claimed":
                    claimed.append(run)
            count = current.runs + advanced.runs - job.runs
            _put_job(
                db, structs.replace(current, next=advanced.next, wake=advanced.wake, runs=count)
            )
            db.execute(_TRIM, (job.id,))
            return claimed

        return await self._write(insert_runs)

    async def start_run(self, run: JobRun, began: float) -> bool:
        sql = "UPDATE runs SET state = 'running', began = ? WHERE job = ? AND due = ?"

        def mark_running(db: SqlConnection) -> bool:
            db.execute(f"{sql} AND state = 'claimed'", (began, run.job, run.due))
            return bool(db.changes())

        return await self._write(mark_running)

    async def settle_run(
        self,
        run: JobRun,
        settle: Callable[[ScheduledJob, JobRun], tuple[ScheduledJob, JobRun]],
    ) -> JobRun | None:
        def store_end(db: SqlConnection) -> JobRun | None:
            job, found = _get_job(db, run.job), _find_open_run(db, run)
            if job is None or found is None:
                return None
            job, ended = settle(job, found)
            _put_job(db, job)
            names = ", ".join(f"{field.name} = ?" for field in _FIELDS)
            sql = f"UPDATE runs SET {names}, owner = ? WHERE job = ? AND due = ?"
            owner = self._process.acquire()
            db.execute(sql, (*_run_columns(ended), owner, run.job, run.due))
            return ended

        return await self._write(store_end)

    async def set_output(self, run: JobRun, output: str) -> None:
        def update_row(db: SqlConnection) -> None:
            job = _get_job(db, run.job)
            key = (run.job, run.due)
            db.execute("UPDATE runs SET output = ? WHERE job = ? AND due = ?", (output, *key))
            if job is not None and job.deliver == ("local",):
                sql = "UPDATE runs SET delivery = 'delivered' WHERE job = ? AND due = ?"
                db.execute(f"{sql} AND delivery = 'pending'", key)

        await self._write(update_row)

    async def list_abandoned(self) -> list[JobRun]:
        def select_runs(db: SqlConnection) -> list[JobRun]:
            rows = db.execute(f"{_SELECT} WHERE {_UNWRITTEN} ORDER BY due").fetchall()
            dead = [row for row in rows if not self._process.is_alive(str(row[-1]))]
            return [_decode_run(row) for row in dead]

        return await self._read(select_runs)

    async def list_runs(self, job_id: str | None = None, *, limit: int = 50) -> list[JobRun]:
        where, values = ("", []) if job_id is None else ("WHERE job = ?", [job_id])
        sql = f"{_SELECT} {where} ORDER BY due DESC, job LIMIT ?"

        def select_runs(db: SqlConnection) -> list[JobRun]:
            return [_decode_run(row) for row in db.execute(sql, (*values, limit)).fetchall()]

        return await self._read(select_runs)

    async def list_undelivered(self) -> list[JobRun]:
        sql = f"{_SELECT} WHERE delivery = 'pending' AND NOT {_OPEN} ORDER BY ended, due"

        def select_runs(db: SqlConnection) -> list[JobRun]:
            return [_decode_run(row) for row in db.execute(sql).fetchall()]

        return await self._read(select_runs)

    def _has_living_run(self, db: SqlConnection, job_id: str) -> bool:
        rows = db.execute(f"SELECT owner FROM runs WHERE job = ? AND {_OPEN}", (job_id,)).fetchall()
        return any(self._process.is_alive(str(owner)) for (owner,) in rows)


def _timing(job: ScheduledJob) -> tuple[Column, ...]:
    """What a claim was planned with; the rest may have changed since."""
    return job.schedule, job.zone, job.anchor, job.next, job.paused


def _put_job(db: SqlConnection, job: ScheduledJob) -> None:
    wake = None if job.paused else job.wake
    db.execute(
        "INSERT INTO jobs (id, created, wake, body) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET wake = excluded.wake, body = excluded.body",
        (job.id, job.created, wake, msgspec.json.encode(job)),
    )


def _get_job(db: SqlConnection, job_id: str) -> ScheduledJob | None:
    row = db.execute("SELECT body FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return _decode_job(row[0]) if row else None


def _decode_job(body: bytes) -> ScheduledJob:
    return msgspec.json.decode(body, type=ScheduledJob)


def _decode_run(row: Sequence[Any]) -> JobRun:
    """From the columns of `_SELECT`."""
    return JobRun(*row[:-1])


def _insert_run(db: SqlConnection, run: JobRun, owner: str) -> bool:
    marks = ", ".join("?" * (len(_FIELDS) + 1))
    sql = f"INSERT INTO runs ({_NAMES}, owner) VALUES ({marks}) ON CONFLICT DO NOTHING"
    db.execute(sql, (*_run_columns(run), owner))
    return bool(db.changes())


def _find_open_run(db: SqlConnection, run: JobRun) -> JobRun | None:
    sql = f"{_SELECT} WHERE job = ? AND due = ? AND {_OPEN}"
    row = db.execute(sql, (run.job, run.due)).fetchone()
    return _decode_run(row) if row else None


def _run_columns(run: JobRun) -> tuple[Column, ...]:
    values = structs.astuple(run)
    return tuple(replace_invalid(value) if isinstance(value, str) else value for value in values)
