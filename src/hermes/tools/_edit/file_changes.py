"""Edits several files: computes all changes first, then writes all of them or none."""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolResult, Workspace
from hermes.tools._edit.atomic_write import Draft, reject_link_outside, reject_redaction_marks
from hermes.tools._edit.diff import MAX_LINES, Diff, limit_rows, make_diff
from hermes.tools._edit.replace import EditResult, replace_text
from hermes.tools._edit.syntax import find_syntax_error
from hermes.tools._edit.text_file import Encoding, decode_text, read_bytes
from hermes.tools._edit.v4a import Change, apply_hunks
from hermes.tools._files.boundary import find_influences
from hermes.tools._files.paths import (
    check_access,
    describe_missing,
    display_path,
    find_real_path,
    interpret_path,
    resolve_path,
)

MAX_FILES = 200


class _FileState(Struct):
    """One file before and after; None where it does not exist."""

    path: Path
    before: bytes | None
    stat: os.stat_result | None
    after: bytes | None
    source: Path | None = None
    """The path it is moved from."""
    notes: list[str] = []


class FileChanges:
    """The pending changes of a patch; nothing is written before `commit`. A path is resolved once:
    what the user is asked about is what is changed."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._paths: dict[str, Path] = {}
        self._files: dict[Path, _FileState] = {}
        self.influences: dict[Path, str] = {}
        """The changed files that programs outside obey, and how."""
        self.unsaved: Mapping[Path, str] = {}
        """Files as the user's editor has them; edits begin with that."""

    def resolve_path(self, raw: str) -> Path:
        """The real path. Raises ToolError when one inside the working folder leads out of it."""
        if raw not in self._paths:
            self._paths[raw] = resolve_path(raw, self._workspace.cwd)
            reject_link_outside(raw, self._paths[raw], self._workspace.cwd)
        return self._paths[raw]

    def find_influences(self) -> None:
        """Fill `influences`, when all changes are computed."""
        changed = (file.path for file in self._files.values() if file.after != file.before)
        self.influences = find_influences(changed, self._workspace)

    def replace_text(self, raw: str, change: tuple[str, str], *, every: bool) -> None:
        file = self._require_file(raw)
        self._edit_text(file, lambda text: replace_text(text, *change, every=every))

    def replace_file(self, path: Path, data: bytes) -> None:
        """Replace the content of a file, given by its real path."""
        self._paths[str(path)] = path
        self._load_file(str(path)).after = data

    def apply_change(self, change: Change) -> None:
        if change.kind == "Add":
            self._add_file(change)
            return
        file = self._require_file(change.path)
        leaves = change.kind == "Delete" or change.new_path
        if leaves and interpret_path(change.path, self._workspace.cwd).is_symlink():
            raise ToolError(f"{change.path} is a link to {file.path}; nothing was changed.")
        if change.hunks:
            self._edit_text(file, lambda text: apply_hunks(text, change))
        if change.kind == "Delete":
            file.after = None
        elif change.new_path:
            self._move_file(file, change.new_path)

    def _edit_text(self, file: _FileState, edit: Callable[[str], EditResult]) -> None:
        text, encoding = decode_text(file.after or b"", file.path)
        try:
            edited = edit(text)
        except ToolError as error:
            raise ToolError(f"{file.path}: {error}") from None
        if edited.count > 1:
            file.notes.append(f"{edited.count} places")
        if edited.match_note:
            file.notes.append(f"matched {edited.match_note}: check the diff")
        file.after = encoding.encode(edited.text, file.path)

    def _add_file(self, change: Change) -> None:
        file = self._load_file(change.path)
        if file.after is not None:
            raise ToolError(
                f"{file.path} exists already; use *** Update File. Nothing was changed."
            )
        file.after = Encoding().encode(change.build_content(), file.path)

    def _move_file(self, file: _FileState, raw: str) -> None:
        target = self._load_file(raw)
        if target.path == file.path:
            return
        if target.after is not None:
            raise ToolError(f"{target.path} exists already; nothing was changed.")
        target.after, file.after = file.after, None
        target.source = file.path
        target.notes += file.notes

    def _require_file(self, raw: str) -> _FileState:
        file = self._load_file(raw)
        if file.after is None:
            raise ToolError(f"{describe_missing(file.path)} Nothing was changed.")
        return file

    def _load_file(self, raw: str) -> _FileState:
        path = self.resolve_path(raw)
        if path not in self._files:
            check_access(path, self._workspace, write=True)
            try:
                before, found = read_bytes(path, self._workspace)
                self._files[path] = _FileState(
                    path, before, found, self._take_unsaved(path, before)
                )
            except FileNotFoundError:
                self._files[path] = _FileState(path, None, None, None)
            except OSError as error:
                raise ToolError(_describe_failure("read", path, error)) from None
            if len(self._files) > MAX_FILES:
                raise ToolError(f"More than {MAX_FILES} files in one patch; nothing was changed.")
        return self._files[path]

    def _take_unsaved(self, path: Path, data: bytes) -> bytes:
        """The content that an edit begins with: the editor's, if it differs from the file's."""
        if path not in self.unsaved:
            return data
        text, encoding = decode_text(data, path)
        shown = self.unsaved[path]
        return data if shown == text else encoding.encode(shown, path)

    def list_written(self) -> list[tuple[Path, str]]:
        """The text files that were changed or made, with their content."""
        written = []
        for file in self._files.values():
            if file.after is not None and file.after != file.before:
                with contextlib.suppress(ToolError):
                    written.append((file.path, decode_text(file.after, file.path)[0]))
        return written

    def _get_source(self, file: _FileState) -> _FileState:
        return self._files[file.source] if file.source else file

    def commit(self) -> None:
        """Write all drafts, then put them in place. A failure midway restores what was replaced."""
        changed = self._list_changed()
        for file in changed:
            reject_redaction_marks(file.path, file.after or b"", self._get_source(file).before)
        drafts: list[Draft] = []
        done: list[tuple[_FileState, Draft]] = []
        try:
            for file in changed:
                source = self._get_source(file).stat
                drafts.append(self._create_draft(file.path, file.after, source))
                _require_unchanged(file, drafts[-1].existing)
            for file, draft in zip(changed, drafts, strict=True):
                draft.commit()
                done.append((file, draft))
        except (OSError, ToolError) as error:
            for draft in drafts[len(done) :]:
                draft.discard()
            self._restore_files(done, error)
            if isinstance(error, ToolError):
                raise
            failed = changed[len(done) if len(drafts) == len(changed) else len(drafts)]
            raise ToolError(_describe_failure("write", failed.path, error)) from None

    def _create_draft(self, path: Path, data: bytes | None, like: os.stat_result | None) -> Draft:
        return Draft(path, data, self._workspace, like, in_place=path in self.influences)

    def _list_changed(self) -> list[_FileState]:
        """The changed files, deletions last: a moved file exists at every moment."""
        changed = [file for file in self._files.values() if file.after != file.before]
        if not changed:
            raise ToolError("The edit leaves every file as it is; nothing was changed.")
        return sorted(changed, key=lambda file: file.after is None)

    def _restore_files(self, done: list[tuple[_FileState, Draft]], cause: Exception) -> None:
        left: list[str] = []
        for file, draft in reversed(done):
            try:
                self._create_draft(file.path, file.before, file.stat).commit()
                draft.remove_empty_folders()
            except (OSError, ToolError):
                left.append(str(file.path))
        if left:
            raise ToolError(
                f"The patch failed ({cause}), and these files could not be restored: "
                f"{', '.join(left)}."
            )

    def show_whole_diff(self) -> str:
        """The diffs of all files. Raises ToolError when they are too long for a person to see."""
        diffs = [self._diff_file(file) for file in self._list_shown()]
        text = "\n".join(diff.text for diff in diffs)
        if not all(diff.is_whole for diff in diffs) or text.count("\n") >= MAX_LINES:
            raise ToolError(
                "The user must see this change, and it is too long to be shown: nothing was "
                f"changed. Make it in steps of fewer than {MAX_LINES} lines of 1,000 characters."
            )
        return text

    def show_diff(self) -> str:
        """The diffs of all files; the end of a long one is left out, and said so."""
        diffs = [self._diff_file(file).text for file in self._list_shown()]
        return "\n".join(limit_rows("\n".join(diffs).split("\n"))) if diffs else ""

    def _list_shown(self) -> list[_FileState]:
        """The changed files, without those that are only moved away."""
        moved = {file.source for file in self._files.values()}
        changed = (file for file in self._files.values() if file.after != file.before)
        return [file for file in changed if file.after is not None or file.path not in moved]

    def _diff_file(self, file: _FileState) -> Diff:
        cwd = find_real_path(self._workspace.cwd)
        source = self._get_source(file)
        names = (
            "/dev/null" if source.before is None else display_path(source.path, cwd),
            "/dev/null" if file.after is None else display_path(file.path, cwd),
        )
        return diff_contents(source.before, file.after, names)

    def build_result(self) -> ToolResult:
        """A line for each changed file, and the diffs."""
        cwd = find_real_path(self._workspace.cwd)
        heads: list[str] = []
        diffs: list[str] = []
        data: list[dict[str, object]] = []
        for file in self._list_shown():
            source = self._get_source(file)
            name = display_path(file.path, cwd)
            diff = self._diff_file(file)
            notes = [f"+{diff.added} -{diff.removed}", *file.notes]
            heads.append(f"{_describe_action(file)} {name} ({', '.join(notes)})")
            if warning := _find_warning(file, source.before, self._workspace):
                heads.append(f"[warning: {warning}]")
            diffs += diff.text.split("\n")
            data.append({"path": str(file.path), "added": diff.added, "removed": diff.removed})
        shown = "\n".join(limit_rows(diffs))
        return ToolResult("\n".join([*heads, shown]), display=shown, data={"files": data})


