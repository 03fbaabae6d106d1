"""Looks through the files of a skill for what could harm whoever follows it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.core.text import compile_pattern
from hermes.core.untrusted_text import reveal_hidden
from hermes.skills.skill import SKILL_FILE

ScanLevel: TypeAlias = Literal["high", "medium", "low"]
_LEVELS: tuple[ScanLevel, ...] = ("high", "medium", "low")
_MAGIC = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_FETCH = r"(?:curl|wget|fetch|iwr|invoke-webrequest|http[s]?ie|aria2c)\b"
_PROGRAM = r"(?:/[\w./-]{0,60}/)?"
_OPTIONS = r"(?:-\S{1,30}\s+){0,4}"
_SHELL = (
    rf"(?:sudo\s+{_OPTIONS})?(?:{_PROGRAM}env\s+(?:\w{{1,30}}=\S{{0,60}}\s+){{0,4}})?"
    rf"(?:xargs\s+{_OPTIONS})?(?:busybox\s+)?{_PROGRAM}"
    r"(?:(?:ba|z|da|k|fi)?sh\b|(?:python|perl|ruby|node|php)[\d.]*\b(?!\s+-[cemr]))"
)
"""What runs the text it is given; not `python -m json.tool` or `perl -e`, which only read it."""
_SUBSTITUTED = r"[\"']?(?:<\(|\$\(|`)\s*"
_DECODE = r"(?:base64\s+(?:-d|-D|--decode)|xxd\s+-\S*r|gunzip|zcat|gzip\s+-\S*d)"
_RUNS_TEXT = r"(?<![.\w])(?:exec|eval|Function)\s*\("
_RUNS_FETCHED = "downloads and runs"
_RUNS_DECODED = "runs decoded or fetched code"
_RULES: tuple[tuple[ScanLevel, str, str], ...] = (
    ("high", rf"(?i){_FETCH}[^\n;]{{0,400}}\|[\s\\]*{_SHELL}", _RUNS_FETCHED),
    ("high", rf"(?i)(?<![\w./-]){_SHELL}\s*(?:-c\s*)?{_SUBSTITUTED}{_FETCH}", _RUNS_FETCHED),
    ("high", rf"(?i)\b(?:eval|source|\.)\s+{_SUBSTITUTED}{_FETCH}", _RUNS_FETCHED),
    ("high", rf"(?i){_DECODE}[^\n]{{0,200}}\|[\s\\]*{_SHELL}", "runs base64"),
    (
        "high",
        rf"(?i)(?:\beval|sh\s+-c|\bsource)\s+{_SUBSTITUTED}[^\n]{{0,300}}{_DECODE}",
        "runs base64",
    ),
    (
        "high",
        rf"(?i){_RUNS_TEXT}[^\n]{{0,80}}?"
        r"(?:base64|b64decode|\batob\b|codecs|zlib|marshal|requests|urllib|urlopen|httpx|\bfetch\()",
        _RUNS_DECODED,
    ),
    (
        "high",
        r"(?i)(?:urlopen|requests\.get|httpx\.get|b64decode|\batob)\s*\("
        rf"[\s\S]{{0,300}}?{_RUNS_TEXT}",
        _RUNS_DECODED,
    ),
    (
        "high",
        r"(?i)\b(?:iex|invoke-expression)\b[^\n]{0,200}(?:download|http)",
        _RUNS_FETCHED,
    ),
    (
        "high",
        r"/dev/(?:tcp|udp)/|\b(?:nc|ncat|netcat)\b[^\n]{0,80}\s-[ec]\s*\S*sh\b",
        "opens a shell to others",
    ),
    (
        "high",
        r"\brm\s+(?:-[a-zA-Z-]{1,30}\s+){0,4}-[a-zA-Z]{0,9}[rR][a-zA-Z]{0,9}\s+(?:-[a-zA-Z-]{1,30}\s+){0,4}"
        r"[\"']?(?:/(?:etc|usr|var|home|boot|bin|sbin|lib|lib64|opt|root|dev|sys)?/?"
        r"|~/?|\$HOME/?|\$\{HOME\}/?)[\"']?\*?(?:\s|$|[;&|])",
        "deletes everything",
    ),
    (
        "high",
        r"\b(?:mkfs(?:\.\w+)?|wipefs|blkdiscard)\s|\bdd\s[^\n]{0,200}of=/dev/[a-z]"
        r"|>\s*/dev/(?:sd|hd|vd|nvme|mmcblk|disk)|:\(\)\s*\{\s*:\|:&"
        rf"|\bch(?:mod|own)\s+{_OPTIONS}-\w{{0,9}}R\w{{0,9}}\s+\S{{1,30}}\s+/(?:\s|$)",
        "destroys",
    ),
    (
        "high",
        r"(?m)(?:^|[;&|`]|\bsudo)[ \t]{0,9}(?:shutdown|reboot|halt|poweroff)"
        r"[ \t]{0,9}(?:-\w|\bnow\b|$|[;&|`])",
        "stops the machine",
    ),
    (
        "high",
        r"(?i)(?:~|\$HOME|\$\{HOME\}|/root|/home/[^\s/]+)/\.ssh\b"
        r"|\.ssh/(?:id_|authorized_keys|config)|\.aws/(?:credentials|config)|\.gnupg\b|\.netrc\b"
        r"|/etc/shadow|\.git-credentials|\.kube/config|\.docker/config\.json|keychain[s]?/login"
        r"|\.config/(?:gcloud|gh/hosts)|~/\.(?:npmrc|pypirc)|/proc/(?:self|\d+|\*|\$\w+)/environ"
        r"|--export-secret|\bsecurity\s+find-\w+-password|\bsecret-tool\s+lookup",
        "reads keys",
    ),
    (
        "high",
        r"(?i)HERMES_HOME|(?:~|\$HOME|\$\{HOME\})/\.hermes\b|\.hermes/(?:\.env|config|logins|memories)",
        "reads the agent's home",
    ),
    (
        "medium",
        r"(?i)ignore\s+(?:all\s+)?(?:previous|prior|above)\s+(?:instructions|rules)"
        r"|do\s+not\s+(?:tell|inform|mention\s+(?:this\s+)?to)\s+the\s+user"
        r"|without\s+(?:asking|telling)\s+the\s+user",
        "tells the agent to hide something or to drop its rules",
    ),
    ("medium", r"\bsudo\s|chmod\s+(?:-R\s+)?(?:a\+w|777)", "changes the system"),
    ("medium", r"(?i)\b(?:printenv|os\.environ|process\.env)\b", "reads the environment"),
    (
        "medium",
        r"(?i)crontab|systemctl\s+enable|launchctl|\.bashrc|\.zshrc|\.profile\b",
        "stays behind",
    ),
    ("low", r"(?i)\bhttps?://[^\s)\"'>]+", "names an address"),
    ("low", r"(?i)\b(?:pip|npm|uv|cargo|gem)\s+(?:install|i|add)\b", "installs packages"),
)
_BLOB = r"[A-Za-z0-9+/_-]{24,}={0,2}"
_BLOB_LINES = r"(?m)(?:^[ \t\"']*+[A-Za-z0-9+/]{16,}+={0,2}+[ \t\"',+\\]*+\n){2,}"
"""Lines of nothing but base64, as programs wrap it. Nothing is tried twice: a long line would cost
hours."""
_MAX_DEPTH = 3
_NAMED = r"(?i)(?:(?:-o|>|--output)\s*|[/=])([\w./~$-]{2,120})(?=[\s\"';&|)]|$)"
"""The files that a line with a download could write: named by an option, or by the address."""
_RUN = r"(?<![\w.])(?:chmod\s+\S{1,9}|(?:ba|z|da)?sh|source)\s+[\"']?([\w./~$-]{2,120})"


class ScanFinding(Struct, frozen=True):
    level: ScanLevel
    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.level} {self.path}:{self.line} {self.reason}"


def scan_files(files: Mapping[str, bytes]) -> list[ScanFinding]:
    """Everything found, the worst first. Each file is read whole."""
    found: dict[ScanFinding, None] = {}
    for path, data in sorted(files.items()):
        shown = reveal_hidden(path).replace("\n", " ")
        if data.startswith(_MAGIC):
            found[ScanFinding("high", shown, 1, "is a native program")] = None
        text = data.decode("utf-8", "replace")
        for finding in (*_find_hidden(shown, text), *_match_rules(shown, text, 0, 0)):
            found[finding] = None
    return sorted(found, key=lambda f: (_LEVELS.index(f.level), f.path, f.line, f.reason))


def is_blocked(findings: list[ScanFinding]) -> bool:
    return any(finding.level == "high" for finding in findings)


def _find_hidden(path: str, text: str) -> Iterator[ScanFinding]:
    if reveal_hidden(text.replace("\r\n", "\n")) == text.replace("\r\n", "\n"):
        return
    if "\0" in text and "\ufffd" in text and not path.endswith(SKILL_FILE):
        return  # not a text; its beginning was looked at
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if reveal_hidden(line) != line:
            yield ScanFinding("high", path, number, "has hidden characters")
            return


def _match_rules(path: str, text: str, line: int, depth: int) -> Iterator[ScanFinding]:
    """Matches of the rules, also in what base64 hides. `line`: of the blob it was decoded from."""
    joined = text.replace("\\\n", "  ")  # as long as it was, so that lines can be counted
    if at := _find_saved_program(joined):
        number = line or text.count("\n", 0, at) + 1
        yield ScanFinding("high", path, number, _RUNS_FETCHED)
    for level, pattern, reason in _RULES:
        for match in compile_pattern(pattern).finditer(joined):
            number = line or text.count("\n", 0, match.start()) + 1
            yield ScanFinding(level, path, number, f"{reason} (in base64)" if line else reason)
            break
    if depth == _MAX_DEPTH:
        return
    blobs = [*re.finditer(_BLOB, text), *compile_pattern(_BLOB_LINES).finditer(text)]
    for match in blobs:
        decoded = _decode_blob(match[0])
        if decoded is None:
            continue
        number = line or text.count("\n", 0, match.start()) + 1
        if decoded.startswith(_MAGIC):
            yield ScanFinding("high", path, number, "is a native program (in base64)")
        for finding in _match_rules(path, decoded.decode("utf-8", "replace"), number, depth + 1):
            if finding.level == "high":
                yield finding


def _find_saved_program(text: str) -> int:
    """Where something is downloaded into a file that is run afterwards; 0: nowhere."""
    for match in compile_pattern(rf"(?i)\b{_FETCH}").finditer(text):
        rest = text[match.start() : match.start() + 700]
        end = rest.find("\n") if "\n" in rest else len(rest)
        saved = {_base_name(name) for name in re.findall(_NAMED, rest[:end])}
        if saved and saved.intersection(map(_base_name, re.findall(_RUN, rest))):
            return match.start()
    return 0


def _base_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _decode_blob(blob: str) -> bytes | None:
    """What a run of base64 characters stands for, if that is text or a program."""
    raw = re.sub(r"[\s\"',\\]", "", blob).rstrip("=").replace("-", "+").replace("_", "/")
    raw = raw[: len(raw) - (len(raw) % 4 == 1)]
    try:
        data = base64.b64decode(raw + "=" * (-len(raw) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    printable = sum(32 <= byte < 127 or byte in (9, 10, 13) for byte in data)
    return data if data.startswith(_MAGIC) or printable >= 0.9 * len(data) else None
