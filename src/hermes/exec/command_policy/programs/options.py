"""Options that turn a harmless program into one that runs, writes or sends something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hermes.exec.command_policy.programs.call import Call
from hermes.exec.command_policy.programs.environment import risky_setting
from hermes.exec.command_policy.programs.file_writers import WRITING, outside
from hermes.exec.command_policy.programs.git import git
from hermes.exec.command_policy.programs.interpreters import RUNNING, fetched_program
from hermes.exec.command_policy.programs.network import FETCHING
from hermes.exec.command_policy.programs.sed_awk import awk, sed
from hermes.exec.command_policy.shell.words import UNKNOWN, literal, vague
from hermes.exec.command_policy.types import Certainty, Finding, objection

Check = Callable[[Call], Iterator[Finding]]
_LOOKS_RUN = re.compile(r"\$\(|`")


def objections(call: Call) -> Iterator[Finding]:
    """Why this call needs a human, whatever the rules say about its program."""
    name = call.name
    if name not in _SPECIAL:
        return
    if name in _ALTERS and call.has(*_ALTERS[name]):
        call.alters = True
    if name in _TRAPS and call.has(*_TRAPS[name]):
        yield objection(f"{name} is told to run or to do something else")
    if name in _TRAPS and any(arg[:1] == "\x1e" for arg in call.args) and name in _STRICT:
        yield objection(f"the options of {name} are only known when it runs", Certainty.UNCERTAIN)
    if name in _NEVER:
        yield _NEVER[name]
    if name in _NAMES and any(_LOOKS_RUN.search(word) for word in call.words):
        yield objection(f"{name} would evaluate a command hidden in a name")
    if name in _SETS and any(risky_setting(word, "/x") for word in call.words if _NAME.match(word)):
        yield objection(f"{name} sets a variable that changes what programs do")
    for table in (_CHECKS, RUNNING, WRITING, FETCHING):
        check = table.get(name)
        if check:
            yield from check(call)


_NEVER: dict[str, Finding] = {
    **dict.fromkeys("vi vim nvim view vimdiff ex ed emacs emacsclient nano pico micro".split(),
                    objection("an editor can run anything")),
    **dict.fromkeys("alias unalias enable complete compgen bind".split(),
                    objection("it changes what later commands mean", Certainty.UNCERTAIN)),
    **dict.fromkeys("nc ncat netcat socat telnet ftp lftp tftp sftp scp rclone smbclient mail "
                    "mailx sendmail mutt croc ngrok cloudflared websocat".split(),
                    objection("it connects to other machines")),
    **dict.fromkeys("crontab at batch".split(), objection("what it plans runs later, unwatched")),
    **dict.fromkeys("gdb lldb tmux screen expect osascript".split(),
                    objection("it can run anything")),
    **dict.fromkeys("mount umount losetup mknod insmod modprobe rmmod setcap sysctl iptables nft "
                    "ufw useradd userdel usermod groupadd passwd chpasswd visudo chsh".split(),
                    objection("it changes the system")),
    "killall": objection("it ends every process of that name"),
}  # fmt: skip
_NAMES = frozenset("test [ read unset declare export local typeset readonly let printf mapfile "
                   "readarray getopts wait".split())  # fmt: skip
_IP = ("add", "del", "delete", "set", "flush", "change", "replace", "exec")
_SETS = frozenset("read printf mapfile readarray getopts wait".split())
_NAME = re.compile(r"[A-Z_]+\Z")
_TRAPS: dict[str, tuple[str, ...]] = {
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
    "ip": ("-b", "-batch", "-n", "-netns", "netns", *_IP),
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
_STRICT = frozenset("tar make gmake gcc clang".split())
_ALTERS: dict[str, tuple[str, ...]] = {
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


def _find(call: Call) -> Iterator[Finding]:
    for at, arg in enumerate(call.args):
        if call.words[at] in ("-fprint", "-fprintf", "-fls", "-fprint0"):
            if at + 1 < len(call.args) and outside(call, call.args[at + 1]):
                yield objection("find writes a file outside the workspace")
            call.alters = True
        if arg[0:1] == "\x1e" or (arg[:1] == UNKNOWN and at):
            yield objection(
                "the conditions of find are only known when it runs", Certainty.UNCERTAIN
            )
    deletes = "-delete" in call.words
    runs = any(word in ("-exec", "-execdir", "-ok", "-okdir") for word in call.words)
    call.alters = call.alters or deletes
    if deletes or runs:
        yield from _find_starts(call, deletes)


def _find_starts(call: Call, deletes: bool) -> Iterator[Finding]:
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
        yield objection("find deletes everything it finds")
    for start in starts or ["."]:
        if any(path is not None and call.places.holds_secrets(path) for path in call.paths(start)):
            yield objection(
                f"find runs something for all of {literal(start)}, where credentials are kept"
            )
        if removes and outside(call, start):
            yield objection(f"find deletes files in {literal(start)}, outside the workspace")


_TAKES_ALL = ("-r", "-R", "-a", "--recursive", "--dereference-recursive", "--archive")


def _broad(call: Call) -> Iterator[Finding]:
    """Searching or copying a folder that has the folders with credentials in it."""
    if call.name in ("grep", "egrep", "fgrep", "zgrep", "cp", "zip") and not call.has(*_TAKES_ALL):
        return
    words = call.rest()
    for word in words[:-1] if call.name in ("cp", "rsync") else words:
        if any(path is not None and call.places.holds_secrets(path) for path in call.paths(word)):
            yield objection(f"{call.name} goes through {literal(word)}, where credentials are kept")


def _make(call: Call) -> Iterator[Finding]:
    for word in call.words:
        if re.match(r"(?:SHELL|MAKE|\.SHELLFLAGS|MAKEFLAGS)\s*[:+?]?=", word):
            yield objection("make is told to use another shell")
        if "$(shell" in word or "`" in word or ("=" in word and "$(" in word):
            yield objection("make is told to run a command")
    if call.value("-f", "--file") in ("-", "/dev/stdin", "/dev/fd/0"):
        yield objection("make runs what it reads")
    for option in ("-f", "--file", "-C", "--directory"):
        target = call.value(option)
        if target is not None and outside(call, target):
            yield objection(f"make works on {literal(target)}, outside the workspace")
        for path in call.paths(target) if target and option in ("-f", "--file") else []:
            if path is not None and call.places.is_tainted(path):
                yield objection("make reads a file that came from the network")


def _npm(call: Call) -> Iterator[Finding]:
    """Its options may stand before the word that says what it does."""
    valued = ("--prefix", "-C", "--dir", "--filter", "-F", "--cwd", "-w", "--workspace")
    at = 0
    while at < len(call.words) - 1 and call.words[at].startswith("-"):
        folder = call.words[at] in valued
        if folder and call.words[at] in valued[:3] and outside(call, call.args[at + 1]):
            yield objection(f"{call.name} works outside the workspace")
        at += 2 if folder else 1
    if 0 < at < len(call.words) and not vague(call.args[at]):
        call.words, call.args = call.words[at:], call.args[at:]
    if call.words[:1] == ["dlx"]:
        yield from fetched_program(call, 1)


def _pip(call: Call) -> Iterator[Finding]:
    if call.name == "uv" and call.words[:2] == ["tool", "run"]:
        yield from fetched_program(call, 2)
    if any(re.match(r"(?:git|hg|svn|bzr)\+|https?:|ssh:|git@|file:", word) for word in call.words):
        yield objection(f"{call.name} installs from an address")
    if any(word == "--user" for word in call.words):
        yield objection(f"{call.name} installs outside the workspace")
    for option in ("--target", "-t", "--prefix", "--root"):
        target = call.value(option)
        if target is not None and target and outside(call, target):
            yield objection(f"{call.name} installs outside the workspace")


def _shell_words(call: Call) -> Iterator[Finding]:
    if call.has("-C", "-c"):
        yield objection(f"{call.name} is given a command to run")


def _second_is_output(call: Call) -> Iterator[Finding]:
    for target in call.rest("-f -s -w -c -l -o -g -n")[1:2]:
        call.alters = True
        if outside(call, target):
            yield objection(f"{call.name} writes outside the workspace")


def _sets_by_word(call: Call) -> Iterator[Finding]:
    if any(not word.startswith(("+", "-")) for word in call.rest("-d --date -r --reference -f -I")):
        yield objection(f"{call.name} changes the system")


def _dc(call: Call) -> Iterator[Finding]:
    if any("!" in text for text in (*call.words, call.simple.feed or "")):
        yield objection("dc can run commands")


def _less(call: Call) -> Iterator[Finding]:
    if any(word.startswith("+") for word in call.words):
        yield objection(f"{call.name} is given a command to run")


_DESTROYS = re.compile(
    r"\b(?:drop\s+(?:table|database|schema|index|view|trigger|column)|truncate\s|"
    r"delete\s+from\s+\S+\s*(?:;|$)|delete\s+from\b(?![^;]{0,300}\bwhere\b)|alter\s+table[^;]{0,80}\bdrop\b|"
    r"attach\s|vacuum\s+into|writefile\s*\(|edit\s*\(|pragma\s+writable_schema)",
    re.IGNORECASE,
)


def _sqlite(call: Call) -> Iterator[Finding]:
    text = " ".join(call.words) + " " + (call.simple.feed or "")
    if _DESTROYS.search(text):
        yield objection(f"{call.name} is told to destroy data or to use other files")
    if re.search(r"(?:^|[\s\"';])\.(?:shell|system|import|load|output|once|open|excel)\b|"
                 r"load_extension|\|", text) or call.simple.feed == "\x02pipe":  # fmt: skip
        yield objection(f"{call.name} can run commands that way")


def _no_words(call: Call) -> Iterator[Finding]:
    """On some systems the words after it are a command."""
    if call.rest():
        yield objection(f"{call.name} may run another program")


def _pkill(call: Call) -> Iterator[Finding]:
    if not call.has("-f", "--full") or call.has("-u", "-U", "-v", "--inverse", "-g", "-s"):
        yield objection("pkill ends every process of that name")


_CHECKS: dict[str, Check] = {
    "git": git,
    "arch": _no_words,
    "ts": _no_words,
    "pkill": _pkill,
    "uv": _pip,
    **dict.fromkeys("npm pnpm yarn".split(), _npm),
    **dict.fromkeys("grep egrep fgrep zgrep rg ag ack tar zip cp rsync".split(), _broad),
    "find": _find,
    "gfind": _find,
    "sed": sed,
    "gsed": sed,
    "awk": awk,
    "gawk": awk,
    "mawk": awk,
    "nawk": awk,
    "make": _make,
    "gmake": _make,
    "pip": _pip,
    "pip3": _pip,
    "uniq": _second_is_output,
    "xxd": _second_is_output,
    "date": _sets_by_word,
    "hostname": _sets_by_word,
    "dc": _dc,
    "less": _less,
    "more": _less,
    "mapfile": _shell_words,
    "readarray": _shell_words,
    "sqlite3": _sqlite,
    "duckdb": _sqlite,
}
_SPECIAL: frozenset[str] = frozenset().union(
    _ALTERS, _TRAPS, _NEVER, _NAMES, _SETS, _CHECKS, RUNNING, WRITING, FETCHING
)
"""Every program that there is something to say about."""
