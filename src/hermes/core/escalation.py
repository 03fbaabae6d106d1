"""What a confined command may be given beyond its walls."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, structs

PACKAGES = "packages"
"""Stands for the hosts that package managers download from."""


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

    def resolve_paths(self, folder: Path) -> Access:
        """The same with absolute paths."""
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
            parts.append("run without the sandbox, with all your rights")
        if self.network:
            names = {"*": "the internet", PACKAGES: "the package registries"}
            parts.append("reach " + ", ".join(names.get(host, host) for host in self.hosts))
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


def _resolve_all(paths: tuple[str, ...] | None, folder: Path) -> tuple[str, ...] | None:
    if not paths:
        return None
    return tuple(str((folder / Path(path).expanduser()).resolve()) for path in paths)