def _describe_failure(verb: str, path: Path, error: OSError) -> str:
    return f"Cannot {verb} {path}: {error.strerror}. Nothing was changed."


def _require_unchanged(file: _FileState, status: os.stat_result | None) -> None:
    """Raise ToolError when someone else has written the file since it was read."""
    was, now = (s and (s.st_ino, s.st_size, s.st_mtime_ns) for s in (file.stat, status))
    if was != now:
        raise ToolError(
            f"{file.path} was changed by somebody else meanwhile; this edit changed nothing. "
            "Read the file again."
        )


def _describe_action(file: _FileState) -> str:
    if file.source:
        return f"Moved {file.source.name} to"
    if file.after is None:
        return "Deleted"
    return "Created" if file.before is None else "Patched"


def _find_warning(file: _FileState, before: bytes | None, workspace: Workspace) -> str:
    if file.after is None:
        return ""
    now = find_syntax_error(file.path, file.after, workspace)
    if now and before is not None and find_syntax_error(file.path, before, workspace):
        return f"{now}; it was wrong before this edit too"
    return now


def diff_contents(before: bytes | None, after: bytes | None, names: tuple[str, str]) -> Diff:
    return make_diff(_decode_for_diff(before), _decode_for_diff(after), names)


def _decode_for_diff(data: bytes | None) -> str:
    """The text for a diff; binary data is not shown."""
    with contextlib.suppress(ToolError):
        return decode_text(data or b"", Path())[0]
    return "[binary data]\n"
