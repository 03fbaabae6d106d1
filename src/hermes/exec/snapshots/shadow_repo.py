"""A git repository outside the workspace it saves, which runs nothing the workspace configures."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hermes.config.paths import make_private_folder
from hermes.config.private_files import wait_for_lock
from hermes.core.errors import ToolError
from hermes.exec.snapshots.safe_git import run_safe_git

_DEFAULT_SECONDS = 60.0
_COMMAND_SECONDS = {"ls-files": 15.0}
"""Somebody waits for a checkpoint; a folder that takes longer to list is not a workspace."""
_LOCK_SECONDS = 60.0
_ATTRIBUTES = "* -text -crlf -eol -ident -filter -working-tree-encoding !diff !merge\n"
"""Overrides every .gitattributes: files are saved and restored byte for byte, by no program."""


class ShadowError(ToolError):
    """The shadow repository failed; the workspace was not changed."""


class ShadowRepository:
    """The repository of one workspace; all methods need its lock."""

    def __init__(self, workspace: Path, home: Path) -> None:
        self.workspace = workspace
        self.folder = repository_folder(workspace, home)
        self.repository = self.folder / "git"

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold the lock, which one process at a time can; creates a missing repository."""
        make_private_folder(self.folder)
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not wait_for_lock(handle, _LOCK_SECONDS):
                raise ShadowError("Another Hermes is using these checkpoints.")
            self._ensure_repository()
            yield
        finally:
            os.close(handle)

    def _ensure_repository(self) -> None:
        (self.repository / "index.lock").unlink(missing_ok=True)  # left by a killed process
        if not (self.repository / "info" / "attributes").is_file():
            make_private_folder(self.repository)
            self.run_git("init", "--quiet", "--template=", bare=True)
            (self.repository / "info").mkdir(exist_ok=True)
            (self.folder / "workspace").write_bytes(os.fsencode(self.workspace))
            (self.repository / "info" / "attributes").write_text(_ATTRIBUTES)

    def run_git(
        self,
        *words: str,
        data: bytes = b"",
        out: IO[bytes] | None = None,
        accepted: tuple[int, ...] = (0,),
        env: Mapping[str, str] | None = None,
        bare: bool = False,
    ) -> bytes:
        """The output of a git command. Raises ShadowError unless its status is in `accepted`."""
        excludes = self.workspace / ".git" / "info" / "exclude"
        tree = {} if bare else {"GIT_WORK_TREE": str(self.workspace)}
        return run_safe_git(
            *words,
            purpose="checkpoints",
            failure=ShadowError,
            cwd=self.repository if bare else self.workspace,
            env={"GIT_DIR": str(self.repository), **(env or {}), **tree},
            settings=(f"core.excludesFile={excludes}",),
            seconds=_COMMAND_SECONDS.get(words[0], _DEFAULT_SECONDS),
            data=data,
            out=out,
            accepted=accepted,
        )

    def empty_index_environment(self) -> dict[str, str]:
        """For `env`: an empty index, as if nothing had ever been recorded."""
        return {"GIT_INDEX_FILE": str(self.folder / "no-index")}

    def bulk_environment(self) -> dict[str, str]:
        """For `env`: new files go into one pack instead of thousands of small files."""
        number = self.run_git("version", bare=True).split()[2].split(b".")
        if [int(part) for part in number[:2] if part.isdigit()] < [2, 38]:
            return {}  # it would create a pack for each
        name = "core.bigFileThreshold"
        return {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": name, "GIT_CONFIG_VALUE_0": "1"}

    def needs_packing(self) -> bool:
        """Whether there are thousands of loose objects (by git's own measure) or many packs."""
        objects = self.repository / "objects"
        packs = sum(1 for _ in (objects / "pack").glob("*.pack"))
        return packs > 20 or sum(1 for _ in (objects / "17").glob("*")) > 27

    def pack_objects(self) -> None:
        """Remove objects that no checkpoint needs, and pack the rest into one file."""
        self.run_git("repack", "-a", "-d", "-q", bare=True)
        self.run_git("prune", "--expire=now", bare=True)


def repository_folder(workspace: Path, home: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(workspace)).hexdigest()
    return home / "checkpoints" / digest[:24]
