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

ScanLevel: TypeAlias = Literal["high", "medium", "low"]
_LEVELS: tuple[ScanLevel, ...] = ("high", "medium", "low")
_MAGIC = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_FETCH = r"(?:curl|wget|fetch|iwr|invoke-webrequest|http[s]?ie|aria2c)\b"
_SHELL = (
    r"(?:sudo\s+)?(?:env\s+)?(?:/\S*/)?"
    r"(?:(?:ba|z|da|k|fi)?sh\b|(?:python|perl|ruby|node|php)[\d.]*\b)"
)
_RULES: tuple[tuple[ScanLevel, str, str], ...] = (
    ("high", rf"(?i){_FETCH}[^\n|;]{{0,400}}\|[\s\\]*(?:{_SHELL})", "downloads and runs"),
    (
        "high",
        rf"(?i)(?:{_SHELL})\s*(?:-c\s*)?[\"']?(?:<\(|\$\(|`)\s*{_FETCH}",
        "downloads and runs",
    ),
    ("high", rf"(?i)\b(?:eval|source|\.)\s+[\"']?(?:<\(|\$\(|`)\s*{_FETCH}", "downloads and runs"),
    (
        "high",
        rf"(?i){_FETCH}[^\n]{{0,300}}(?:-o|-O|>|--output)\s*(\S+)[\s\S]{{0,300}}?"
        r"(?:chmod\s+\S*x\S*|(?:ba|z)?sh|source)\s+\S*\1",
        "downloads and runs",
    ),
    (
        "high",
        r"(?i)base64\s+(?:-d|-D|--decode)[^\n]{0,200}\|[\s\\]*(?:ba|z|da)?sh\b",
        "runs base64",
    ),
    (
        "high",
        r"(?i)exec\s*\(\s*(?:base64|codecs|zlib|requests|urllib)",
        "runs decoded or fetched code",
    ),
    (
        "high",
        r"(?i)\b(?:iex|invoke-expression)\b[^\n]{0,200}(?:download|http)",
        "downloads and runs",
    ),
    (
        "high",
        r"\brm\s+(?:-[a-zA-Z-]+\s+)*-[a-zA-Z]*[rR][a-zA-Z]*\s+(?:-[a-zA-Z-]+\s+)*"
        r"[\"']?(?:/|~/?|\$HOME/?|\$\{HOME\}/?)[\"']?\*?(?:\s|$|[;&|])",
        "deletes everything",
    ),
    ("high", r"\bmkfs(?:\.\w+)?\s|\bdd\s[^\n]{0,200}of=/dev/[a-z]|:\(\)\s*\{\s*:\|:&", "destroys"),
    (
        "high",
        r"(?i)\.ssh/(?:id_|authorized_keys|config)|\.aws/credentials|\.gnupg\b|\.netrc\b|/etc/shadow"
        r"|\.git-credentials|\.kube/config|\.docker/config\.json|keychain[s]?/login|\.config/gcloud",
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
_MAX_DEPTH = 3


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
    if "\0" in text:  # not a text; its beginning was looked at
        return
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if reveal_hidden(line) != line:
            yield ScanFinding("high", path, number, "has hidden characters")
            return


def _match_rules(path: str, text: str, line: int, depth: int) -> Iterator[ScanFinding]:
    """Matches of the rules, also in what base64 hides. `line`: of the blob it was decoded from."""
    joined = text.replace("\\\n", "  ")  # as long as it was, so that lines can be counted
    for level, pattern, reason in _RULES:
        for match in compile_pattern(pattern).finditer(joined):
            number = line or text.count("\n", 0, match.start()) + 1
            yield ScanFinding(level, path, number, f"{reason} (in base64)" if line else reason)
            break
    if depth == _MAX_DEPTH:
        return
    for match in re.finditer(_BLOB, text):
        decoded = _decode_blob(match[0])
        if decoded is None:
            continue
        number = line or text.count("\n", 0, match.start()) + 1
        if decoded.startswith(_MAGIC):
            yield ScanFinding("high", path, number, "is a native program (in base64)")
        for finding in _match_rules(path, decoded.decode("utf-8", "replace"), number, depth + 1):
            if finding.level == "high":
                yield finding


def _decode_blob(blob: str) -> bytes | None:
    """What a run of base64 characters stands for, if that is text or a program."""
    raw = blob.rstrip("=").replace("-", "+").replace("_", "/")
    raw = raw[: len(raw) - (len(raw) % 4 == 1)]
    try:
        data = base64.b64decode(raw + "=" * (-len(raw) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    printable = sum(32 <= byte < 127 or byte in (9, 10, 13) for byte in data)
    return data if data.startswith(_MAGIC) or printable >= 0.9 * len(data) else None
