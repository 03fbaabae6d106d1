"""Decides once where a request may go, and opens the connection to exactly that address."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Collection
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from hermes.config.env import find_proxy
from hermes.net.errors import EgressError
from hermes.net.ip_ranges import IPAddress, is_disguised_ipv4, is_metadata_service, is_reachable
from hermes.net.url import ParsedUrl, split_host_port

Resolve: TypeAlias = Callable[[str, int], Awaitable[Collection[str]]]
"""(name, port) -> IP addresses, in the order they are to be tried."""

CONNECT_TIMEOUT = 10.0
_MAX_ADDRESSES = 4
_WEB_PORTS = (80, 443)


class CheckedRoute(Struct, frozen=True):
    """A location that passed every check, with the only addresses that may be dialled for it."""

    location: ParsedUrl
    addresses: tuple[str, ...]
    """Empty: an allowed name that only the proxy can resolve."""
    proxy: str = ""


class SsrfGuard:
    """The checks. An operator's `allow` list names internal hosts that may be reached anyway:
    `host` on the two web ports, `host:port` on that one."""

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

    async def check_url(self, location: ParsedUrl) -> CheckedRoute:
        """Resolves the name, once. EgressError when it may not be reached."""
        allowed = (location.host, location.port) in self._allow
        if not allowed:
            if location.has_blocked_port:
                raise EgressError(f"Port {location.port} is not a web port; it is not contacted.")
            if location.is_internal:
                raise EgressError(_refusal_text(location.host))
        proxy = self._proxy(location.url) or ""
        if location.literal is not None:
            if not allowed and (
                is_disguised_ipv4(location.literal) or not self._public(location.literal)
            ):
                raise EgressError(_refusal_text(location.host))
            return CheckedRoute(location, (str(location.literal),), proxy)
        found = await self._resolve_addresses(location, optional=bool(allowed and proxy))
        for address in found:
            if is_metadata_service(address) or not (allowed or self._public(address)):
                raise EgressError(_refusal_text(location.host))
        return CheckedRoute(location, tuple(map(str, found[:_MAX_ADDRESSES])), proxy)

    async def _resolve_addresses(self, location: ParsedUrl, *, optional: bool) -> list[IPAddress]:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                texts = await self._resolve(location.host, location.port)
            found = [_parse_address(text) for text in texts]
        except (OSError, ValueError, UnicodeError):
            found = []
        if not found and not optional:
            raise EgressError(f"The name {location.host} cannot be resolved.")
        return found


async def resolve_host(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _parse_address(text: str) -> IPAddress:
    found = ip_address(text)
    return found if isinstance(found, IPv4Address) else IPv6Address(text)


def _refusal_text(host: str) -> str:
    return (
        f"{host} is not a host of the public internet, so it is not contacted; "
        "the operator can allow it in web.allow_hosts."
    )


# -- opening ---------------------------------------------------------------------------------------


async def connect_route(route: CheckedRoute) -> socket.socket:
    """A connected, non-blocking socket to the first address that answers."""
    host = route.location.host
    last = "it has no address"
    for address in route.addresses or ("",):
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await _connect_address(route, address)
        except TimeoutError:
            last = "no answer"
        except OSError as error:
            last = describe_os_error(error)
    raise EgressError(f"No connection to {host}: {last}.")


def describe_os_error(error: OSError) -> str:
    """In words; by its number, for the texts around it name addresses."""
    return os.strerror(error.errno).lower() if error.errno else str(error) or type(error).__name__


async def _connect_address(route: CheckedRoute, address: str) -> socket.socket:
    port = route.location.port
    if not route.proxy:
        return await _open_socket(address, port)
    proxy = urlsplit(route.proxy)
    schemes = {
        "http": _open_http_tunnel,
        "socks5": _open_socks_tunnel,
        "socks5h": _open_socks_tunnel,
    }
    if proxy.scheme not in schemes or not proxy.hostname:
        raise EgressError(
            "The environment names a proxy of a kind that cannot be used here; "
            "set HTTPS_PROXY to an http:// or socks5:// proxy."
        )
    at = proxy.port or (8080 if proxy.scheme == "http" else 1080)
    (first, *_) = await resolve_host(proxy.hostname, at)
    sock = await _open_socket(first, at)
    user = (unquote(proxy.username or ""), unquote(proxy.password or ""))
    try:
        await schemes[proxy.scheme](sock, address or route.location.host, port, user)
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
    """CONNECT to the checked address, not to the name: the proxy has nothing left to resolve."""
    from base64 import b64encode

    loop = asyncio.get_running_loop()
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {at} HTTP/1.1", f"Host: {at}"]
    if user[0]:
        token = b64encode(f"{user[0]}:{user[1]}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {token}")
    await loop.sock_sendall(sock, ("\r\n".join(lines) + "\r\n\r\n").encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        # By bytes: what follows the head already belongs to the other side.
        data = await loop.sock_recv(sock, 1)
        if not data or len(head) > 16384:
            raise OSError("the proxy gave no valid answer")
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
        raise OSError("the SOCKS proxy refused to talk")
    if user[0]:
        name, word = (part.encode()[:255] for part in user)
        login = b"\x01" + bytes([len(name)]) + name + bytes([len(word)]) + word
        await loop.sock_sendall(sock, login)
        if (await _receive_exactly(sock, 2))[1]:
            raise OSError("the SOCKS proxy refused the login")
    await loop.sock_sendall(
        sock, b"\x05\x01\x00" + _encode_socks_host(host) + port.to_bytes(2, "big")
    )
    answer = await _receive_exactly(sock, 4)
    if answer[1]:
        raise OSError(f"the SOCKS proxy refused ({answer[1]})")
    size = {1: 4, 4: 16}.get(answer[3]) or (await _receive_exactly(sock, 1))[0]
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
        more = await asyncio.get_running_loop().sock_recv(sock, count - len(data))
        if not more:
            raise OSError("the SOCKS proxy hung up")
        data += more
    return data
