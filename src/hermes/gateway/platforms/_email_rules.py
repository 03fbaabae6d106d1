"""Which mail counts, which is never answered, to which conversation it belongs, what it says."""

import hashlib
import re
from collections.abc import Collection
from email.message import Message
from email.utils import getaddresses
from html.parser import HTMLParser

_RESULT = re.compile(r"(dmarc|dkim|spf)\s*=\s*(\w+)(.*)", re.DOTALL | re.IGNORECASE)
_PROPERTY = re.compile(r"([a-z]+\.[a-z]+)\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)
_MESSAGE_ID = re.compile(r"<[^<>\s]+>")
_OWN_ID = re.compile(r"<hermes\.([0-9a-f]{16})\.[0-9a-f]+@[^<>\s]+>")
_ROBOT = re.compile(
    r"(?:^|[-_.+])(?:(?:no|do[-_.]?not)[-_.]?reply|mailer-daemon)(?:[-_.+]|$)", re.I
)
_BLOCKS = frozenset("p div br tr li h1 h2 h3 h4 h5 h6 blockquote pre table".split())
_QUOTE_HEADS = {
    2: re.compile(r"(On|Am|Le|El|Il) .+:$"),
    1: re.compile(r".*\b(wrote|schrieb|écrit|escribió|scritto)\b.*:$"),
}
"""The line above a quotation, which mail programs may break in two."""
_MOST_REFERENCES = 20


def read_sender(headers: Message) -> tuple[str, str]:
    """The address, in small letters, and the name; both empty when there is not exactly one."""
    found = [
        (name, address)
        for name, address in getaddresses([str(v) for v in headers.get_all("From", [])])
        if address
    ]
    if len(found) != 1 or found[0][1].count("@") != 1 or not found[0][1].isascii():
        return "", ""
    return found[0][1].lower(), found[0][0]


def strip_results(value: str) -> str:
    """The results without comments, and without what has a meaning inside quotes: senders choose
    the words there."""
    kept: list[str] = []
    depth, is_quoted, is_escaped = 0, False, False
    for character in value:
        if is_escaped or (character == "\\" and (depth or is_quoted)):
            is_escaped = not is_escaped
        elif character == '"' and not depth:
            is_quoted = not is_quoted
        elif character == "(" and not is_quoted:
            depth += 1
            kept.append(" ")
        elif character == ")" and depth:
            depth -= 1
        elif not depth:
            is_data = is_quoted and (character in ";=()" or character.isspace())
            kept.append("_" if is_data else character)
    return "".join(kept)


def is_authenticated(headers: Message, domain: str, authserv: str) -> bool:
    """Whether our own mail server vouches that the mail comes from this domain. Only the topmost
    result of that server counts: everybody can write the others."""
    for value in headers.get_all("Authentication-Results", []):
        server, *results = strip_results(str(value)).split(";")
        name = (server.split() or [""])[0]
        if name.lower() != authserv.lower() or not authserv:
            continue
        return any(_is_aligned(result, domain) for result in results)
    return False


def _is_aligned(result: str, domain: str) -> bool:
    found = _RESULT.match(result.strip())
    if found is None or found[2].lower() != "pass":
        return False
    values = {key.lower(): value.lower() for key, value in _PROPERTY.findall(found[3])}
    match found[1].lower():
        case "dmarc":
            return values.get("header.from") == domain
        case "dkim":
            signer = values.get("header.d") or values.get("header.i", "")
        case _:
            signer = values.get("smtp.mailfrom") or ""
    signer = signer.rpartition("@")[2]
    return bool(signer) and (domain == signer or domain.endswith(f".{signer}"))


def is_automatic(headers: Message, sender: str) -> bool:
    """Whether a program wrote the mail, or a list sent it: such mail is never answered."""
    submitted = str(headers.get("Auto-Submitted", "no")).partition(";")[0].strip().lower()
    suppressed = str(headers.get("X-Auto-Response-Suppress", "none")).strip().lower()
    precedence = str(headers.get("Precedence", "")).strip().lower()
    path = headers.get("Return-Path")
    return (
        submitted != "no"
        or suppressed != "none"
        or precedence in ("bulk", "list", "junk")
        or "List-Id" in headers
        or (path is not None and str(path).strip() in ("", "<>"))
        or _ROBOT.search(sender.partition("@")[0]) is not None
    )


def read_message_id(headers: Message) -> str:
    """The id of the mail; one made of its headers when it has none."""
    found = _MESSAGE_ID.search(str(headers.get("Message-ID", "")))
    if found is not None:
        return found[0]
    digest = hashlib.sha256(str(headers.items()).encode(errors="replace")).hexdigest()
    return f"<{digest[:32]}@no-message-id>"


def list_references(headers: Message) -> tuple[str, ...]:
    """The mails that this one follows, the first one first."""
    found = _MESSAGE_ID.findall(str(headers.get("References", "")))
    for id in _MESSAGE_ID.findall(str(headers.get("In-Reply-To", ""))):
        if id not in found:
            found.append(id)
    return tuple(found)


def find_thread(id: str, references: Collection[str]) -> str:
    """The conversation of a mail: that of our own mail which it answers, else the hash of its
    first mail's id."""
    for reference in references:
        if own := _OWN_ID.fullmatch(reference):
            return own[1]
    root = next(iter(references), id)
    return hashlib.sha256(root.encode(errors="replace")).hexdigest()[:16]


def shorten_references(references: tuple[str, ...]) -> tuple[str, ...]:
    """The first and the last ones of a long conversation."""
    if len(references) <= _MOST_REFERENCES:
        return references
    return (references[0], *references[1 - _MOST_REFERENCES :])


class _TextReader(HTMLParser):
    """The text that a mail program shows."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "head"):
            self._hidden += 1
        elif tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style", "head"):
            self._hidden = max(0, self._hidden - 1)
        elif tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(" ".join(data.split("\n")))


def read_html_text(html: str) -> str:
    reader = _TextReader()
    reader.feed(html)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.pieces).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def strip_quote(text: str) -> str:
    """The text without the mail it answers, which is quoted below it."""
    lines = text.replace("\r", "").rstrip().split("\n")
    while lines and (not lines[-1].strip() or lines[-1].startswith(">")):
        lines.pop()
    kept = "\n".join(lines)
    if len(kept) == len(text.replace("\r", "").rstrip()):
        return kept.strip()
    for count, head in _QUOTE_HEADS.items():
        if head.match(" ".join(line.strip() for line in lines[-count:])):
            return "\n".join(lines[:-count]).strip()
    return kept.strip()


def join_text(subject: str, text: str, *, is_first: bool) -> str:
    """What the agent reads: the subject too, where a conversation begins."""
    if not is_first or not subject or text.startswith("/"):
        return text
    return f"Subject: {subject}\n\n{text}".strip()
