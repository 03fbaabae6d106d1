"""Reads the jobs.json of the original Hermes."""

from pathlib import Path
from typing import Any

import msgspec

from hermes.core.errors import ConfigError
from hermes.cron.job_editor import JobWishes


def read_jobs_file(file: Path) -> list[tuple[JobWishes, bool]]:
    """The jobs of a file, and whether each is paused; ConfigError when it is no such file."""
    try:
        data = msgspec.json.decode(file.read_bytes())
        rows = data["jobs"] if isinstance(data, dict) else data
        return [(_read_job(row), row.get("enabled", True) is False) for row in rows]
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(f"{file} is not a jobs.json. Nothing was imported.") from None


def _read_job(row: dict[str, Any]) -> JobWishes:
    repeat = row.get("repeat") or {}
    times = repeat.get("times")
    return JobWishes(
        schedule=_read_schedule(row["schedule"]),
        prompt=str(row.get("prompt") or ""),
        name=row.get("name") or None,
        deliver=_read_target(str(row.get("deliver") or "local"), row.get("origin") or {}),
        skills=_read_skills(row),
        model=row.get("model") or None,
        workdir=row.get("workdir") or None,
        script=row.get("script") or None,
        no_agent=bool(row.get("no_agent")),
        repeat=max(1, int(times) - int(repeat.get("completed") or 0)) if times else None,
    )


def _read_skills(row: dict[str, Any]) -> tuple[str, ...]:
    named = row.get("skills") or row.get("skill") or ()
    return (named,) if isinstance(named, str) else tuple(map(str, named))


def _read_schedule(schedule: Any) -> str:
    if isinstance(schedule, str):
        return schedule
    match schedule["kind"]:
        case "interval":
            minutes = schedule.get("minutes") or int(schedule["interval_seconds"]) // 60
            return f"every {minutes}m"
        case "once":
            return str(schedule["run_at"])
    return str(schedule["expr"])


def _read_target(deliver: str, origin: dict[str, Any]) -> str:
    if deliver == "origin":
        parts = [origin.get(name) for name in ("platform", "chat_id", "thread_id")]
        return ":".join(str(part) for part in parts if part) or "local"
    return deliver if deliver == "local" or ":" in deliver else "home"
