"""The browser tools through whole turns: a real Chromium, pages on loopback, a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes.tools.browser import _browser
from tests.flow.browser.conftest import Site, answers, go_on, list_children, on, processes, use
from tests.kit import call, say
from tests.kit.bodies import messages
from tests.kit.processes import until
from tests.kit.rig import rig

# -- driving -----------------------------------------------------------------------------------

SHOP = """
<h1>Shop</h1>
<form action=/found><input name=q aria-label=Search><button>Go</button></form>
<input type=password aria-label=Pin value=opensesame99>
<select aria-label=Size><option>S<option>L</select>
<button onclick="console.error('no such thing'); alert('Really?')">Buy</button>
<button onclick="document.getElementById('p').textContent = 'more is here'">More</button>
<a href=/help target=_blank>Help</a> <a href=/file>Get</a>
<p id=p>less</p><p>hidden\u202etext</p><div style="height:3000px"></div>
<script>console.log('hello from the page'); throw new Error('broken on purpose')</script>
"""

ODD = """
<select aria-label=Size><option>S<option value=2>Medium</select>
<label><input type=checkbox>Agree</label><input type=file aria-label=Up>
"""

SECRET = "sk-other-0123456789abcdef0123456789"


async def test_a_page_is_read_and_driven(
    site: Site, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", SECRET)
    url = site.put("/shop", SHOP, "The Shop")
    site.put("/help", "<h1>Help is here</h1>")
    site.put("/found", "<h1>Found it</h1>")
    steps = [
        call(("c0", "tool_search", {"name": "browser_navigate", "arguments": {"url": url}})),
        on(1, "click", 'button "Buy"'),
        on(2, "click", 'button "More"'),
        on(3, "type", 'combobox "Size"', text="L"),
        on(4, "click", 'link "Get"'),
        use(5, "scroll"),
        on(6, "click", 'link "Help"'),
        use(7, "back"),
        use(8, "press", key="Tab"),
        use(9, "console", errors=True),
        use(10, "vision"),
        on(11, "type", 'textbox "Search"', text="two words", submit=True),
        use(12, "back"),
        use(13, "snapshot", offset=100_000),
        use(14, "click", ref="e9999"),
        use(15, "navigate", url="file:///etc/passwd"),
        use(16, "cdp", method="Runtime.evaluate", params={"expression": "6*7"}),
        use(17, "cdp", method="DOM.setFileInputFiles", params={"files": ["/etc/passwd"]}),
        use(18, "cdp", method="Browser.getVersion"),
        use(30, "navigate", url=site.put("/odd", ODD)),
        on(31, "type", 'combobox "Size"', text="medium"),
        on(32, "type", 'combobox "Size"', text="huge"),
        on(33, "type", 'checkbox "Agree"', text="true"),
        on(34, "click", 'button "Up"'),
        use(35, "press", key="ctrl+a"),
        use(36, "press", key="hop"),
        use(37, "navigate", url=site.put("/blank", "<canvas></canvas>")),
        on(38, "click", 'button "Up"'),
        use(39, "navigate", url=f"{site.base}/file"),
        say("done"),
    ]
    async with rig(tmp_path, steps, config=site.config) as r:
        assert (await r.turn(timeout=90)).status == "completed"
        got = answers(r.requests[-1])
        shop = got[0]
        assert "written by strangers" in shop and f"URL: {url}" in shop and "The Shop" in shop
        assert 'heading "Shop"' in shop and "opensesame99" not in repr(got)
        assert "hidden<U+202E>text" in shop
        assert "a dialog (alert) was dismissed; it said: Really?" in got[1]
        assert "more is here" in got[2] and "heading" not in got[2]
        assert 'option "L" [selected]' in got[3]
        assert "a download was refused: " in got[4] and "evil.sh" in got[4]
        assert re.search(r"At [1-9]\d+ of \d{4} pixels", got[5])
        assert "Help is here" in got[6] and "a new page was opened" in got[6]
        assert f"URL: {url}" in got[7] and "Help is here" not in got[7]
        assert "Focus:" in got[8]
        assert "no such thing" in got[9] and "broken on purpose" in got[9]
        assert "hello from the page" not in got[9]
        pictures = [i for m in messages(r.requests[-1]) for i in m.images]
        assert len(pictures) == 1 and pictures[0].startswith(b"\xff\xd8\xff")
        assert "Found it" in got[11] and "/found?q=two+words" in site.asked
        assert 'heading "Shop"' in got[12]
        assert "nothing at 100000" in got[13]
        assert "take a new browser_snapshot" in got[14]
        assert "Only http:// and https://" in got[15]
        assert '"value":42' in got[16]
        assert "not sent" in got[17] and "not sent" in got[18]
        assert 'option "Medium" [selected]' in got[20] and "it has: 'S', 'Medium'" in got[21]
        assert "use browser_click" in got[22] and "asks for a file" in got[23]
        assert "Focus:" in got[24] and "Enter, Tab" in got[25]
        assert "browser_vision" in got[26] and "no longer on the page" in got[27]
        assert "a file to download" in got[28]
        said = told_tolist_children(scratch)
        assert "--remote-debugging-pipe" in said and "--remote-debugging-port" not in said
        assert "PW_LANG_NAME" in said  # the driver was among them
        assert SECRET not in said
        await strangers_are_refused({r.provider.port, site.port})

        rows = "".join(f"<p>row number {i}</p>" for i in range(2000))
        r.provider.steps[:] = [use(20, "navigate", url=site.put("/long", rows))]
        r.provider.then = go_on
        assert (await r.turn("and a long one", timeout=90)).status == "completed"
        parts = answers(r.requests[-1])[len(got) :]
        assert len(parts) > 3 and all(len(text) < 21_000 for text in parts)
        found = [int(n) for text in parts for n in re.findall(r"row number (\d+)", text)]
        assert found == list(range(2000))
        await r.invariants()
    assert not processes(scratch)
    assert not list((scratch).glob("hermes-browser-*"))
    assert not list(tmp_path.rglob("*evil*"))


# -- the one door ------------------------------------------------------------------------------

ATTEMPTS = """
<p id=state>trying</p>
<iframe src="BAD/iframe"></iframe><iframe src="http://localhost:PORT/named"></iframe>
<img src="BAD/img"><script src="BAD/script"></script><link rel=stylesheet href="BAD/css">
<link rel=prefetch href="BAD/prefetch"><link rel=preconnect href="BAD">
<link rel=dns-prefetch href="//canary.invalid"><object data="BAD/object"></object>
<video src="BAD/video"></video><form id=f method=post target=hidden action="BAD/form"></form>
<iframe name=hidden></iframe><iframe src="http://169.254.169.254/latest/meta-data/"></iframe>
<script>
const late = (p, ms) => Promise.race([p, new Promise(r => setTimeout(r, ms))]);
const pause = () => new Promise(r => setTimeout(r, 200));
const again = (u, n) => fetch(u).catch(e => n ? pause().then(() => again(u, n - 1)) : 0);
const socket = u => new Promise(r => { const s = new WebSocket(u); s.onopen = s.onerror = r; });
const rtc = () => new Promise(r => {
    const pc = new RTCPeerConnection({iceServers: [{urls: 'stun:127.0.0.1:UDP'},
        {urls: 'turn:127.0.0.1:PORT?transport=tcp', username: 'a', credential: 'b'},
        {urls: 'turn:127.0.0.1:UDP?transport=udp', username: 'a', credential: 'b'}]});
    pc.onicegatheringstatechange = () => pc.iceGatheringState === 'complete' && r();
    pc.createDataChannel('x');
    pc.createOffer().then(o => pc.setLocalDescription(o));
});
document.getElementById('f').submit();
navigator.sendBeacon('BAD/beacon', 'x');
const work = new Worker(URL.createObjectURL(new Blob([
    "fetch('BAD/worker', {mode: 'no-cors'}).catch(() => 0).then(() => postMessage(1))"])));
