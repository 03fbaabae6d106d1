"""Installs, updates, removes and verifies skills of others; nothing of them is executed."""

from __future__ import annotations

import difflib
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from hermes.config.paths import make_private_folder
from hermes.config.private_files import hold_lock, replace_file, write_durably
from hermes.core.errors import ConfigError
from hermes.core.untrusted_text import reveal_hidden
from hermes.skills import bundle
from hermes.skills.bundle import BundleKind, BundleRefused, SkillBundle
from hermes.skills.library import find_skill_folder
from hermes.skills.skill import SKILL_FILE, read_name
from hermes.skills.validation import validate_skill

_RECORD = ".installed.json"
_ARCHIVE, _QUARANTINE = ".archive", ".quarantine"
_MAX_DIFF_LINES = 400
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar")
"""How addresses of archives end."""


class InstalledSkill(Struct, frozen=True):
    """What was installed: where it came from, and the digest of each of its files."""

    source: str
    commit: str
    digest: str
    installed: float
    files: dict[str, str]


def _find_name(files: Mapping[str, bytes], folder: str, holder: str) -> str:
    """The name of the folder; without one the name in SKILL.md."""
    return folder or read_name(files[SKILL_FILE].decode("utf-8", "replace")) or holder


SKILL_KIND = BundleKind(
    "skill", SKILL_FILE, validate_skill, _find_name, find_path=find_skill_folder
)


