"""The programs, libraries and caches of developers' tools that people keep in their home."""

from pathlib import Path

from hermes.core.text import WordLists

_lists = WordLists(Path(__file__).with_suffix(".txt"))
TABLE = _lists.get_table("toolchains")
_, PROGRAMS, CACHES, RENEWABLE = (
    tuple(" ".join(column).split()) for column in zip(*TABLE, strict=True)
)
"""Programs are readable in a home; credentials beside them are not. Caches are readable too; what
commands write there is theirs alone. Without namespaces they can add to a cache, but not to the
folders in it, and begin with empty renewable ones, which no build relies on: programs refuse those
that they cannot write to."""
VERSIONED_CREDENTIALS = tuple(sorted(_lists.get_words("versioned credentials")))
