"""How this program came to be installed, and which versions there are."""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from shlex import quote

import msgspec
from msgspec import Struct

PACKAGE = "hermes-runtime"
_FINAL = re.compile(r"v?(\d+(?:\.\d+)*)(?:\.post\d+)?\Z")


class How(Struct, frozen=True):
    way: str
    command: str


def how(prefix: Path | None = None, distribution: Distribution | None = None) -> How:
    """By what installers leave behind."""
    place = Path(sys.prefix) if prefix is None else prefix
    found = distribution or _distribution()
    source = _checkout(found)
    if source is not None:
        where = quote(str(source))
        own = place == source / ".venv" and (source / "Makefile").exists()
        again = f"make -C {where} run ARGS=version"
        again = again if own else f"{_python(place)} -m pip install -e {where}"
        return How("git", f"git -C {where} pull --ff-only && {again}")
    if (place / "uv-receipt.toml").exists():
        return How("uv tool", f"uv tool upgrade {PACKAGE}")
    if (place / "pipx_metadata.json").exists():
        return How("pipx", f"pipx upgrade {PACKAGE}")
    if _by_the_system(place, found):
        return How("the system", "update it with the system's package manager")
    installer = _text(found, "INSTALLER")
    if installer == "uv":
        return How("uv", f"uv pip install --python {_python(place)} --upgrade {PACKAGE}")
    return How("pip", f"{_python(place)} -m pip install --upgrade {PACKAGE}")


def _distribution() -> Distribution | None:
    try:
        return Distribution.from_name(PACKAGE)
    except PackageNotFoundError:
        return None


def _text(found: Distribution | None, name: str) -> str:
    return (found.read_text(name) or "").strip() if found is not None else ""


def _checkout(found: Distribution | None) -> Path | None:
    """The folder of an editable installation, or of one that is run as it lies there."""
    try:
        about = msgspec.json.decode(_text(found, "direct_url.json") or "{}")
    except ValueError:
        about = {}
    if isinstance(about, dict) and (about.get("dir_info") or {}).get("editable"):
        from urllib.parse import unquote, urlsplit

        return Path(unquote(urlsplit(str(about.get("url"))).path))
    if found is not None:
        return None
    here = Path(__file__).resolve()
    return next((folder for folder in here.parents if (folder / ".git").exists()), None)


def _by_the_system(place: Path, found: Distribution | None) -> bool:
    """Of a package manager: in the system's own interpreter, and not put there by pip."""
    own = place in (Path("/usr"), Path(sys.base_prefix)) and sys.prefix == sys.base_prefix
    return own and _text(found, "INSTALLER") not in ("pip", "uv")


def _python(place: Path) -> str:
    return quote(str(place / "bin" / "python"))


# -- versions ------------------------------------------------------------------------------


async def newest() -> str:
    """The newest final version that the configured package indexes have."""
    from hermes.config.env import environment
    from hermes.config.package_index import indexes
    from hermes.llm.http.transport import Transport
    from hermes.llm.local.download import Downloader, SourceError
    from hermes.llm.local.wheel_source import list_index_files

    transport = Transport()
    problem = "the use of an index is turned off here"
    try:
        for index in indexes(environment()):
            try:
                links = await list_index_files(Downloader(transport, index), index, PACKAGE)
            except SourceError as error:
                problem = str(error)
                continue
            versions = [v for link in links if (v := _version_of(link.name))]
            if versions:
                return max(versions, key=_order)
            problem = "the index has no version of it"
    finally:
        await transport.close()
    raise SourceError(problem)


def _version_of(file: str) -> str:
    """The version in the name of a wheel or an archive; empty: none, or none that is final."""
    stem = re.sub(r"[-_.]+", "-", PACKAGE)
    match = re.match(rf"{stem.replace('-', '[-_.]+')}-(.+?)(?:-py.*\.whl|\.tar\.gz|\.zip)\Z", file)
    return match[1] if match and _FINAL.match(match[1]) else ""


def _order(version: str) -> tuple[int, ...]:
    match = _FINAL.match(version)
    numbers = [int(part) for part in match[1].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def newer(one: str, other: str) -> bool:
    return _order(one) > _order(other)
