"""Guards against SSRF: resolves and checks a URL once, then connects to exactly that address."""

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable, Collection
from ipaddress import ip_address
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from hermes.config.env import find_proxy
from hermes.core.escalation import PACKAGES
from hermes.net.errors import EgressError, UnknownHostError
from hermes.net.ip_ranges import (
    IPAddress,
    is_disguised_ipv4,
    is_metadata_service,
    is_public,
    is_reachable,
)
from hermes.net.url import ParsedUrl, parse_url, split_host_port

Resolve: TypeAlias = Callable[[str, int], Awaitable[Collection[str]]]
"""(name, port) -> IP addresses, in the order to try them."""

CONNECT_TIMEOUT = 10.0
_MAX_ADDRESSES = 4
_HOST = re.compile(r"(\*\.)?((?:[\w-]+\.)*[\w-]+)(?::\d+)?")
_SECOND_LEVEL = frozenset(
    "com net org edu gov mil gob gouv asso nom ltd plc info biz co ac or ne go gv".split()
)
_WEB_PORTS = (80, 443)


class CheckedRoute(Struct, frozen=True):
    """A URL that passed every check, with the only addresses that may be contacted for it."""

    url: ParsedUrl
    addresses: tuple[str, ...]
    """Empty for an allowed name that only the proxy can resolve."""
    proxy: str = ""


class SsrfGuard:
    """The checks. `allow` lists internal hosts that the operator permits: `host` on the two web
    ports, `host:port` on that port."""

    def __init__(
        self,
        allow: Collection[str] = (),
        *,
        resolve: Resolve | None = None,
        public: Callable[[IPAddress], bool] = is_reachable,
        proxy: Callable[[str], str | None] = find_proxy,
    ) -> None:
        self._resolve = resolve or resolve_host
        self._public = public
        self._proxy = proxy
        self._allow: set[tuple[str, int]] = set()
        for entry in allow:
            host, port = split_host_port(entry)
            self._allow.update((host, p) for p in ([port] if port else _WEB_PORTS))

    async def check_url(self, url: ParsedUrl) -> CheckedRoute:
        """Resolves the name once. Raises EgressError when it must not be contacted."""
        allowed = (url.host, url.port) in self._allow
        if not allowed:
            if url.has_blocked_port:
                raise EgressError(f"Port {url.port} is not a web port and is not contacted.")
            if url.is_internal:
                raise EgressError(_refusal_text(url.host))
        proxy = self._proxy(url.text) or ""
        if url.literal is not None:
            if not allowed and (is_disguised_ipv4(url.literal) or not self._public(url.literal)):
                raise EgressError(_refusal_text(url.host))
            return CheckedRoute(url, (str(url.literal),), proxy)
        found = await self._resolve_addresses(url, optional=bool(allowed and proxy))
        for address in found:
            if is_metadata_service(address) or not (allowed or self._public(address)):
                raise EgressError(_refusal_text(url.host))
        return CheckedRoute(url, tuple(map(str, found[:_MAX_ADDRESSES])), proxy)

    def explain_ungrantable(self, entry: str) -> str:
        """Why no answer lets a command reach a host; empty when a person may grant it."""
        found = _HOST.fullmatch(entry)
        shape = f"{entry!r} is no host; write name, name:port, *.name.tld or packages"
        if entry == PACKAGES or found is None or (found[1] and _is_suffix(found[2])):
            return "" if entry == PACKAGES else shape
        try:
            url = parse_url(f"https://{entry.removeprefix('*.')}/")
        except EgressError as error:
            return f"{shape}. {error}"
        internal = url.is_internal or not (url.literal is None or is_public(url.literal))
        if (url.host, url.port) in self._allow or not (internal or url.has_blocked_port):
            return ""
        why = "is not on the public internet" if internal else f"has port {url.port}, no web port"
        return f"{entry} {why}: that needs web.allow_hosts, or unconfined"

    async def _resolve_addresses(self, url: ParsedUrl, *, optional: bool) -> list[IPAddress]:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                texts = await self._resolve(url.host, url.port)
            found = [ip_address(text) for text in texts]
        except (OSError, ValueError, UnicodeError):
            found = []
        if not found and not optional:
            raise UnknownHostError(f"The name {url.host} cannot be resolved.")
        return found


