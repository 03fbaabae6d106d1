"""What the agent and its launcher tell each other: messages, instructions, names of files."""

from __future__ import annotations

import struct
from typing import Literal, TypeAlias, TypedDict

FRAME = struct.Struct("!cii")
"""From keeper to agent: one of the kinds below and two numbers."""
STARTED = b"S"
"""(pid, 0)"""
FAILED = b"F"
"""(errno, what was at fault: 0 the program, 1 the folder, 2 the sandbox, 3 the record)"""
ENDED = b"E"
"""(exit status or minus the signal, number of processes left behind). After the last of those
the keeper hangs up."""
HEADER = struct.Struct("!I")
"""From agent to keeper: the length of a marshalled (argv, cwd, env, confine.Box), and then it."""

GRACE = 1.5
"""Seconds between TERM and KILL."""

OPERATION = struct.Struct("!cI")
"""From agent to keeper: one of the kinds below, the length of what follows, and that."""
TOKEN, WRITE, CLOSE, KILL = b"T", b"W", b"C", b"K"
ANSWER = b"A"
"""(errno or 0, bytes of input the command has not taken yet): to each operation."""
SOCKET, LOCK, END = "socket", "lock", "end"
SEGMENT = "out."
"""The log is in files named after the position of their first byte."""
SEGMENT_SIZE = 1024 * 1024
INPUT_LIMIT = 1024 * 1024
"""Bytes a command may leave unread before it is given no more."""
MAX_OPERATION = INPUT_LIMIT + 64
Why: TypeAlias = Literal["", "killed", "agent", "sandbox"]
"""What ended it: itself, somebody who asked for it, the end of the agent; or it never ran."""

STATUS_FD = 60
"""Where bubblewrap reports that the command has begun, and how it ended."""
FIRST_FILE_FD = 61
"""Of the descriptors that hold `files`."""


class DeskPlan(TypedDict):
    """What the keeper of a command in the background is told."""

    folder: bytes
    """Of the command alone; the record, the log and the socket are there."""
    token: bytes
    """Who has read the record knows it."""
    keep: bool
    """Whether the command outlives the agent: then its keeper listens for the next one."""


class Box(TypedDict, total=False):
    """Instructions for one command; every path is bytes."""

    stdin: bool
    """Whether the last descriptor sent along is the command's standard input."""
    pty: bool
    """Whether its streams are a terminal of its own."""
    desk: DeskPlan
    """For a command in the background: where its keeper records what becomes of it."""
    limits: list[tuple[int, int]]
    """(resource, most)"""
    otherwise: list[tuple[int, int]]
    """More of them, where there are no control groups."""
    cgroup: tuple[int, int]
    """Bytes of memory and number of processes, where control groups can be had."""
    placeholders: list[bytes]
    """Protected names that do not exist: held by empty folders as long as the command lives."""
    links: list[bytes]
    """The same, held by links to NOWHERE; they are among `covers` too."""
    unwanted: list[bytes]
    """Files that were not there before and are removed after the command."""
    plain: bytes
    """A folder that is no bare repository, and must not be one after the command: nothing can hold
    a name for that without being in every listing, so the HEAD it takes is put aside."""
    covers: list[bytes]
    """Protected symbolic links: covered by what they point to, so that nobody can replace them."""
    scratch: bytes
    """A folder made for the command and removed after it."""
    files: list[bytes]
    """Contents of descriptors FIRST_FILE_FD and up."""
    wrapper: bool
    """Whether bubblewrap is started, which reports on STATUS_FD."""
    bare: bool
    """Whether to give up every capability and every way to new ones."""
    landlock: tuple[tuple[int, int, int], list[tuple[bytes, int]]]
    """Handled file accesses, network accesses, scopes; and what is allowed beneath which path."""
    seccomp: tuple[int, bytes]
    """Number of the system call on this machine, and the program."""
    writable: list[bytes]
    """With a seccomp program that asks: where modes and times of files may be changed ..."""
    readonly: list[bytes]
    """... except there."""
    workspace: bytes
    """... where what Landlock cannot open is made and removed by the keeper ..."""
    way: tuple[str, int]
    """... and the one address its sockets are connected to."""
