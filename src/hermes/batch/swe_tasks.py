"""Reads software engineering tasks: an issue, a repository and the commit to begin at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from hermes.batch.checkout import find_repository, has_commit, is_commit_name
from hermes.batch.dataset import BatchItem, Dataset
from hermes.batch.image_files import TESTBED, find_missing_images, is_image_name
from hermes.core.errors import ConfigError

_PROMPT = """\
Solve this issue of the repository in the current folder. Change the code so that it is fixed; \
do not only describe the change. Run what tests there are to check it.

<issue>
{issue}
</issue>"""
_IN_CONTAINER = """

Commands run in a container in which the folder is also {testbed}, with what it needs installed."""


class SweTask(Struct):
    """`patch` and `test_patch` are not even read."""

    instance_id: str
    repo: str
    base_commit: str
    problem_statement: str


class TaskStart(Struct, frozen=True):
    """Where a task's repository comes from: this machine, or a container image."""

    repository: str = ""
    image: str = ""


FindStart: TypeAlias = Callable[[SweTask], TaskStart]
"""Raises ValueError when there is none."""


def read_tasks(
    file: Path, find_start: FindStart, *, limit: int | None = None, skip_bad: bool = False
) -> Dataset:
    """The tasks as items. ConfigError names each line that is no task or has no repository, unless
    `skip_bad` leaves them out."""
    try:
        lines = file.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror}. Nothing was started."
        ) from None
    items: list[BatchItem] = []
    problems: list[str] = []
    seen: dict[str, int] = {}
    decoder = msgspec.json.Decoder(SweTask)
    for number, line in enumerate(lines, 1):
        if limit is not None and len(items) >= limit:
            break
        if not line.strip():
            continue
        try:
            task = decoder.decode(line)
            if not is_commit_name(task.base_commit):
                raise ValueError(f"{task.base_commit!r} is not the name of a commit")
            if task.instance_id in seen:
                other = seen[task.instance_id]
                raise ValueError(f'the id "{task.instance_id}" is that of line {other} too')
            items.append(_build_item(task, find_start(task), len(items)))
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
            problems.append(f"line {number}: {error}")
            continue
        seen[items[-1].id] = number
    if problems and not skip_bad:
        raise ConfigError(f"{file}: {'; '.join(problems[:20])}. Nothing was started.")
    if not items:
        raise ConfigError(f"{file} has no tasks. Nothing was started.")
    return Dataset(tuple(items), len(problems))


def find_local(repos: Path) -> FindStart:
    """Tasks begin in copies of local repositories."""

    def find_start(task: SweTask) -> TaskStart:
        source = find_repository(repos, task.repo)
        if source is None:
            raise ValueError(f"{repos} has no {task.repo.replace('/', '__')}")
        if not has_commit(source, task.base_commit):
            raise ValueError(f"{source.name} has no commit {task.base_commit}")
        return TaskStart(repository=str(source.resolve()))

    return find_start


def find_in_images(pattern: str, env: Mapping[str, str]) -> FindStart:
    """Tasks begin in containers; `{id}` of the pattern is the task's id, in small letters."""

    def find_start(task: SweTask) -> TaskStart:
        image = pattern.replace("{id}", task.instance_id.lower())
        if not is_image_name(image):
            raise ValueError(f"{image!r} is not the name of an image")
        if find_missing_images([image], env):
            raise ValueError(f"the image {image} is missing: docker pull {image}")
        return TaskStart(image=image)

    return find_start


def _build_item(task: SweTask, start: TaskStart, number: int) -> BatchItem:
    prompt = _PROMPT.format(issue=task.problem_statement.strip())
    return BatchItem(
        number,
        task.instance_id,
        prompt + (_IN_CONTAINER.format(testbed=TESTBED) if start.image else ""),
        image=start.image,
        repository=start.repository,
        commit=task.base_commit,
    )
