"""Parses a URL once and strictly: refuses whatever two parsers could read differently."""

import re
import unicodedata
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Struct

from hermes.net.errors import EgressError
from hermes.net.ip_ranges import IPAddress

MAX_LENGTH = 8192
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SHAPE = re.compile(r"(https?)://([^/?#]+)([/?#].*)?", re.I | re.S)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_V6 = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::([1-9][0-9]{0,4})?)?")
_NAMED = re.compile(r"([^:\[\]@%]+)(?::([1-9][0-9]{0,4})?)?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_QUAD = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}")
_SAFE = "%/:?#[]@!$&'()*+,;=-._~|"
_INTERNAL_SUFFIXES = frozenset(
    "localhost localdomain localdomain6 local internal intranet lan corp home private onion "
    "svc cluster consul".split()
)
# Names under public suffixes that clouds resolve to their metadata services.
_METADATA_HOSTS = frozenset({"metadata.goog", "metadata.tencentyun.com"})
# As in browsers: other protocols could take an HTTP request for one of their own.
_BLOCKED_PORTS = frozenset(
    int(word)
    for word in (
        "1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 "
        "111 113 115 117 119 123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 "
        "532 540 548 554 556 563 587 601 636 989 990 993 995 1719 1720 1723 2049 2375 2376 3306 "
        "3389 3659 4045 4190 5060 5061 5432 5900 6000 6379 6566 6665 6666 6667 6668 6669 6679 "
        "6697 9200 10080 11211 27017"
    ).split()
)


class ParsedUrl(Struct, frozen=True):
    """A URL in canonical form: lower-case ASCII, with a port."""

    scheme: str
    host: str
    """A name without a final dot, or an IP address without brackets."""
    port: int
    target: str
    """Path and query, as a request sends them."""
    literal: IPAddress | None = None
    """The host, if it is an IP address."""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def is_internal(self) -> bool:
        """Whether the name can only belong to a private network."""
        if self.literal is not None:
            return False
        labels = self.host.split(".")
        has_suffix = labels[-1] in _INTERNAL_SUFFIXES or labels[-2:] == ["home", "arpa"]
        return len(labels) == 1 or has_suffix or self.host in _METADATA_HOSTS

    @property
    def has_blocked_port(self) -> bool:
        return self.port in _BLOCKED_PORTS


def parse_url(url: str) -> ParsedUrl:
    """Raises an EgressError that says what is wrong."""
    if len(url) > MAX_LENGTH:
        raise EgressError(f"The URL is longer than {MAX_LENGTH} characters.")
    _check_characters(url)
    match = _SHAPE.fullmatch(url)
    if match is None:
        if not _SCHEME.match(url) or url.lower().startswith(("http:", "https:")):
            raise EgressError("That is not a complete URL; write https://host/path.")
        raise EgressError("Only http:// and https:// URLs can be fetched.")
    scheme, authority, path = match[1].lower(), match[2], match[3] or "/"
    if "@" in authority:
        raise EgressError("A URL with a user name or password is not fetched.")
    host, port, literal = _parse_authority(authority)
    target = quote(path.partition("#")[0], safe=_SAFE) or "/"
    if not target.startswith("/"):
        target = "/" + target
    found = ParsedUrl(scheme, host, port or _DEFAULT_PORTS[scheme], target, literal)
    _check_agreement(url, found)
    return found


def resolve_redirect(base: ParsedUrl, reference: str) -> ParsedUrl:
    """The URL that a redirect leads to."""
    reference = reference.strip(" \t").replace(" ", "%20")
    _check_characters(reference)
    try:
        return parse_url(urljoin(base.text, reference))
    except ValueError:
        raise EgressError(f"{base.host} redirects to something that is not a URL.") from None


def split_host_port(entry: str) -> tuple[str, int | None]:
    """`host[:port]` from an operator's list; the host in the form of `ParsedUrl.host`."""
    text = entry.strip()
    if text.count(":") > 1 and not text.startswith("["):
        text = f"[{text}]"
    host, port, _ = _parse_authority(text)
    return host, port


def _check_characters(url: str) -> None:
    for char in url:
        if "!" <= char <= "~" and char != "\\":
            continue
        if char == "\\" or char.isspace() or unicodedata.category(char)[0] in "CZ":
            raise EgressError(
                "A URL must not contain spaces, backslashes or control characters; "
                "percent-encode them."
            )


def _parse_authority(text: str) -> tuple[str, int | None, IPAddress | None]:
    if text.startswith("["):
        match = _V6.fullmatch(text)
        if match is None:
            raise EgressError("The URL's host is not a valid IPv6 address.")
        try:
            literal = IPv6Address(match[1])
        except AddressValueError:
            raise EgressError("The URL's host is not a valid IPv6 address.") from None
        return str(literal), _parse_port(match[2]), literal
    match = _NAMED.fullmatch(text)
    if match is None:
        raise EgressError("The URL's host or port is malformed.")
    host, port = _to_ascii(match[1]).removesuffix("."), _parse_port(match[2])
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        if not _QUAD.fullmatch(host):
            raise EgressError("An IPv4 address must be written as four plain decimal numbers.")
        try:
            return host, port, IPv4Address(host)
        except AddressValueError:
            raise EgressError("The URL's host is not a valid IPv4 address.") from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise EgressError("The URL's host name is malformed.")
    return host, port, None


def _parse_port(text: str | None) -> int | None:
    if text is None:
        return None
    if int(text) > 65535:
        raise EgressError("The URL's port does not exist.")
    return int(text)


def _to_ascii(host: str) -> str:
    """Punycode for other scripts; refuses look-alikes of ASCII letters, digits and dots."""
    if host.isascii():
        return host.lower()
    from idna import IDNAError, encode

    if host.replace(".", "").isnumeric():
        raise EgressError("An IPv4 address must be written as four plain decimal numbers.")
    for char in host:
        folded = unicodedata.normalize("NFKC", char)
        if not char.isascii() and (char in "。｡．․" or any(c.isascii() for c in folded)):
            raise EgressError("The URL's host imitates ASCII characters; write it in plain ASCII.")
    plain = unicodedata.normalize("NFC", host)
    try:
        return encode(plain, uts46=True).decode("ascii").lower()
    except IDNAError:
        pass  # such as a heart: the older rules allow it, and browsers follow them
    try:
        return plain.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise EgressError("The URL's host name is not a valid international name.") from None


def _check_agreement(url: str, found: ParsedUrl) -> None:
    """Refuse the URL unless two other parsers see the same host and port."""
    from yarl import URL

    try:
        parts = urlsplit(url)
        stdlib = parts.hostname or "", parts.port or _DEFAULT_PORTS[found.scheme]
        other = URL(url)
        yarl = other.raw_host or "", other.port
        canonical = URL(found.text, encoded=True)
    except (ValueError, TypeError, LookupError):  # parsers have bugs of their own
        raise EgressError("The URL is malformed.") from None
    hosts = (stdlib, yarl, (canonical.raw_host or "", canonical.port))
    seen = {(_normalize_host(host), port) for host, port in hosts}
    if seen != {(found.host, found.port)}:
        raise EgressError("The URL's host can be read in more than one way.")


def _normalize_host(host: str) -> str:
    if ":" in host:
        try:
            return str(IPv6Address(host))
        except AddressValueError:
            return ""
    return _to_ascii(host).removesuffix(".")
