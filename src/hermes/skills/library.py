"""Finds skills in their folders; what SKILL.md files say is cached by their times."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.paths import SKILL_FOLDERS, skills_folder
from hermes.config.private_files import replace_file
from hermes.skills.skill import SKILL_FILE, Skill, SkillSource, read_skill

MAX_SKILLS = 2000
_MAX_DEPTH = 3
BUILTIN_FOLDER = Path(__file__).parent / "builtin"
_VERSION = 1


class SkillRoot(Struct, frozen=True):
    """A folder with skills. Links in a project are not followed out of `boundary`."""

    path: str
    source: SkillSource
    boundary: str = ""


class _CachedRoot(Struct, omit_defaults=True):
    folders: dict[str, int] = {}
    """Folders that hold skills or further folders, and when they were changed."""
    skills: list[Skill] = []


class _Cache(Struct, omit_defaults=True):
    version: int = _VERSION
    roots: dict[str, _CachedRoot] = {}


class SkillLibrary:
    """The skills of some roots; the first of a name wins. `added`: single skills of plugins."""

    def __init__(
        self, roots: Sequence[SkillRoot], cache_file: Path, added: Sequence[Skill] = ()
    ) -> None:
        self._roots = roots
        self._added = added
        self._cache_file = cache_file

    def list_skills(self) -> list[Skill]:
        """Every skill once, those that are left out included."""
        cache = self._read_cache()
        found: dict[str, Skill] = {}
        changed = False
        found.update({skill.name: skill for skill in self._added})
        for root in self._roots:
            cached = cache.roots.get(root.path)
            if cached is None or not _is_current(root.path, cached):
                cached = cache.roots[root.path] = _scan_root(root, cached)
                changed = True
            for skill in cached.skills if not root.boundary else _take_inside(cached.skills, root):
                found.setdefault(skill.name, skill)
        if changed:
            with suppress(OSError):
                self._cache_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(self._cache_file, msgspec.msgpack.encode(cache))
        return list(found.values())[:MAX_SKILLS]

    def _read_cache(self) -> _Cache:
        try:
            cache = msgspec.msgpack.decode(self._cache_file.read_bytes(), type=_Cache)
        except (OSError, msgspec.DecodeError):
            return _Cache()
        return cache if cache.version == _VERSION else _Cache()


def _stat_path(path: str) -> os.stat_result:
    return os.stat(path)  # noqa: PTH116 - thousands of them: pathlib would cost more than the call


def _is_current(root: str, cached: _CachedRoot) -> bool:
    times = list(cached.folders.items())
    times += [(f"{skill.folder}/{SKILL_FILE}", skill.changed) for skill in cached.skills]
    start = len(root) + 1  # relative names are found faster
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        for path, time in times:
            if os.stat(path[start:] or ".", dir_fd=folder).st_mtime_ns != time:
                return False
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def _scan_root(root: SkillRoot, old: _CachedRoot | None) -> _CachedRoot:
    """Read the root again; what is unchanged since is taken from before."""
    known = {skill.folder: skill for skill in old.skills} if old else {}
    fresh = _CachedRoot({}, [])
    for folder, status in _walk_folders(root.path, fresh.folders, 0):
        skill = known.get(folder)
        if skill is None or (skill.changed, skill.size) != (status.st_mtime_ns, status.st_size):
            skill = read_skill(folder, root.source, status.st_mtime_ns, status.st_size)
        fresh.skills.append(skill)
        if len(fresh.skills) >= MAX_SKILLS:
            break
    return fresh


def _walk_folders(
    path: str, folders: dict[str, int], depth: int
) -> Iterator[tuple[str, os.stat_result]]:
    """Folders with a SKILL.md, by name, up to three levels down."""
    with suppress(OSError):
        folders[path] = _stat_path(path).st_mtime_ns
        with os.scandir(path) as entries:
            names = sorted(e.name for e in entries if e.name[0] != "." and e.is_dir())
        for name in names:
            folder = f"{path}/{name}"
            try:
                status = _stat_path(f"{folder}/{SKILL_FILE}")
            except OSError:
                if depth + 1 < _MAX_DEPTH:
                    yield from _walk_folders(folder, folders, depth + 1)
                else:
                    folders[folder] = _stat_path(folder).st_mtime_ns  # it may become a skill
                continue
            yield folder, status


def find_skill_folder(root: Path, name: str) -> Path | None:
    """The folder of the skill that has this name below a root."""
    found = (folder for folder, _ in _walk_folders(str(root), {}, 0))
    return next((Path(folder) for folder in found if folder.rpartition("/")[2] == name), None)


def _take_inside(skills: Iterable[Skill], root: SkillRoot) -> Iterator[Skill]:
    """The skills that no link takes out of the root's boundary."""
    for skill in skills:
        real = os.path.realpath(f"{skill.folder}/{SKILL_FILE}")
        if Path(real).is_relative_to(root.boundary):
            yield skill


def find_roots(
    home: Path, user_home: Path, external: Iterable[str], project: Sequence[Path] = ()
) -> list[SkillRoot]:
    """The roots that exist, in the order in which they are searched, without the built-in one.
    `project`: the trusted folders of a project, the nearest first."""
    roots = [
        SkillRoot(f"{folder}/{name}", "project", os.path.realpath(project[-1]))
        for folder in project
        for name in SKILL_FOLDERS
    ]
    roots += [SkillRoot(str(skills_folder(home)), "home")]
    roots += [SkillRoot(str(user_home / ".agents" / "skills"), "user")]
    roots += [SkillRoot(str(Path(name).expanduser()), "external") for name in external]
    return [root for root in roots if os.path.isdir(root.path)]  # noqa: PTH112


BUILTIN_ROOT = SkillRoot(str(BUILTIN_FOLDER), "builtin")