window.finished = Promise.allSettled([
    fetch('BAD/fetch', {mode: 'no-cors'}), fetch('http://[::1]:PORT/six', {mode: 'no-cors'}),
    fetch('http://0.0.0.0:PORT/zero', {mode: 'no-cors'}), fetch('http://2130706433:PORT/'),
    fetch('http://127.1:PORT/short', {mode: 'no-cors'}), fetch('/moved', {mode: 'no-cors'}),
    again('/alive', 100), socket('ws://127.0.0.1:PORT/ws'), socket('wss://127.0.0.1:PORT/wss'),
    new Promise(r => work.onmessage = r), late(rtc(), 1500),
    late(typeof WebTransport === 'undefined' ? 0 :
        new WebTransport('https://127.0.0.1:UDP/').ready, 1500),
]).then(all => all.length);
</script>
"""


@contextlib.asynccontextmanager
async def forbidden() -> AsyncIterator[tuple[int, int, list[str]]]:
    """A TCP and a UDP port of loopback that note whoever comes."""
    came: list[str] = []

    class Notes(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            came.append(f"udp {data[:40]!r}")

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append("tcp")
        writer.close()

    loop = asyncio.get_running_loop()
    udp, _ = await loop.create_datagram_endpoint(Notes, ("127.0.0.1", 0))
    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], udp.get_extra_info("sockname")[1], came
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await until(lambda: "tcp" in came)  # it did listen
        writer.close()
    finally:
        udp.close()
        server.close()


@pytest.mark.parametrize("walls", [True, False])
async def test_nothing_leads_around_the_door(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walls: bool
) -> None:
    """Confined by the kernel, and without that by the browser's settings alone."""
    if not walls:

        async def none(*_: Any) -> None:
            return None

        monkeypatch.setattr(_browser, "_build_root_policy", none)
    async with forbidden() as (port, udp, came):
        bad = f"http://127.0.0.1:{port}"
        page = ATTEMPTS.replace("BAD", bad).replace("PORT", str(port)).replace("UDP", str(udp))
        site.moved = {
            "/moved": f"{bad}/moved",
            "/meta": "http://169.254.169.254/latest/",
            "/loop": f"{bad}/loop",
        }
        wait = {"expression": "window.finished", "awaitPromise": True, "returnByValue": True}
        steps = [
            use(0, "navigate", url=site.put("/page", page)),
            use(1, "cdp", method="Runtime.evaluate", params=wait),
            use(2, "navigate", url=site.base + "/meta"),
            use(3, "navigate", url=site.base + "/loop"),
            use(4, "navigate", url=f"{bad}/direct"),
            use(5, "cdp", method="Page.navigate", params={"url": "file:///etc/passwd"}),
            say("done"),
        ]
        async with rig(tmp_path, steps, config=site.config) as r:
            assert (await r.turn(timeout=90)).status == "completed"
            got = answers(r.requests[-1])
            assert '"value":12' in got[1], got[1]
            assert "/alive" in site.asked
            assert "169.254.169.254 is not on the public internet" in got[2]
            assert "127.0.0.1 is not on the public internet" in got[3]
            assert "127.0.0.1 is not on the public internet" in got[4]
            assert "Only http:// and https://" in got[5]
        assert came == []


async def strangers_are_refused(known: set[int]) -> None:
    """Whatever this process listens on, but for these ports, wants something nobody knows."""
    import aiohttp

    async with aiohttp.ClientSession() as session:
        for port in _listening(os.getpid()) - known:
            for path in ("/", "/json/version", "/devtools/browser"):
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    assert answer.status in (400, 404, 407), (port, path)


def told_tolist_children(scratch: Path) -> str:
    """Environments and command lines of everything we started."""
    said = []
    for pid in {*processes(scratch), *list_children(os.getpid())}:
        for name in ("environ", "cmdline"):
            with contextlib.suppress(OSError):
                said.append(Path(f"/proc/{pid}/{name}").read_text())
    return "\n".join(said)


def _listening(pid: int) -> set[int]:
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(entry.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {
        int(row[1].rpartition(":")[2], 16)
        for row in rows
        if row[3] == "0A" and f"socket:[{row[9]}]" in inodes
    }
