"""How this program was installed, and which versions are available."""

import re
import sys
from importlib.metadata import Distribution
from pathlib import Path
from shlex import quote

import msgspec
from msgspec import Struct

from hermes.llm.local.download import Downloader
from hermes.llm.local.wheel_source import list_index_files

PACKAGE = "hermes-runtime"
_FINAL_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)(?:\.post\d+)?\Z")


class Installation(Struct, frozen=True):
    installer: str
    update_command: str


def detect_installation(
    prefix: Path | None = None, distribution: Distribution | None = None
) -> Installation:
    """Judged by the files that installers leave behind."""
    prefix = Path(sys.prefix) if prefix is None else prefix
    python = quote(str(prefix / "bin" / "python"))
    distribution = distribution or next(iter(Distribution.discover(name=PACKAGE)), None)
    source = _find_checkout(distribution)
    if source is not None:
        where = quote(str(source))
        own = prefix == source / ".venv" and (source / "Makefile").exists()
        make = f"make -C {where} run ARGS=version"
        again = make if own else f"{python} -m pip install -e {where}"
        return Installation("git", f"git -C {where} pull --ff-only && {again}")
    if (prefix / "uv-receipt.toml").exists():
        return Installation("uv tool", f"uv tool upgrade {PACKAGE}")
    if (prefix / "pipx_metadata.json").exists():
        return Installation("pipx", f"pipx upgrade {PACKAGE}")
    if _is_system_package(prefix, distribution):
        return Installation("the system", "update it with the system's package manager")
    if _metadata_text(distribution, "INSTALLER") == "uv":
        return Installation("uv", f"uv pip install --python {python} --upgrade {PACKAGE}")
    return Installation("pip", f"{python} -m pip install --upgrade {PACKAGE}")


def _metadata_text(distribution: Distribution | None, name: str) -> str:
    return (distribution.read_text(name) or "").strip() if distribution is not None else ""


def _find_checkout(distribution: Distribution | None) -> Path | None:
    """The folder of an editable installation, or of a checkout that runs without one."""
    try:
        about = msgspec.json.decode(_metadata_text(distribution, "direct_url.json") or "{}")
    except ValueError:
        about = {}
    if isinstance(about, dict) and (about.get("dir_info") or {}).get("editable"):
        from urllib.parse import unquote, urlsplit

        return Path(unquote(urlsplit(str(about.get("url"))).path))
    if distribution is not None:
        return None
    here = Path(__file__).resolve()
    return next((folder for folder in here.parents if (folder / ".git").exists()), None)


def _is_system_package(prefix: Path, distribution: Distribution | None) -> bool:
    """Whether a package manager installed it: in the system's interpreter, and not with pip."""
    own = prefix in (Path("/usr"), Path(sys.base_prefix)) and sys.prefix == sys.base_prefix
    return own and _metadata_text(distribution, "INSTALLER") not in ("pip", "uv")


async def find_newest_version() -> str:
    """The newest final version in the configured package indexes."""
    from hermes.config.env import get_environment
    from hermes.config.packages.index import list_indexes
    from hermes.llm.http.transport import Transport
    from hermes.llm.local.download import SourceError

    problem = "package indexes are turned off on this machine"
    async with Transport() as transport:
        for index in list_indexes(get_environment()):
            try:
                links = await list_index_files(Downloader(transport, index), index, PACKAGE)
            except SourceError as error:
                problem = str(error)
                continue
            versions = [v for link in links if (v := _parse_version(link.name))]
            if versions:
                return max(versions, key=_version_key)
            problem = "the index has no version of hermes"
    raise SourceError(problem)


def _parse_version(file: str) -> str:
    """The version in the name of a wheel or an archive; empty unless it is a final one."""
    stem = PACKAGE.replace("-", "[-_.]+")
    match = re.match(rf"{stem}-(.+?)(?:-py.*\.whl|\.tar\.gz|\.zip)\Z", file)
    return match[1] if match and _FINAL_VERSION.match(match[1]) else ""


def _version_key(version: str) -> tuple[int, ...]:
    match = _FINAL_VERSION.match(version)
    numbers = [int(part) for part in match[1].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def is_newer(version: str, other: str) -> bool:
    return _version_key(version) > _version_key(other)
