"""The fetcher and its guard: nothing that is not public gets through, everything that is does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import idna
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hermes.net.errors import EgressError
from hermes.net.fetcher import WebFetcher
from hermes.net.ip_ranges import embedded_ipv4, is_disguised_ipv4, is_public
from hermes.net.ssrf import SsrfGuard
from hermes.net.url import parse_url, resolve_redirect
from tests.unit.net.ssrf_corpus import BAD, GOOD, PUBLIC, REBOUND


async def world(host: str, port: int) -> list[str]:
    """A resolver for which every unknown name is public: a bad URL has to fail by itself."""
    return REBOUND.get(host, PUBLIC).split()


def fetcher(**changes: object) -> WebFetcher:
    return WebFetcher(**{"resolve": world, "proxy": lambda url: None, **changes})  # type: ignore[arg-type]


class _Loop:
    """One event loop for all examples: making one costs more than a check."""

    runner: asyncio.Runner

    def __call__(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)


run = _Loop()


@pytest.fixture(scope="module", autouse=True)
def _loop() -> Iterator[None]:
    with asyncio.Runner() as run.runner:
        yield


def test_the_corpora_are_as_large_as_promised() -> None:
    assert len(BAD) >= 300
    assert len(GOOD) >= 200


async def test_no_bad_address_passes() -> None:
    passed = []
    for url in BAD:
        with suppress(EgressError):
            passed.append((url, await fetcher().check_url(url)))
    assert passed == []


async def test_every_good_address_passes() -> None:
    refused = []
    for url in GOOD:
        try:
            await fetcher().check_url(url)
        except EgressError as error:
            refused.append((url, str(error)))
    assert refused == []


async def test_a_proxy_of_the_environment_changes_no_verdict() -> None:
    behind = fetcher(proxy=lambda url: "http://127.0.0.1:1")
    for url in BAD[::3]:
        with pytest.raises(EgressError):
            await behind.check_url(url)
    assert (await behind.check_url("https://example.com/")).addresses == (PUBLIC,)


_HOSTLIKE = st.text(alphabet="0123456789abcdefxX.:[]%@/\\ -１①。٣é\u200b\x00?#", max_size=40)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), _HOSTLIKE.map(lambda t: f"http://{t}")))
def test_fuzz_only_public_literals_and_only_one_error(url: str) -> None:
    try:
        route = run(fetcher().check_url(url))
    except EgressError:
        return
    assert all(is_public(ip_address(a)) for a in route.addresses)
    assert "@" not in route.url.authority


_PIECES = [
    *r"a.com 127.0.0.1 @ : 80 / \ ? # [ ] ::1 %2f %40 ; & . 。 ß １ user % | ^ //".split(),
    *"\t\n \x00",
]


def _read_by(parser: Callable[[str], str | None], url: str) -> str | None:
    try:
        host = parser(url)
    except (ValueError, IndexError):
        return None
    if host and not host.isascii():
        # One parser shows a name as it was written, the other as it is asked for.
        with suppress(idna.IDNAError):
            host = idna.encode(host, uts46=True).decode()
    return host.lower().rstrip(".") if host else None


@settings(max_examples=300, deadline=None)
@example("http://ßa.com80")
@given(
    st.lists(
        st.sampled_from(_PIECES),
        max_size=8,
    ).map(lambda parts: "http://" + "".join(parts))
)
def test_fuzz_where_parsers_disagree_nothing_passes(url: str) -> None:
    from urllib.parse import urlsplit

    from yarl import URL

    hosts = {_read_by(lambda u: urlsplit(u).hostname, url), _read_by(lambda u: URL(u).host, url)}
    if len(hosts) > 1 or None in hosts:
        with pytest.raises(EgressError):
            run(fetcher().check_url(url))
        return
    with suppress(EgressError):
        found = run(fetcher().check_url(url)).url
        assert {found.host, parse_url(f"http://{hosts.pop()}/").host} == {found.host}


@settings(max_examples=250, deadline=None)
@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6), st.sampled_from(["::1", "::"])))
def test_fuzz_literals_agree_with_the_tables(address: object) -> None:
    found = ip_address(str(address))
    host = f"[{found}]" if found.version == 6 else str(found)
    try:
        run(fetcher().check_url(f"http://{host}/"))
        passed = True
    except EgressError:
        passed = False
    assert passed is (is_public(found) and not is_disguised_ipv4(found))
    if passed and isinstance(found, IPv4Address):
        assert found.is_global
    if passed and isinstance(found, IPv6Address):
        assert not (found.is_private or found.is_loopback or found.is_link_local) or (
            found.ipv4_mapped is not None
        )


@settings(max_examples=200, deadline=None)
@given(st.ip_addresses(v=4), st.sampled_from(["mapped", "nat64", "6to4", "isatap"]))
def test_fuzz_embedded_addresses_decide(inner: IPv4Address, form: str) -> None:
    number = int(inner)
    outer = {
        "mapped": 0xFFFF << 32 | number,
        "nat64": 0x64FF9B << 96 | number,
        "6to4": 0x2002 << 112 | number << 80 | 1,
        "isatap": 0x26064700 << 96 | 0x5EFE << 32 | number,
    }[form]
    assert embedded_ipv4(IPv6Address(outer)) == inner
    assert is_public(IPv6Address(outer)) is (is_public(inner) and form != "6to4")
    with pytest.raises(EgressError):
        run(fetcher().check_url(f"http://[{IPv6Address(outer)}]/"))


@settings(max_examples=250, deadline=None)
@given(st.text(alphabet="/\\.:@?#%[]0127abh tp\t\r\n\x00s", max_size=30))
def test_fuzz_redirect_targets(reference: str) -> None:
    try:
        found = resolve_redirect(parse_url("https://example.com/a/b?c"), reference)
    except EgressError:
        return
    assert found.scheme in ("http", "https")
    assert parse_url(found.text) == found


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Bücher.example.com/", "xn--bcher-kva.example.com"),
        ("https://EXAMPLE.com./", "example.com"),
        ("http://[2606:4700:0:0::1111]/", "2606:4700::1111"),
        ("https://faß.de/", "xn--fa-hia.de"),
    ],
)
def test_hosts_have_one_form(url: str, host: str) -> None:
    assert parse_url(url).host == host


def test_targets_are_ascii_and_keep_their_escapes() -> None:
    assert parse_url("https://e.com/ü%2f?q=ä#x").target == "/%C3%BC%2f?q=%C3%A4"
    assert parse_url("https://e.com?x").text == "https://e.com/?x"


# -- the operator's list ---------------------------------------------------------------------------


async def at(address: str, allow: list[str], url: str) -> tuple[str, ...]:
    async def resolve(host: str, port: int) -> list[str]:
        return [address]

    guard = SsrfGuard(allow, resolve=resolve, proxy=lambda u: None)
    return (await guard.check_url(parse_url(url))).addresses


async def test_allowed_hosts_are_exact() -> None:
    allow = ["wiki.corp", "lab:8080", "10.0.0.5:9000", "[fd00::7]:81"]
    assert await at("10.1.1.1", allow, "https://wiki.corp/") == ("10.1.1.1",)
    assert await at("10.1.1.1", allow, "http://WIKI.corp./") == ("10.1.1.1",)
    assert await at("10.1.1.1", allow, "http://lab:8080/") == ("10.1.1.1",)
    assert await at("", allow, "http://10.0.0.5:9000/") == ("10.0.0.5",)
    assert await at("", allow, "http://[fd00:0::7]:81/") == ("fd00::7",)
    for url in (
        "http://wiki.corp:8080/",
        "http://sub.wiki.corp/",
        "http://xwiki.corp/",
        "http://lab/",
        "http://lab:8081/",
        "http://10.0.0.5/",
        "http://10.0.0.5:9001/",
        "http://10.0.0.6:9000/",
        "http://[fd00::8]:81/",
    ):
        with pytest.raises(EgressError):
            await at("10.1.1.1", allow, url)


@pytest.mark.parametrize("address", ["169.254.169.254", "168.63.129.16", "fd00:ec2::254"])
async def test_no_name_leads_to_metadata_even_when_allowed(address: str) -> None:
    with pytest.raises(EgressError):
        await at(address, ["wiki.corp"], "http://wiki.corp/")


async def test_messages_do_not_tell_internal_addresses() -> None:
    with pytest.raises(EgressError) as caught:
        await at("10.99.88.77", [], "https://secret.example.com/")
    assert "10.99.88.77" not in str(caught.value)
    assert "web.allow_hosts" in str(caught.value)


async def test_names_that_do_not_resolve() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(EgressError, match=r"nowhere\.example cannot be resolved"):
        await fetcher(resolve=resolve).check_url("https://nowhere.example/")


def test_this_machines_own_addresses_are_not_public() -> None:
    from hermes.net.ip_ranges import is_own_address, is_reachable

    assert is_own_address(IPv4Address("127.0.0.1"))
    assert is_own_address(IPv6Address("::ffff:127.0.0.1"))
    assert is_own_address(IPv6Address("64:ff9b::7f00:1"))
    assert not is_own_address(IPv4Address("8.8.8.8"))
    assert not is_reachable(IPv4Address("127.0.0.1"))
