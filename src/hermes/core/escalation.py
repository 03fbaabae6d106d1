"""What a confined command may be given beyond its walls."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct, structs

PACKAGES = "packages"
"""Stands for the hosts that package managers download from."""

MAX_NAMES = 20
"""How many hosts or paths a question names at most: nobody reads a longer list."""


class Access(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rights beyond the walls of the sandbox, exactly as a person grants them."""

    network: bool | tuple[str, ...] | None = None
    """True: every public host; or these hosts."""
    write: tuple[str, ...] | None = None
    """Existing files and folders."""
    read: tuple[str, ...] | None = None
    unconfined: bool | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts it may reach: `*` for all."""
        return ("*",) if self.network is True else self.network or ()

    @property
    def asks(self) -> bool:
        """Whether it is more than nothing."""
        return bool(self.network or self.write or self.read or self.unconfined)

    @property
    def leaves_machine(self) -> bool:
        """Whether data can get out."""
        return bool(self.network or self.unconfined)

    def covers(self, other: Access) -> bool:
        """Whether everything that `other` grants is granted here."""
        return (
            (bool(self.unconfined) or not other.unconfined)
            and (self.network is True or set(other.hosts) <= set(self.hosts))
            and set(other.write or ()) <= set(self.write or ())
            and set(other.read or ()) <= {*(self.read or ()), *(self.write or ())}
        )

    def explain_excess(self) -> str:
        """Why nobody is asked about so many names; empty when a person can read them."""
        for names, kind in ((self.hosts, "hosts"), (self.write, "paths"), (self.read, "paths")):
            if names and len(names) > MAX_NAMES:
                return (
                    f"{len(names)} {kind} are too many for one question; name at most {MAX_NAMES}"
                )
        return ""

    def resolve_paths(self, folder: Path) -> Access:
        """The same with absolute paths. Raises ValueError when one is no path."""
        return Access(
            network=self.network,
            write=_resolve_all(self.write, folder),
            read=_resolve_all(self.read, folder),
            unconfined=self.unconfined,
        )

    def describe(self) -> str:
        """What it lets a command do, as a person reads it."""
        parts = []
        if self.unconfined:
            parts.append("run without the sandbox and with all your rights")
        if self.network:
            names = ", ".join(map(_describe_host, self.hosts))
            parts.append(f"reach {'the internet' if self.network is True else names}")
        if self.write:
            parts.append(f"write to {', '.join(self.write)}")
        if self.read:
            parts.append(f"read {', '.join(self.read)}")
        return ", and ".join(parts)


class Escalation(Access, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Access beyond the sandbox; the user is asked. true: all hosts."""

    why: str

    @classmethod
    def give(cls, access: Access, why: str) -> Escalation:
        return cls(why=why, **structs.asdict(access))

    def without_reason(self) -> Access:
        fields = structs.asdict(self)
        del fields["why"]
        return Access(**fields)


class FileAccess(Struct, frozen=True):
    """What a person's yes allows a file tool."""

    folder: str = ""
    """Reading anything below it, if the answer is for the session."""
    diff: str = ""
    """The change that the person must see."""
    writes: bool = False


def _describe_host(host: str) -> str:
    """The host, and beside other letters than ASCII what they are: some look the same."""
    if host == PACKAGES:
        return "the package registries"
    labels = host.partition(":")[0].split(".")
    if not host.isascii():
        return f"{host} (in ASCII: {'.'.join(map(_encode_label, labels))})"
    shown = [_decode_label(label) for label in labels]
    return host if shown == labels else f"{host} (shown as {'.'.join(shown)})"


def _encode_label(label: str) -> str:
    return label if label.isascii() else f"xn--{label.casefold().encode('punycode').decode()}"


def _decode_label(label: str) -> str:
    try:
        found = label.lower().startswith("xn--")
        return label[4:].encode("ascii").decode("punycode") if found else label
    except UnicodeError:
        return label


def _resolve_all(paths: tuple[str, ...] | None, folder: Path) -> tuple[str, ...] | None:
    if not paths:
        return None
    return tuple(os.path.realpath(folder / os.path.expanduser(p)) for p in paths)  # noqa: PTH111
