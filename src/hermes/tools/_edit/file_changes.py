"""Edits to several files, computed first and then written all or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolResult, Workspace
from hermes.tools._edit.atomic_write import Draft, no_marks, no_surprise
from hermes.tools._edit.diff import bounded, diff
from hermes.tools._edit.replace import Edited, replace
from hermes.tools._edit.syntax import problem
from hermes.tools._edit.text_file import Encoding, decode, read_bytes
from hermes.tools._edit.v4a import Change, update
from hermes.tools._files.paths import check, describe_missing, find_written, resolve

MAX_FILES = 200


class _File(Struct):
    """One file, as it was and as it will be; None where it does not exist."""

    path: Path
    before: bytes | None
    found: os.stat_result | None
    after: bytes | None
    source: Path | None = None
    """Where it was moved from."""
    notes: list[str] = []


class FileChanges:
    """What the files will be. Nothing is written before `commit`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._files: dict[Path, _File] = {}

    def replace(self, raw: str, change: tuple[str, str], *, every: bool) -> None:
        file = self._existing(raw)
        text, encoding = decode(file.after or b"", file.path)
        try:
            edited = replace(text, change[0], change[1], every=every)
        except ToolError as error:
            raise ToolError(f"{file.path}: {error}") from None
        if edited.count > 1:
            file.notes.append(f"{edited.count} places")
        self._edit(file, edited, encoding)

    def change(self, change: Change) -> None:
        if change.kind == "Add":
            self._add(change)
            return
        file = self._existing(change.path)
        if change.kind == "Delete" or change.to:
            self._no_link(change.path, file.path)
        if change.hunks:
            text, encoding = decode(file.after or b"", file.path)
            try:
                edited = update(text, change)
            except ToolError as error:
                raise ToolError(f"{file.path}: {error}") from None
            self._edit(file, edited, encoding)
        if change.kind == "Delete":
            file.after = None
        elif change.to:
            self._move(file, change.to)

    def _edit(self, file: _File, edited: Edited, encoding: Encoding) -> None:
        if edited.how:
            file.notes.append(f"matched {edited.how}: check the diff")
        file.after = encoding.encode(edited.text, file.path)

    def _add(self, change: Change) -> None:
        file = self._file(change.path)
        if file.after is not None:
            raise ToolError(
                f"{file.path} exists already; use *** Update File. Nothing was changed."
            )
        file.after = Encoding().encode(change.content(), file.path)

    def _move(self, file: _File, raw: str) -> None:
        target = self._file(raw)
        if target.path == file.path:
            return
        if target.after is not None:
            raise ToolError(f"{target.path} exists already; nothing was changed.")
        target.after, file.after = file.after, None
        target.source = file.path
        target.notes += file.notes

    def _existing(self, raw: str) -> _File:
        file = self._file(raw)
        if file.after is None:
            raise ToolError(f"{describe_missing(file.path)} Nothing was changed.")
        return file

    def _file(self, raw: str) -> _File:
        path = resolve(raw, self._workspace.cwd)
        if path not in self._files:
            no_surprise(raw, path, self._workspace.cwd)
            check(path, self._workspace, write=True)
            try:
                before, found = read_bytes(path, self._workspace)
                self._files[path] = _File(path, before, found, before)
            except FileNotFoundError:
                self._files[path] = _File(path, None, None, None)
            except OSError as error:
                raise ToolError(_cannot("read", path, error)) from None
            if len(self._files) > MAX_FILES:
                raise ToolError(f"More than {MAX_FILES} files in one patch; nothing was changed.")
        return self._files[path]

    def _no_link(self, raw: str, path: Path) -> None:
        if find_written(raw, self._workspace.cwd).is_symlink():
            raise ToolError(f"{raw} is a link to {path}; nothing was changed.")

    # -- writing ---------------------------------------------------------------------------

    def _original(self, file: _File) -> Callable[[], bytes | None]:
        return lambda: (self._files[file.source] if file.source else file).before

    def commit(self) -> None:
        """Write all drafts, then put them in place. If that fails midway, put the rest back."""
        changed = self._changed()
        for file in changed:
            no_marks(file.path, file.after or b"", self._original(file))
        drafts: list[Draft] = []
        done: list[tuple[_File, Draft]] = []
        try:
            for file in changed:
                source = self._files[file.source].found if file.source else None
                drafts.append(Draft(file.path, file.after, self._workspace, source))
                _unchanged(file, drafts[-1].old)
            for file, draft in zip(changed, drafts, strict=True):
                draft.commit()
                done.append((file, draft))
        except (OSError, ToolError) as error:
            for draft in drafts[len(done) :]:
                draft.discard()
            self._put_back(done, error)
            if isinstance(error, ToolError):
                raise
            failed = changed[len(done) if len(drafts) == len(changed) else len(drafts)]
            raise ToolError(_cannot("write", failed.path, error)) from None

    def _changed(self) -> list[_File]:
        """Removals last: a file that moves is never nowhere."""
        changed = [file for file in self._files.values() if file.after != file.before]
        if not changed:
            raise ToolError("That leaves every file as it is; nothing was changed.")
        return sorted(changed, key=lambda file: file.after is None)

    def _put_back(self, done: list[tuple[_File, Draft]], cause: Exception) -> None:
        left: list[str] = []
        for file, draft in reversed(done):
            try:
                Draft(file.path, file.before, self._workspace, file.found).commit()
                draft.leave_no_folder()
            except (OSError, ToolError):
                left.append(str(file.path))
        if left:
            raise ToolError(
                f"The patch failed ({cause}) and these files stay changed: {', '.join(left)}."
            )

    # -- telling ---------------------------------------------------------------------------

    def report(self, cwd: str) -> ToolResult:
        heads: list[str] = []
        diffs: list[str] = []
        data: list[dict[str, object]] = []
        for file in self._files.values():
            if file.after == file.before or (file.after is None and self._moved(file)):
                continue
            source = self._files[file.source] if file.source else file
            name, was = _name(file.path, cwd), _name(source.path, cwd)
            names = (
                "/dev/null" if source.before is None else was,
                "/dev/null" if file.after is None else name,
            )
            made = diff(_text(source.before), _text(file.after), names)
            notes = [f"+{made.added} -{made.removed}", *file.notes]
            heads.append(f"{_verb(file)} {name} ({', '.join(notes)})")
            if warning := _warning(file, source.before, self._workspace.child_env.get("PATH", "")):
                heads.append(f"[warning: {warning}]")
            diffs += made.text.split("\n")
            data.append({"path": str(file.path), "added": made.added, "removed": made.removed})
        shown = "\n".join(bounded(diffs))
        return ToolResult("\n".join([*heads, shown]), display=shown, data={"files": data})

    def _moved(self, file: _File) -> bool:
        return any(other.source == file.path for other in self._files.values())


