"""Reads software engineering tasks: an issue, a repository and the commit to begin at."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.batch.checkout import find_repository, has_commit
from hermes.batch.dataset import BatchItem, Dataset
from hermes.core.errors import ConfigError

_PROMPT = """\
Solve this issue of the repository in the current folder. Change the code so that it is fixed; \
do not only describe the change. Run what tests there are to check it.

<issue>
{issue}
</issue>"""


class _Task(Struct):
    """`patch` and `test_patch` are not even read."""

    instance_id: str
    repo: str
    base_commit: str
    problem_statement: str


def read_tasks(file: Path, repos: Path, *, limit: int | None = None) -> Dataset:
    """The tasks as items. ConfigError names each line that is no task or has no repository."""
    try:
        lines = file.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror}. Nothing was started."
        ) from None
    items: list[BatchItem] = []
    problems: list[str] = []
    decoder = msgspec.json.Decoder(_Task)
    for number, line in enumerate(lines, 1):
        if limit is not None and len(items) >= limit:
            break
        if not line.strip():
            continue
        try:
            items.append(_build_item(decoder.decode(line), repos, items))
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise ConfigError(f"{file}: {'; '.join(problems[:20])}. Nothing was started.")
    if not items:
        raise ConfigError(f"{file} has no tasks. Nothing was started.")
    return Dataset(tuple(items))


def _build_item(task: _Task, repos: Path, before: list[BatchItem]) -> BatchItem:
    if any(item.id == task.instance_id for item in before):
        raise ValueError(f"the id {task.instance_id} is there twice")
    source = find_repository(repos, task.repo)
    if source is None:
        raise ValueError(f"{repos} has no {task.repo.replace('/', '__')}")
    if not has_commit(source, task.base_commit):
        raise ValueError(f"{source.name} has no commit {task.base_commit}")
    return BatchItem(
        len(before),
        task.instance_id,
        _PROMPT.format(issue=task.problem_statement.strip()),
        repository=str(source.resolve()),
        commit=task.base_commit,
    )
