"""Where state is stored: HERMES_HOME, its profiles and its files, private to their owner."""

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes.core.errors import ConfigError

_PROFILE_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")

DEFAULT_PROFILE = "default"
ACTIVE_PROFILE_FILE = "active_profile"
"""A file of the default home that names a profile; called as in the original."""


def _config_error(sentence: str) -> "ConfigError":
    """Imported only when needed: finding the home must cost next to nothing."""
    from hermes.core.errors import ConfigError

    return ConfigError(sentence)


CONTEXT_FILES = ("AGENTS.md", "CLAUDE.md", ".cursorrules", ".hermes.md")
"""Instructions of a project for agents, in the order in which they are read."""


SKILL_FOLDERS = (".agents/skills", ".hermes/skills", ".claude/skills")
"""Skills of a project, in the order in which they are searched."""


SERVER_FILE = ".mcp.json"
"""The MCP servers of a project."""


def skills_folder(home: Path) -> Path:
    return home / "skills"


def plugins_folder(home: Path) -> Path:
    return home / "plugins"


def config_file(home: Path) -> Path:
    return home / "config.yaml"


def env_file(home: Path) -> Path:
    return home / ".env"


def database_file(home: Path) -> Path:
    """Not state.db: that is the original's, whose users keep their home."""
    return home / "hermes.db"


def log_file(home: Path) -> Path:
    return home / "logs" / "hermes.log"


def gateway_state_file(home: Path) -> Path:
    return home / "gateway_state.json"


def cache_folder(home: Path) -> Path:
    return home / "cache"


def memories_folder(home: Path) -> Path:
    """What the agent remembers, as in the original."""
    return home / "memories"


def logins_folder(home: Path) -> Path:
    """Tokens of OAuth logins, one file per provider."""
    return home / "logins"


def models_folders(variable: Callable[[str], str | None]) -> tuple[Path, ...]:
    """Where to look for model files, shared by all profiles; new ones go into the first."""
    names = ("HERMES_HOME", "HOME", "XDG_CACHE_HOME")
    environ = {name: value for name in names if (value := variable(name))}
    found = [find_home(environ, DEFAULT_PROFILE) / "models"]
    if cache := environ.get("XDG_CACHE_HOME") or environ.get("HOME"):
        inner = "" if environ.get("XDG_CACHE_HOME") else ".cache"
        found.append(Path(cache, inner, "hermes", "models"))
    return tuple(found)


def find_home(environ: Mapping[str, str], profile: str = "") -> Path:
    """The folder of a profile, without creating it. "default" is the one in HERMES_HOME itself; an
    empty name means the active profile (`hermes profile use`)."""
    root = environ.get("HERMES_HOME") or "~/.hermes"
    if root.startswith("~"):
        root = _expand_user(root, environ)
    if "\0" in root:
        raise _config_error("HERMES_HOME contains a NUL character.")
    home = Path(os.path.abspath(root))  # noqa: PTH100 - symlinks stay as the user named them
    if not profile:
        profile = read_active_profile(home)
    if profile == DEFAULT_PROFILE:
        return home
    return home / "profiles" / check_profile_name(profile)


def read_active_profile(root: Path) -> str:
    """The profile that is used when none is named."""
    try:
        name = (root / ACTIVE_PROFILE_FILE).read_text("utf-8").strip()
    except (OSError, ValueError):
        return DEFAULT_PROFILE
    if name in ("", DEFAULT_PROFILE):
        return DEFAULT_PROFILE
    if not (root / "profiles" / check_profile_name(name)).is_dir():
        raise _config_error(
            f"The active profile {name} does not exist any more. Run: hermes profile use default."
        )
    return name


def _expand_user(root: str, environ: Mapping[str, str]) -> str:
    user_home = environ.get("HOME")
    if user_home and (root == "~" or root.startswith("~/")):
        return user_home + root[1:]
    try:
        return str(Path(root).expanduser())
    except RuntimeError:
        text = f"Cannot find {root} because HOME is not set; set HERMES_HOME."
        raise _config_error(text) from None


def check_profile_name(name: str) -> str:
    """Returns the name if it is a plain folder name on every file system, or raises ConfigError."""
    if 0 < len(name) <= 64 and name[0] not in "-_" and _PROFILE_CHARS.issuperset(name):
        return name
    raise _config_error(
        f"Profile name {name[:64]!r} is not valid: use up to 64 letters, digits, - and _, "
        "starting with a letter or digit."
    )


def make_home(home: Path) -> list[str]:
    """Create the folder with mode 0700 whatever the umask, or make it private. Returns warnings."""
    try:
        make_private_folder(home)
        found = home.stat()
    except FileExistsError:
        raise _config_error(f"HERMES_HOME {home} is a file; it must be a folder.") from None
    except OSError as error:
        raise _config_error(
            f"HERMES_HOME {home} cannot be used: {error.strerror}; fix it or set HERMES_HOME."
        ) from None
    if not os.access(home, os.R_OK | os.X_OK):
        text = f"HERMES_HOME {home} is not readable; fix its owner or set HERMES_HOME."
        raise _config_error(text)
    if not stat.S_IMODE(found.st_mode) & 0o077:
        return []
    try:
        home.chmod(0o700)
    except OSError as error:
        return [f"{home} is open to other users and could not be made private: {error.strerror}."]
    return [f"{home} was open to other users; its mode is 0700 now."]


def make_private_folder(path: Path) -> None:
    """Create `path` and every missing folder above it with mode 0700; existing ones stay."""
    if path.is_dir():
        return
    if path.parent != path:
        make_private_folder(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    path.chmod(0o700)


def make_private(path: Path) -> bool:
    """Make a file readable by its owner only; whether that was necessary. May raise OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & 0o077:
        return False
    path.chmod(mode & 0o700)
    return True


_working_folders: dict[str, Path] = {}
"""Resolved working folders by their configured name: resolving takes ten times as long as checking
that the result still holds, and a server does it for every request."""


def find_working_folder(configured: str) -> Path:
    """The folder tools work in and `--continue` looks for: terminal.cwd, resolved from here."""
    known = _working_folders.get(configured)
    if known is not None:
        with suppress(OSError):
            if os.path.samestat(os.stat(configured), os.stat(known)):  # noqa: PTH116
                return known
    try:
        folder = (Path.cwd() / Path(configured).expanduser()).resolve(strict=True)
    except (OSError, RuntimeError):
        text = f"The working folder {configured} (terminal.cwd) does not exist."
        if configured == ".":
            text = "The current folder does not exist any more; cd to another."
        raise _config_error(text) from None
    if not folder.is_dir():
        raise _config_error(f"{folder} (terminal.cwd) is not a folder.")
    _working_folders[configured] = folder
    return folder
