"""Uses of known programs that need approval, whatever the rules say about the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hermes.exec.command_policy.programs.call import ProgramCall
from hermes.exec.command_policy.programs.environment import explain_risky_variable
from hermes.exec.command_policy.programs.file_writers import WRITER_CHECKS, is_outside
from hermes.exec.command_policy.programs.git import check_git
from hermes.exec.command_policy.programs.interpreters import (
    INTERPRETER_CHECKS,
    check_fetched_package,
)
from hermes.exec.command_policy.programs.network import NETWORK_CHECKS
from hermes.exec.command_policy.programs.sed_awk import check_awk, check_sed
from hermes.exec.command_policy.shell.words import UNKNOWN, is_vague, literal_text
from hermes.exec.command_policy.types import Certainty, Finding, ask_finding

Check = Callable[[ProgramCall], Iterator[Finding]]
_SUBSTITUTION = re.compile(r"\$\(|`")


def check_program(call: ProgramCall) -> Iterator[Finding]:
    """Why this call needs approval, whatever the rules say about its program."""
    name = call.name
    if name not in _CHECKED_PROGRAMS:
        return
    if name in _CHANGING_OPTIONS and call.has_option(*_CHANGING_OPTIONS[name]):
        call.alters = True
    if name in _RISKY_OPTIONS and call.has_option(*_RISKY_OPTIONS[name]):
        yield ask_finding(f"an option of {name} runs a program or changes something")
    if (
        name in _RISKY_OPTIONS
        and any(arg[:1] == "\x1e" for arg in call.args)
        and name in _STRICT_PROGRAMS
    ):
        yield ask_finding(f"the options of {name} are known only at run time", Certainty.UNCERTAIN)
    if name in _ALWAYS_ASK:
        yield _ALWAYS_ASK[name]
    if name in _EVALUATES_NAMES and any(_SUBSTITUTION.search(word) for word in call.words):
        yield ask_finding(f"{name} would run a command hidden in a variable name")
    if name in _SETS_VARIABLES and any(
        explain_risky_variable(word, "/x") for word in call.words if _VARIABLE_NAME.match(word)
    ):
        yield ask_finding(f"{name} sets a variable that changes what programs do")
    for table in (_CHECKS, INTERPRETER_CHECKS, WRITER_CHECKS, NETWORK_CHECKS):
        check = table.get(name)
        if check:
            yield from check(call)


_ALWAYS_ASK: dict[str, Finding] = {
    **dict.fromkeys("vi vim nvim view vimdiff ex ed emacs emacsclient nano pico micro".split(),
                    ask_finding("an editor can run any command")),
    **dict.fromkeys("alias unalias enable complete compgen bind".split(),
                    ask_finding("changes what later commands mean", Certainty.UNCERTAIN)),
    **dict.fromkeys("nc ncat netcat socat telnet ftp lftp tftp sftp scp rclone smbclient mail "
                    "mailx sendmail mutt croc ngrok cloudflared websocat".split(),
                    ask_finding("connects to other machines")),
    **dict.fromkeys("crontab at batch".split(),
                    ask_finding("schedules commands that run later, unsupervised")),
    **dict.fromkeys("gdb lldb tmux screen expect osascript".split(),
                    ask_finding("can run any command")),
    **dict.fromkeys("mount umount losetup mknod insmod modprobe rmmod setcap sysctl iptables nft "
                    "ufw useradd userdel usermod groupadd passwd chpasswd visudo chsh".split(),
                    ask_finding("changes the system")),
    "killall": ask_finding("ends every process of that name"),
}  # fmt: skip
_EVALUATES_NAMES = frozenset(
    "test [ read unset declare export local typeset readonly let printf mapfile readarray getopts "
    "wait".split()
)
_IP_CHANGES = ("add", "del", "delete", "set", "flush", "change", "replace", "exec")
_SETS_VARIABLES = frozenset("read printf mapfile readarray getopts wait".split())
_VARIABLE_NAME = re.compile(r"[A-Z_]+\Z")
_RISKY_OPTIONS: dict[str, tuple[str, ...]] = {
    "hash": ("-p",),
    "cloc": ("--extract-with", "--config"),
    "rg": ("--pre", "--hostname-bin", "--search-zip-with"),
    "sort": ("--compress-program", "-o", "--output"),
    "man": ("-P", "--pager", "-H", "--html"),
    "less": ("-o", "-O", "--log-file", "-k", "--lesskey-file"),
    "tree": ("-o",),
    "date": ("-s", "--set"),
    "tar": (
        "--checkpoint-action",
        "--to-command",
        "-I",
        "--use-compress-program",
        "--rsh-command",
        "-F",
        "--info-script",
        "--new-volume-script",
        "--rmt-command",
    ),
    "zip": ("-T", "-TT", "--unzip-command", "--test"),
    "make": ("--eval",),
    "gmake": ("--eval",),
    "go": ("-exec", "-toolexec", "--exec", "--toolexec"),
    "cargo": ("--config",),
    "gcc": ("-wrapper", "-specs", "--specs", "-B", "-fplugin"),
    "g++": ("-wrapper", "-specs", "--specs", "-B", "-fplugin"),
    "clang": ("-fplugin", "-B", "--config", "-Xclang"),
    "bat": ("--pager",),
    "batcat": ("--pager",),
    "fzf": ("--preview", "--bind", "--execute"),
    "ip": ("-b", "-batch", "-n", "-netns", "netns", *_IP_CHANGES),
    "ifconfig": ("up", "down", "netmask", "hw"),
    "hostname": ("-F", "-b", "--file"),
    "exiftool": ("-if", "-p", "-execute", "-config"),
    "pygmentize": ("-x",),
    "xmllint": ("--shell", "--output", "-o"),
    "ag": ("--pager",),
    "ack": ("--pager",),
    "ctags": ("--options",),
    "gem": ("push", "yank", "owner", "signin", "install", "i", "uninstall", "update", "sources"),
    **dict.fromkeys(
        "npm pnpm yarn".split(),
        ("--script-shell", "-g", "--global", "global", "--registry", "--location"),
    ),
    **dict.fromkeys(
        "pip pip3 uv".split(),
        (
            "--index-url",
            "--extra-index-url",
            "--find-links",
            "--trusted-host",
            "--index",
            "--default-index",
            "--break-system-packages",
        ),
    ),
    "mvn": ("deploy", "release:perform", "-Dexec.executable"),
    "dotnet": ("nuget",),
    "shopt": ("expand_aliases",),
    "ffmpeg": ("-protocol_whitelist",),
    "journalctl": ("--vacuum-size", "--vacuum-time", "--rotate", "--flush", "--vacuum-files"),
    "dmesg": ("-c", "-C", "--clear", "-n", "-D", "-E"),
    "iconv": ("-o", "--output"),
}
_STRICT_PROGRAMS = frozenset("tar make gmake gcc clang".split())
_CHANGING_OPTIONS: dict[str, tuple[str, ...]] = {
    "sed": ("-i", "--in-place"),
    "gsed": ("-i", "--in-place"),
    "yq": ("-i", "--inplace", "-s", "--split-exp"),
    "scc": ("-o", "--output"),
    "file": ("-C", "--compile"),
    "xxd": ("-r",),
    "shuf": ("-o", "--output"),
    "go": ("-w",),
    "ss": ("-K", "--kill"),
}


def _check_find(call: ProgramCall) -> Iterator[Finding]:
    for at, arg in enumerate(call.args):
        if call.words[at] in ("-fprint", "-fprintf", "-fls", "-fprint0"):
            if at + 1 < len(call.args) and is_outside(call, call.args[at + 1]):
                yield ask_finding("find writes a file outside the project folder")
            call.alters = True
        if arg[0:1] == "\x1e" or (arg[:1] == UNKNOWN and at):
            yield ask_finding(
                "the conditions of find are known only at run time", Certainty.UNCERTAIN
            )
    deletes = "-delete" in call.words
    runs = any(word in ("-exec", "-execdir", "-ok", "-okdir") for word in call.words)
    call.alters = call.alters or deletes
    if deletes or runs:
        yield from _check_find_folders(call, deletes)


def _check_find_folders(call: ProgramCall, deletes: bool) -> Iterator[Finding]:
    starts: list[str] = []
    for arg in call.args:
        if arg.startswith(("-", "(", "!")):
            break
        starts.append(arg)
    tests = {"-name", "-iname", "-path", "-ipath", "-regex", "-size", "-mtime", "-mmin", "-newer",
             "-empty", "-wholename", "-atime", "-ctime", "-inum"}  # fmt: skip
    narrow = any(
        word in tests and not re.fullmatch(r"[*?./]*", "".join(call.words[at + 1 : at + 2]) or "x")
        for at, word in enumerate(call.words)
    )
    removes = deletes or any(
        name.rpartition("/")[2] in ("rm", "unlink", "shred", "truncate", "mv")
        for at, name in enumerate(call.words)
        if at and call.words[at - 1] in ("-exec", "-execdir", "-ok", "-okdir")
    )
    if removes and not narrow:
        yield ask_finding("find deletes everything it finds")
    for start in starts or ["."]:
        if any(
            path is not None and call.path_zones.holds_secrets(path)
            for path in call.resolve_paths(start)
        ):
            yield ask_finding(
                f"find runs a command on all of {literal_text(start)}, which holds credentials"
            )
        if removes and is_outside(call, start):
            yield ask_finding(
                f"find deletes files in {literal_text(start)}, outside the project folder"
            )


_RECURSIVE_OPTIONS = ("-r", "-R", "-a", "--recursive", "--dereference-recursive", "--archive")


def _check_broad_search(call: ProgramCall) -> Iterator[Finding]:
    """Searching or copying a folder that contains folders with credentials."""
    if call.name in ("grep", "egrep", "fgrep", "zgrep", "cp", "zip") and not call.has_option(
        *_RECURSIVE_OPTIONS
    ):
        return
    words = call.positional_words()
    for word in words[:-1] if call.name in ("cp", "rsync") else words:
        if any(
            path is not None and call.path_zones.holds_secrets(path)
            for path in call.resolve_paths(word)
        ):
            yield ask_finding(
                f"{call.name} reads all of {literal_text(word)}, which holds credentials"
            )


def _check_make(call: ProgramCall) -> Iterator[Finding]:
    for word in call.words:
        if re.match(r"(?:SHELL|MAKE|\.SHELLFLAGS|MAKEFLAGS)\s*[:+?]?=", word):
            yield ask_finding("make would use another shell")
        if "$(shell" in word or "`" in word or ("=" in word and "$(" in word):
            yield ask_finding("make is given a command to run")
    if call.option_value("-f", "--file") in ("-", "/dev/stdin", "/dev/fd/0"):
        yield ask_finding("make runs a makefile from its input")
    for option in ("-f", "--file", "-C", "--directory"):
        target = call.option_value(option)
        if target is not None and is_outside(call, target):
            yield ask_finding(f"make works on {literal_text(target)}, outside the project folder")
        for path in call.resolve_paths(target) if target and option in ("-f", "--file") else []:
            if path is not None and call.path_zones.is_tainted(path):
                yield ask_finding("make reads a file that was downloaded")


def _check_npm(call: ProgramCall) -> Iterator[Finding]:
    """Its options may precede the subcommand."""
    valued = ("--prefix", "-C", "--dir", "--filter", "-F", "--cwd", "-w", "--workspace")
    at = 0
    while at < len(call.words) - 1 and call.words[at].startswith("-"):
        folder = call.words[at] in valued
        if folder and call.words[at] in valued[:3] and is_outside(call, call.args[at + 1]):
            yield ask_finding(f"{call.name} works outside the project folder")
        at += 2 if folder else 1
    if 0 < at < len(call.words) and not is_vague(call.args[at]):
        call.words, call.args = call.words[at:], call.args[at:]
    if call.words[:1] == ["dlx"]:
        yield from check_fetched_package(call, 1)


def _check_pip(call: ProgramCall) -> Iterator[Finding]:
    if call.name == "uv" and call.words[:2] == ["tool", "run"]:
        yield from check_fetched_package(call, 2)
    if any(re.match(r"(?:git|hg|svn|bzr)\+|https?:|ssh:|git@|file:", word) for word in call.words):
        yield ask_finding(f"{call.name} installs from a URL")
    if any(word == "--user" for word in call.words):
        yield ask_finding(f"{call.name} installs outside the project folder")
    for option in ("--target", "-t", "--prefix", "--root"):
        target = call.option_value(option)
        if target is not None and target and is_outside(call, target):
            yield ask_finding(f"{call.name} installs outside the project folder")


def _check_callback(call: ProgramCall) -> Iterator[Finding]:
    if call.has_option("-C", "-c"):
        yield ask_finding(f"{call.name} is given a command to run")


def _check_second_word(call: ProgramCall) -> Iterator[Finding]:
    for target in call.positional_words("-f -s -w -c -l -o -g -n")[1:2]:
        call.alters = True
        if is_outside(call, target):
            yield ask_finding(f"{call.name} writes outside the project folder")


def _check_system_change(call: ProgramCall) -> Iterator[Finding]:
    if any(
        not word.startswith(("+", "-"))
        for word in call.positional_words("-d --date -r --reference -f -I")
    ):
        yield ask_finding(f"{call.name} changes the system")


def _check_dc(call: ProgramCall) -> Iterator[Finding]:
    if any("!" in text for text in (*call.words, call.simple.feed or "")):
        yield ask_finding("dc can run commands")


def _check_pager(call: ProgramCall) -> Iterator[Finding]:
    if any(word.startswith("+") for word in call.words):
        yield ask_finding(f"{call.name} is given a command to run")


_DESTRUCTIVE_SQL = re.compile(
    r"\b(?:drop\s+(?:table|database|schema|index|view|trigger|column)|truncate\s|"
    r"delete\s+from\s+\S+\s*(?:;|$)|delete\s+from\b(?![^;]{0,300}\bwhere\b)|alter\s+table[^;]{0,80}\bdrop\b|"
    r"attach\s|vacuum\s+into|writefile\s*\(|edit\s*\(|pragma\s+writable_schema)",
    re.IGNORECASE,
)


def _check_sqlite(call: ProgramCall) -> Iterator[Finding]:
    text = " ".join(call.words) + " " + (call.simple.feed or "")
    if _DESTRUCTIVE_SQL.search(text):
        yield ask_finding(f"{call.name} destroys data or uses other files")
    if re.search(r"(?:^|[\s\"';])\.(?:shell|system|import|load|output|once|open|excel)\b|"
                 r"load_extension|\|", text) or call.simple.feed == "\x02pipe":  # fmt: skip
        yield ask_finding(f"{call.name} can run commands or open files this way")


def _check_possible_wrapper(call: ProgramCall) -> Iterator[Finding]:
    """On some systems its arguments are a command."""
    if call.positional_words():
        yield ask_finding(f"{call.name} may run another program")


def _check_pkill(call: ProgramCall) -> Iterator[Finding]:
    if not call.has_option("-f", "--full") or call.has_option(
        "-u", "-U", "-v", "--inverse", "-g", "-s"
    ):
        yield ask_finding("pkill ends every process of that name")


_CHECKS: dict[str, Check] = {
    "git": check_git,
    "arch": _check_possible_wrapper,
    "ts": _check_possible_wrapper,
    "pkill": _check_pkill,
    "uv": _check_pip,
    **dict.fromkeys("npm pnpm yarn".split(), _check_npm),
    **dict.fromkeys(
        "grep egrep fgrep zgrep rg ag ack tar zip cp rsync".split(), _check_broad_search
    ),
    "find": _check_find,
    "gfind": _check_find,
    "sed": check_sed,
    "gsed": check_sed,
    "awk": check_awk,
    "gawk": check_awk,
    "mawk": check_awk,
    "nawk": check_awk,
    "make": _check_make,
    "gmake": _check_make,
    "pip": _check_pip,
    "pip3": _check_pip,
    "uniq": _check_second_word,
    "xxd": _check_second_word,
    "date": _check_system_change,
    "hostname": _check_system_change,
    "dc": _check_dc,
    "less": _check_pager,
    "more": _check_pager,
    "mapfile": _check_callback,
    "readarray": _check_callback,
    "sqlite3": _check_sqlite,
    "duckdb": _check_sqlite,
}
_CHECKED_PROGRAMS: frozenset[str] = frozenset().union(
    _CHANGING_OPTIONS,
    _RISKY_OPTIONS,
    _ALWAYS_ASK,
    _EVALUATES_NAMES,
    _SETS_VARIABLES,
    _CHECKS,
    INTERPRETER_CHECKS,
    WRITER_CHECKS,
    NETWORK_CHECKS,
)
"""All programs that have a check."""