async def resolve_host(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _is_suffix(name: str) -> bool:
    """Whether anybody may have a name below this one: `com`, and most likely `co.uk`."""
    labels = name.split(".")
    country = len(labels) == 2 and len(labels[1]) == 2
    return len(labels) < 2 or (country and labels[0] in _SECOND_LEVEL)


def _refusal_text(host: str) -> str:
    return (
        f"{host} is not on the public internet and is not contacted; "
        "the operator can allow it in web.allow_hosts."
    )


async def connect_route(route: CheckedRoute) -> socket.socket:
    """A connected, non-blocking socket to the first address that answers."""
    host = route.url.host
    failure = "it has no address"
    for address in route.addresses or ("",):
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await _connect_address(route, address)
        except TimeoutError:
            failure = "no answer"
        except OSError as error:
            failure = describe_os_error(error)
    raise EgressError(f"No connection to {host}: {failure}.")


def describe_os_error(error: OSError) -> str:
    """In words, from its number: the message itself may contain addresses."""
    return os.strerror(error.errno).lower() if error.errno else str(error) or type(error).__name__


async def _connect_address(route: CheckedRoute, address: str) -> socket.socket:
    port = route.url.port
    if not route.proxy:
        return await _open_socket(address, port)
    proxy = urlsplit(route.proxy)
    if proxy.scheme not in ("http", "socks5", "socks5h") or not proxy.hostname:
        raise EgressError(
            "The proxy in the environment is of an unsupported kind; "
            "set HTTPS_PROXY to an http:// or socks5:// proxy."
        )
    open_tunnel = _open_http_tunnel if proxy.scheme == "http" else _open_socks_tunnel
    proxy_port = proxy.port or (8080 if proxy.scheme == "http" else 1080)
    (proxy_address, *_) = await resolve_host(proxy.hostname, proxy_port)
    sock = await _open_socket(proxy_address, proxy_port)
    user = (unquote(proxy.username or ""), unquote(proxy.password or ""))
    try:
        await open_tunnel(sock, address or route.url.host, port, user)
    except BaseException:
        sock.close()
        raise
    return sock


async def _open_socket(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


async def _open_http_tunnel(
    sock: socket.socket, host: str, port: int, user: tuple[str, str]
) -> None:
    """CONNECT to the checked address, not to the name: the proxy must not resolve it again."""
    from base64 import b64encode

    loop = asyncio.get_running_loop()
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if user[0]:
        token = b64encode(f"{user[0]}:{user[1]}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {token}")
    await loop.sock_sendall(sock, ("\r\n".join(lines) + "\r\n\r\n").encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        # Byte by byte: whatever follows the head already belongs to the tunnel.
        data = await loop.sock_recv(sock, 1)
        if not data or len(head) > 16384:
            raise OSError("the proxy gave no valid response")
        head += data
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        code = (status or [b"?"])[0].decode("latin-1")[:3]
        raise OSError(f"the proxy refused ({code})")


async def _open_socks_tunnel(
    sock: socket.socket, host: str, port: int, user: tuple[str, str]
) -> None:
    loop = asyncio.get_running_loop()
    method = b"\x02" if user[0] else b"\x00"
    await loop.sock_sendall(sock, b"\x05\x01" + method)
    if await _receive_exactly(sock, 2) != b"\x05" + method:
        raise OSError("the SOCKS proxy refused the connection")
    if user[0]:
        name, password = (part.encode()[:255] for part in user)
        login = b"\x01" + bytes([len(name)]) + name + bytes([len(password)]) + password
        await loop.sock_sendall(sock, login)
        if (await _receive_exactly(sock, 2))[1]:
            raise OSError("the SOCKS proxy refused the login")
    target = _encode_socks_host(host) + port.to_bytes(2, "big")
    await loop.sock_sendall(sock, b"\x05\x01\x00" + target)
    reply = await _receive_exactly(sock, 4)
    if reply[1]:
        raise OSError(f"the SOCKS proxy refused ({reply[1]})")
    size = {1: 4, 4: 16}.get(reply[3]) or (await _receive_exactly(sock, 1))[0]
    await _receive_exactly(sock, size + 2)


def _encode_socks_host(host: str) -> bytes:
    try:
        packed = ip_address(host).packed
    except ValueError:
        return b"\x03" + bytes([len(host)]) + host.encode("ascii")
    return (b"\x01" if len(packed) == 4 else b"\x04") + packed


async def _receive_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        received = await asyncio.get_running_loop().sock_recv(sock, count - len(data))
        if not received:
            raise OSError("the SOCKS proxy closed the connection")
        data += received
    return data
