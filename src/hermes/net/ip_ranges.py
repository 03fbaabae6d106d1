"""Tells which IP addresses belong to the public internet, in whatever form they are written."""

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

IPAddress: TypeAlias = IPv4Address | IPv6Address

_NON_PUBLIC_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure WireServer
        "169.254.0.0/16",  # link-local; metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata
        "192.0.2.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",  # multicast, reserved, broadcast
    )
)
_METADATA_V4 = (IPv4Network("169.254.0.0/16"), IPv4Network("168.63.129.16/32"))
_GLOBAL_V6 = IPv6Network("2000::/3")
_NON_PUBLIC_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",
        "2002::/16",  # 6to4: obsolete, and a detour to an IPv4 address
        "3ffe::/16",  # returned to the pool
        "3fff::/20",  # documentation
    )
)
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_ISATAP = (0x00005EFE, 0x02005EFE)
_METADATA_V6 = (IPv6Address("fd00:ec2::254"), IPv6Address("fd20:ce::254"))


def is_public(address: IPAddress) -> bool:
    """Whether this is a host on the public internet; so must an embedded IPv4 address be."""
    if isinstance(address, IPv4Address):
        return not any(address in net for net in _NON_PUBLIC_V4)
    inner = embedded_ipv4(address)
    if inner is not None and not is_public(inner):
        return False
    if address in _MAPPED or address in _NAT64:
        return address.scope_id is None
    return (
        address in _GLOBAL_V6
        and not any(address in net for net in _NON_PUBLIC_V6)
        and address.scope_id is None
    )


def embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address at which a packet to this address would arrive."""
    number = int(address)
    if address in _MAPPED or address in _NAT64 or number >> 32 == 0:
        return IPv4Address(number & 0xFFFFFFFF)
    if address in _6TO4:
        return IPv4Address(number >> 80 & 0xFFFFFFFF)
    if number >> 32 & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(number & 0xFFFFFFFF)
    return None


def is_disguised_ipv4(address: IPAddress) -> bool:
    """Whether an IPv4 address is written as an IPv6 one. That is never legitimate in a URL;
    `is_public` accepts it because resolvers of networks without IPv4 return it (NAT64)."""
    return isinstance(address, IPv6Address) and embedded_ipv4(address) is not None


def is_metadata_service(address: IPAddress) -> bool:
    """Whether a cloud's metadata service may be here, which hands out a machine's credentials. No
    name may resolve to it."""
    if isinstance(address, IPv6Address):
        inner = embedded_ipv4(address)
        if inner is not None:
            return is_metadata_service(inner)
        return address.is_link_local or address in _METADATA_V6
    return any(address in net for net in _METADATA_V4) or address == IPv4Address("192.0.0.192")


def is_own_address(address: IPAddress) -> bool:
    """Whether this is an address of this machine, which would be reached behind its firewall."""
    inner = embedded_ipv4(address) if isinstance(address, IPv6Address) else None
    if inner is not None:
        return is_own_address(inner)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))  # sends nothing, only selects a route
            return ip_address(probe.getsockname()[0]) == address
    except (OSError, ValueError):
        return False


def is_reachable(address: IPAddress) -> bool:
    """Whether it is public, and not this machine under its public address."""
    return is_public(address) and not is_own_address(address)
