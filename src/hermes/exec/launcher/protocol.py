"""What the agent and its launcher tell each other: messages, instructions, names of files."""

import struct
from typing import Literal, NamedTuple, TypeAlias, TypedDict

FRAME = struct.Struct("!cii")
"""From supervisor to agent: one of the kinds below and two numbers."""
STARTED = b"S"
"""(pid, 0)"""
FAILED = b"F"
"""(errno, what failed: 0 the program, 1 the folder, 2 the sandbox, 3 the record; or the next)"""
GRANT_REPLACED = 4
ENDED = b"E"
"""(exit status or minus the signal, number of processes left behind). The supervisor closes the
connection after the last of those has ended."""
DETAILS = b"D"
"""Before ENDED: (number of bytes that follow, 0), then, marshalled: processes killed for want of
memory and those that could not be started; how many ended with it; addresses it was refused."""
SESSION_SIZE = 16
"""From agent to launcher: the name of the session a command belongs to, with its descriptors."""
HEADER = struct.Struct("!I")
"""From agent to supervisor: the length of (argv, cwd, env, SetupInstructions), marshalled."""

GRACE_SECONDS = 1.5

OPERATION = struct.Struct("!cI")
"""From agent to supervisor: one of the kinds below, and the length of the data that follows."""
TOKEN, WRITE, CLOSE, KILL = b"T", b"W", b"C", b"K"
ANSWER = b"A"
"""The answer to each operation: (errno or 0, bytes of input the command has not read yet)."""
SOCKET, LOCK, END = "socket", "lock", "end"
SEGMENT_PREFIX = "out."
"""The log is stored in files named after the position of their first byte."""
SEGMENT_SIZE = 1024 * 1024
INPUT_LIMIT = 1024 * 1024
"""Bytes of unread input above which a command is given no more."""
MAX_OPERATION = INPUT_LIMIT + 64
EndCause: TypeAlias = Literal["", "killed", "agent", "sandbox"]
"""Why a command ended: by itself, on request, with the agent; or it never started."""

STATUS_FD = 60
"""Descriptor on which bubblewrap reports that the command has started, and how it ended."""
FIRST_FILE_FD = 61
"""First of the descriptors with the contents of `memory_files`."""


SESSION_FOLDER = "/sys/kernel"
"""Where a session has its private files: a folder that no command needs or can replace."""
TMP_FOLDER = f"{SESSION_FOLDER}/tmp"
PROXY_SOCKET = "/run/egress.sock"
"""Where a command in namespaces finds the socket of the egress proxy."""
GRANTED_FOLDER = f"{SESSION_FOLDER}/granted"
"""The paths that a person granted to a command, by their number."""


class RefusedAddress(NamedTuple):
    """Where a command wanted to connect to and could not, because of the sandbox."""

    host: str
    """An IP address; empty: that of a name server."""
    port: int


class BackgroundPlan(TypedDict):
    """What the supervisor of a background command needs to know."""

    folder: bytes
    """Belongs to this command alone; holds its record, log and socket."""
    token: bytes
    """Authenticates whoever has read the record."""
    keep: bool
    """Whether the command outlives the agent; if so its supervisor listens for later agents."""


class SetupInstructions(TypedDict, total=False):
    """How a supervisor starts and confines one command; every path is bytes."""

    stdin: bool
    """Whether the last descriptor sent along is the command's standard input."""
    pty: bool
    background: BackgroundPlan
    grace: float
    """Seconds between TERM and KILL, if not the usual ones."""
    limits: list[tuple[int, int]]
    """(resource, maximum) for setrlimit."""
    fallback_limits: list[tuple[int, int]]
    """More of them, used where there are no control groups."""
    cgroup_limits: tuple[int, int]
    """Bytes of memory and number of processes, used where there are control groups."""
    placeholders: list[bytes]
    """Missing protected names, occupied by empty folders while the command runs."""
    link_placeholders: list[bytes]
    """Missing protected names, occupied by dangling links instead; also in `covered_links`."""
    removed_after: list[bytes]
    """Files that did not exist before the command and are removed after it."""
    not_bare: bytes
    """A folder that must not become a bare repository: a HEAD created in it is renamed after it."""
    detached: list[bytes]
    """Read-only folders whose sockets and named pipes must not lead to programs outside."""
    covered_links: list[bytes]
    """Protected symbolic links, covered by a mount so that nobody can replace them."""
    granted: list[bytes]
    """Paths that must be what a person granted: without any link on the way."""
    tmp: tuple[int, list[bytes]]
    """The most bytes in the session's /tmp, and the names in it on which something is mounted."""
    private_copies: list[bytes]
    """Folders covered by overlays: what the command writes there vanishes with it."""
    copy_bytes: int
    """The most it may write to each of them."""
    scratch: bytes
    """A folder created for the command and removed after it; with namespaces it stays empty."""
    scratch_links: list[tuple[bytes, bytes]]
    """Links created in it: their names and targets."""
    memory_files: list[bytes]
    """Contents of the descriptors from FIRST_FILE_FD on."""
    wrapped: bool
    """Whether the program started is bubblewrap, which reports on STATUS_FD."""
    drop_privileges: bool
    """Whether to give up every capability and every way to regain one."""
    landlock: tuple[tuple[int, int, int], list[tuple[bytes, int]]]
    """Handled file accesses, network accesses and scopes; and what is allowed beneath each path."""
    seccomp: tuple[int, bytes]
    """Number of the seccomp system call here, and a filter that reports calls to the supervisor."""
    writable: list[bytes]
    """Where the syscall broker may change files."""
    readonly: list[bytes]
    """Exceptions to `writable`."""
    workspace: bytes
    """Where the syscall broker creates and removes what Landlock cannot allow."""
    shared_memory: bytes
    """A folder created for the command and removed after it, which it finds at /dev/shm."""
    proxy: tuple[str, int] | bytes
    """The egress proxy's address, or the path of its socket."""
