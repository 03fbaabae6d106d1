"""The programs, libraries and caches of developers' tools that people keep in their home."""

from pathlib import Path
from typing import NamedTuple

from hermes.core.text import WordLists


class Toolchain(NamedTuple):
    name: str
    programs: tuple[str, ...]
    """Readable in a home. Credentials beside them are not."""
    caches: tuple[str, ...]
    """Readable too; what commands write there is theirs alone. Without namespaces they can add to
    a cache, but not to the folders in it."""
    renewable: tuple[str, ...]
    """Caches that no build relies on. Without namespaces a command begins with empty ones: programs
    refuse those that they cannot write to."""


_lists = WordLists(Path(__file__).with_suffix(".txt"))
TOOLCHAINS = tuple(
    Toolchain(name.strip(), *(tuple(cell.split()) for cell in cells))
    for name, *cells in _lists.get_table("toolchains")
)
VERSIONED_CREDENTIALS = tuple(sorted(_lists.get_words("versioned credentials")))
PROGRAMS = tuple(path for toolchain in TOOLCHAINS for path in toolchain.programs)
CACHES = tuple(path for toolchain in TOOLCHAINS for path in toolchain.caches)
RENEWABLE = tuple(path for toolchain in TOOLCHAINS for path in toolchain.renewable)