class SkillInstaller:
    """Works in the folder `skills` of a home, or that of another kind. `download` fetches an https
    address."""

    def __init__(
        self, folder: Path, download: Callable[[str], bytes], kind: BundleKind = SKILL_KIND
    ) -> None:
        self.folder = folder
        self.kind = kind
        self._download = download

    def fetch_bundle(self, source: str) -> SkillBundle:
        """The skill at a folder, archive, git address or owner/repo."""
        address, _, path = source.partition("#")
        local = Path(address).expanduser()
        if local.exists():  # `update` may run elsewhere
            source = f"{local.resolve()}#{path}" if path else str(local.resolve())
        if local.is_dir() and not (local / "HEAD").is_file():
            found = bundle.read_folder(local.resolve())
            return bundle.pick_bundle(self.kind, found, path, source, folder=local.resolve().name)
        if local.is_file():
            found = bundle.read_archive(local.read_bytes())
            return bundle.pick_bundle(
                self.kind, found, path, source, holder=_strip_suffix(local.name)
            )
        if address.startswith("https://") and address.lower().endswith(ARCHIVES):
            found = bundle.read_archive(self._download(address))
            holder = _strip_suffix(address.rpartition("/")[2])
            return bundle.pick_bundle(self.kind, found, path, source, holder=holder)
        address, ref, path = _parse_repository(address, path)
        found, commit = bundle.read_repository(address, ref, path)
        holder = address.rstrip("/").rpartition("/")[2].removesuffix(".git")
        picked = bundle.pick_bundle(self.kind, found, path, source, holder=holder)
        return structs.replace(picked, commit=commit)

    def require_same(self, fetched: SkillBundle, name: str) -> None:
        """ConfigError when what a source offers now is called something else than what was
        installed from it: it would take another's place."""
        if fetched.name != name:
            raise ConfigError(
                f"{fetched.source} has a {self.kind.noun} {fetched.name} now, not {name}. Nothing "
                "was changed."
            )

    def quarantine_bundle(self, fetched: SkillBundle) -> Path:
        """Write the files where nothing loads them, and check that they are what they should be."""
        noun = self.kind.noun
        if fetched.name not in self.read_records() and self.kind.is_taken(fetched.name):
            raise ConfigError(f"There is a {noun} {fetched.name} already. Nothing was installed.")
        with self._hold_lock():
            place = self._write_files(fetched)
            if problems := self.kind.validate(place):
                shutil.rmtree(place, ignore_errors=True)
        if problems:
            reasons = "; ".join(reveal_hidden(problem) for problem in problems)
            raise BundleRefused(f"{fetched.name} is not a valid {noun}: {reasons}.")
        return place

    def _write_files(self, fetched: SkillBundle) -> Path:
        place = self.folder / _QUARANTINE / fetched.name
        shutil.rmtree(place, ignore_errors=True)
        for name, data in fetched.files.items():
            make_private_folder((place / name).parent)
            write_durably(place / name, data)
        return place

    def is_quarantined(self, fetched: SkillBundle) -> bool:
        """Whether exactly these files are in quarantine: those that were shown to somebody."""
        place = self.folder / _QUARANTINE / fetched.name
        return place.is_dir() and bundle.read_folder(place) == fetched.files

    def discard_bundle(self, fetched: SkillBundle) -> None:
        with self._hold_lock():
            shutil.rmtree(self.folder / _QUARANTINE / fetched.name, ignore_errors=True)

    def place_bundle(self, fetched: SkillBundle) -> str:
        """Move the skill out of quarantine; the line that says so."""
        target = self.folder / fetched.name
        record = InstalledSkill(
            fetched.source,
            fetched.commit,
            fetched.digest,
            round(time.time(), 3),
            {name: bundle.hash_files({name: data}) for name, data in fetched.files.items()},
        )
        with self._hold_lock():
            place = self._write_files(fetched)  # others may have changed what lies there
            # Recorded first: what a kill leaves behind then counts as changed, not as the user's.
            self._change_records(lambda known: known.update({fetched.name: record}))
            if target.exists():
                self._archive_folder(target)
            place.rename(target)
        origin = f"{fetched.source}@{fetched.commit}" if fetched.commit else fetched.source
        return f"installed {fetched.name} sha256:{fetched.digest} from {origin}"

    def read_records(self) -> dict[str, InstalledSkill]:
        """What is installed now, by name."""
        return {name: row for name, row in self._read_all().items() if "@" not in name}

    def _read_all(self) -> dict[str, InstalledSkill]:
        """The records of removed ones too, which have the names of their archived folders."""
        try:
            data = (self.folder / _RECORD).read_bytes()
            return msgspec.json.decode(data, type=dict[str, InstalledSkill])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError):
            raise ConfigError(
                f"{self.folder / _RECORD} cannot be read; repair or remove it."
            ) from None

    def find_changes(self, name: str) -> list[str]:
        """The files of an installed skill that are not as they were installed."""
        record = self.read_records()[name]
        try:
            now = bundle.read_folder(self.folder / name)
        except (OSError, ConfigError):
            return [f"it cannot be read as a {self.kind.noun}"]
        digests = {path: bundle.hash_files({path: data}) for path, data in now.items()}
        return sorted({path for path, _ in set(digests.items()) ^ set(record.files.items())})

    def diff_bundle(self, fetched: SkillBundle) -> str:
        """How the installed files would change."""
        folder = self.folder / fetched.name
        old = bundle.read_folder(folder) if folder.is_dir() else {}
        lines: list[str] = []
        for path in sorted({*old, *fetched.files}):
            before, after = old.get(path, b""), fetched.files.get(path, b"")
            if before != after:
                lines += diff_texts(
                    path, before.decode("utf-8", "replace"), after.decode("utf-8", "replace")
                )
        more = len(lines) - _MAX_DIFF_LINES
        return "\n".join(
            [*lines[:_MAX_DIFF_LINES], *([f"… {more} more lines"] if more > 0 else [])]
        )

    def remove_skill(self, name: str) -> Path:
        """Move a skill of this folder to the archive."""
        found = self.find_path(name)
        if found is None:
            what = f"{self.kind.noun} {name}"
            raise ConfigError(f"There is no {what} in {self.folder}; nothing was removed.")
        with self._hold_lock():
            place = self._archive_folder(found)
            self._rename_record(name, place.name)
        return place

    def restore_skill(self, name: str) -> None:
        """Bring back the latest copy of a removed skill."""
        archive = self.folder / _ARCHIVE
        found = archive.iterdir() if archive.is_dir() else ()
        copies = sorted(copy for copy in found if copy.name.rpartition("@")[0] == name)
        if not copies:
            raise ConfigError(f"There is no removed skill {name}; nothing was changed.")
        if (self.folder / name).exists():
            raise ConfigError(f"{name} is there already; remove it first.")
        with self._hold_lock():
            copies[-1].rename(self.folder / name)
            self._rename_record(copies[-1].name, name)

    def _rename_record(self, old: str, new: str) -> None:
        def rename(known: dict[str, InstalledSkill]) -> None:
            if record := known.pop(old, None):
                known[new] = record

        self._change_records(rename)

    def find_path(self, name: str) -> Path | None:
        """Where the one of this name is, also in a category; None: nowhere."""
        is_name = bool(name) and name[0] != "." and "/" not in name
        return self.kind.find_path(self.folder, name) if is_name else None

    def _archive_folder(self, folder: Path) -> Path:
        archive = self.folder / _ARCHIVE
        make_private_folder(archive)
        now = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 10**6:06d}"
        return folder.rename(archive / f"{folder.name}@{now}")

    def _change_records(self, change: Callable[[dict[str, InstalledSkill]], object]) -> None:
        known = self._read_all()
        change(known)
        replace_file(self.folder / _RECORD, msgspec.json.format(msgspec.json.encode(known)))

    def _hold_lock(self) -> AbstractContextManager[None]:
        """One process at a time changes what is in the folder."""
        make_private_folder(self.folder)
        return hold_lock(self.folder / f"{_RECORD}.lock", f"the installed {self.kind.noun}s")


def refuse_download(address: str) -> bytes:
    """For installers that fetch nothing."""
    raise ConfigError(f"{address} cannot be fetched from here.")


def diff_texts(path: str, before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", lineterm=""
    )
    return [reveal_hidden(line) for line in lines]


def _strip_suffix(name: str) -> str:
    suffix = next((end for end in ARCHIVES if name.lower().endswith(end)), "")
    return name[: len(name) - len(suffix)]


def _parse_repository(address: str, path: str) -> tuple[str, str, str]:
    """A git address, the reference wanted, and the folder in it."""
    ref = ""
    head, at, tail = address.rpartition("@")
    if at and "/" not in tail and head and not head.endswith("//git"):
        address, ref = head, tail
    if "://" in address:
        if not address.startswith(("https://", "file://", "ssh://")):
            raise ConfigError(f"{address} is not an address to install from.")
        return address, ref, path
    parts = address.split("/")
    if len(parts) < 2 or not all(parts) or address.startswith((".", "-", "~")):
        raise ConfigError(
            f"{address} is neither a folder, an archive, a git address nor owner/repo."
        )
    inner = "/".join(parts[2:])
    return f"https://github.com/{parts[0]}/{parts[1]}", ref, path or inner