def _cannot(verb: str, path: Path, error: OSError) -> str:
    return f"Cannot {verb} {path}: {error.strerror}. Nothing was changed."


def _unchanged(file: _File, now: os.stat_result | None) -> None:
    """Somebody else may have written the file while we computed."""
    was = file.found
    same = was is now or (
        was is not None
        and now is not None
        and (was.st_ino, was.st_size, was.st_mtime_ns) == (now.st_ino, now.st_size, now.st_mtime_ns)
    )
    if not same:
        raise ToolError(f"{file.path} was changed by somebody else meanwhile; read it again.")


def _verb(file: _File) -> str:
    if file.source:
        return f"Moved {file.source.name} to"
    if file.after is None:
        return "Deleted"
    return "Created" if file.before is None else "Patched"


def _warning(file: _File, before: bytes | None, programs: str) -> str:
    if file.after is None:
        return ""
    now = problem(file.path, file.after, programs)
    if now and before is not None and problem(file.path, before, programs):
        return f"{now}; it was wrong before this edit too"
    return now


def _name(path: Path, cwd: str) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def _text(data: bytes | None) -> str:
    """For a diff; what is no text is not shown."""
    with contextlib.suppress(ToolError):
        return decode(data or b"", Path())[0]
    return "[binary data]\n"
