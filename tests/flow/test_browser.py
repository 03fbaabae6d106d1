"""The browser tools through whole turns: a real Chromium, pages on loopback, a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hermes.app.agents import Options
from hermes.core.errors import ToolError
from hermes.core.events import Approval
from hermes.exec.chromium import find_browser
from hermes.tools.browser import _browser
from tests.kit import Home, Provider, Received, Reply, call, say, start_hermes, status
from tests.kit.bodies import messages, quoted
from tests.kit.processes import until
from tests.kit.rig import rig


def _missing() -> str:
    if find_spec("playwright") is None:
        return "Playwright is not installed"
    try:
        find_browser("", os.environ)
    except ToolError:
        return "no Chromium is installed"
    return ""


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing() or "-")


class Site:
    """Pages by path; what was asked for is noted."""

    def __init__(self) -> None:
        self.port = 0
        self.pages: dict[str, str] = {}
        self.moved: dict[str, str] = {}
        self.asked: list[str] = []

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def config(self) -> dict[str, Any]:
        return {"web": {"allow_hosts": [f"127.0.0.1:{self.port}"]}}

    def put(self, path: str, body: str, title: str = "") -> str:
        self.pages[path] = f"<!doctype html><title>{title}</title>{body}"
        return self.base + path

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        if request.path in self.moved:
            return web.Response(status=302, headers={"Location": self.moved[request.path]})
        if request.path == "/file":
            name = 'attachment; filename="../../evil.sh"'
            return web.Response(body=b"rm", headers={"Content-Disposition": name})
        if request.path not in self.pages:
            return web.Response(status=404, text="nothing here")
        return web.Response(text=self.pages[request.path], content_type="text/html")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    runner = web.ServerRunner(web.Server(made.serve), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of its own: what a browser leaves there can be told from what others
    leave. Its name is short, for the paths of sockets."""
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as made:
        monkeypatch.setattr("tempfile.tempdir", made)
        yield Path(made)


def use(number: int, name: str, **args: Any) -> Reply:
    return call((f"c{number}", f"browser_{name}", args))


def on(number: int, name: str, what: str, **args: Any) -> Callable[[Received], Reply]:
    """A call with the ref of the element whose line of the tree begins like this."""

    def step(request: Received) -> Reply:
        trees = "\n".join(reversed(answers(request)))
        found = re.search(rf"- {re.escape(what)}.*?\[ref=(\w+)\]", trees)
        assert found, f"no {what} in {trees}"
        return use(number, name, ref=found[1], **args)

    return step


def answers(request: Received) -> list[str]:
    return [quoted(text) for m in messages(request) for _, text in m.results]


def processes(folder: Path) -> list[int]:
    """Those whose command line names a folder below this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if str(folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def go_on(request: Received) -> Reply:
    """Reads the rest of a page that came in parts."""
    found = re.search(r"continue with browser_snapshot offset=(\d+)", answers(request)[-1])
    number = len(answers(request)) + 20
    return use(number, "snapshot", offset=int(found[1])) if found else say("done")


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
        assert (await r.turn(timeout=40)).status == "completed"
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
        said = told_to_children(scratch)
        assert "--remote-debugging-pipe" in said and "--remote-debugging-port" not in said
        assert "PW_LANG_NAME" in said  # the driver was among them
        assert SECRET not in said
        await strangers_are_refused({r.provider.port, site.port})

        rows = "".join(f"<p>row number {i}</p>" for i in range(2000))
        r.provider.steps[:] = [use(20, "navigate", url=site.put("/long", rows))]
        r.provider.then = go_on
        assert (await r.turn("and a long one", timeout=40)).status == "completed"
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
    fetch('/alive'), socket('ws://127.0.0.1:PORT/ws'), socket('wss://127.0.0.1:PORT/wss'),
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
            assert (await r.turn(timeout=40)).status == "completed"
            got = answers(r.requests[-1])
            assert '"value":12' in got[1], got[1]
            assert "/alive" in site.asked and "/moved" in site.asked
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


def told_to_children(scratch: Path) -> str:
    """Environments and command lines of everything we started."""
    said = []
    for pid in {*processes(scratch), *_children(os.getpid())}:
        for name in ("environ", "cmdline"):
            with contextlib.suppress(OSError):
                said.append(Path(f"/proc/{pid}/{name}").read_text())
    return "\n".join(said)


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
            if stat and int(stat.rpartition(") ")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


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


# -- who is asked ------------------------------------------------------------------------------


async def test_who_is_asked_before_what(site: Site, tmp_path: Path) -> None:
    url = site.put("/a", "<p>a")
    evaluate = {"method": "Runtime.evaluate", "params": {"expression": "6*7"}}
    first = [use(0, "navigate", url=url), use(1, "cdp", **evaluate), say("done")]
    alone = [
        use(2, "cdp", **evaluate),
        call(("c3", "read_file", {"path": "notes.txt"})),
        use(4, "navigate", url=url + "?private"),
        use(5, "click", ref="e1"),
        use(6, "snapshot"),
        say("done"),
    ]
    async with rig(tmp_path, [*first, *alone], config=site.config, options=Options()) as r:
        r.home.file("notes.txt", "private")
        r.session.interactions.user_present = True
        turn = r.begin()
        asked = await r.until(lambda e: isinstance(e, Approval))
        assert isinstance(asked, Approval) and asked.call.name == "browser_cdp"
        assert "anything to the page" in asked.summary
        assert asked.choices == ("once", "deny")
        r.session.interactions.answer_approval(asked.id, True)
        assert (await turn).status == "completed"
        r.session.interactions.user_present = False
        assert (await r.turn("go on", timeout=40)).status == "completed"
        got = answers(r.requests[-1])
        assert "URL:" in got[0] and '"value":42' in got[1]
        assert "Not run:" in got[2] and "anything to the page" in got[2]
        assert "Not run:" in got[4] and "Not run:" in got[5]
        assert "URL:" in got[6]
        assert "/a?private" not in site.asked


# -- ends --------------------------------------------------------------------------------------


async def test_a_stuck_page_a_crash_and_idleness_are_said(
    site: Site, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = "<button onclick='setTimeout(() => { while (true) {} })'>Hang</button>"

    patience = _browser._ACTION_TIMEOUT

    def impatient(request: Received) -> Reply:
        monkeypatch.setattr(_browser, "_ACTION_TIMEOUT", 0.5)
        return on(1, "click", 'button "Hang"')(request)

    def patient(request: Received) -> Reply:
        monkeypatch.setattr(_browser, "_ACTION_TIMEOUT", patience)
        return use(2, "navigate", url=site.base + "/a")

    def kill(request: Received) -> Reply:
        for pid in processes(scratch):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return use(3, "snapshot")

    steps = [
        use(0, "navigate", url=site.put("/hang", hang)),
        impatient,
        patient,
        kill,
        use(4, "navigate", url=site.base + "/a"),
        say("done"),
        use(5, "snapshot"),
        say("done"),
    ]
    site.put("/a", "<p>another")
    config = {**site.config, "browser": {"idle_timeout": 1}}
    async with rig(tmp_path, steps, config=config) as r:
        assert (await r.turn(timeout=40)).status == "completed"
        got = answers(r.requests[-1])
        assert "did not answer" in got[1]
        assert "another" in got[2]
        assert "The browser ended" in got[3] and "browser_navigate" in got[3]
        assert "another" in got[4]
        await until(lambda: not processes(scratch))
        assert (await r.turn("and now", timeout=40)).status == "completed"
        assert "without use" in answers(r.requests[-1])[5]


async def test_kill_9_of_the_agent_leaves_no_browser(
    site: Site, tmp_path: Path, scratch: Path
) -> None:
    arrived = asyncio.Event()

    def stay(request: Received) -> Reply:
        arrived.set()
        return say("waiting").stall(after="text")

    steps = [use(0, "navigate", url=site.put("/a", "<p>a")), stay]
    async with Provider(steps) as provider:
        home = Home.of(tmp_path, provider, **site.config)
        env = {"TMPDIR": str(scratch)}
        process = await start_hermes(["chat", "-q", "go"], home, env=env)
        async with asyncio.timeout(30):
            await arrived.wait()
        assert "URL:" in answers(provider.requests[-1])[0]
        mine = [*processes(scratch), *_children(process.pid)]
        assert len(mine) > 3
        process.kill()
        await process.wait()
        await until(lambda: not [p for p in mine if Path(f"/proc/{p}/cwd").exists()])


# -- pictures ----------------------------------------------------------------------------------

DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cf"
    "c0000003010100c9fe92ef0000000049454e44ae426082"
)


def seeing(answer: str) -> tuple[Provider, dict[str, Any]]:
    provider = Provider([], then=say(answer))
    return provider, {"auxiliary": {"vision": {"provider": "eyes", "model": "eyes-1"}}}


async def test_a_blind_model_is_told_what_another_sees(site: Site, tmp_path: Path) -> None:
    url = site.put("/chart", "<h1>Chart</h1>")
    blind = status(400, "This model does not support image input.")
    steps = [
        use(0, "navigate", url=url),
        use(1, "vision"),
        blind,
        use(2, "vision", question="Which colour?"),
        call(("c3", "vision_analyze", {"image": "dot.png", "question": "And this?"})),
        call(("c4", "vision_analyze", {"image": "dot.txt"})),
        call(("c5", "vision_analyze", {"image": site.base + "/chart"})),
        call(("c6", "vision_analyze", {"image": "http://169.254.169.254/x.png"})),
        say("done"),
    ]
    eyes, config = seeing("a blue chart")
    async with eyes:
        config["providers"] = {
            "eyes": {"base_url": eyes.base_url, "api_mode": "chat", "api_key_env": "SPARE_KEY"}
        }
        async with rig(tmp_path, steps, config={**site.config, **config}) as r:
            r.home.file("dot.png", DOT)
            r.home.file("dot.txt", "no image")
            assert (await r.turn(timeout=40)).status == "completed"
            got = answers(r.requests[-1])
            assert "a blue chart" in got[2] and f"URL: {url}" in got[2]
            assert got[3] == "a blue chart"
            assert "not a PNG, JPEG, GIF or WebP" in got[4]
            assert "which cannot be read here" in got[5]
            assert "not on the public internet" in got[6]
        asked = [messages(request) for request in eyes.requests]
        assert [m[-1].text for m in asked] == ["Which colour?", "And this?"]
        assert asked[0][-1].images[0][:3] == b"\xff\xd8\xff" and asked[1][-1].images == [DOT]


async def test_without_a_model_that_sees_it_is_said(tmp_path: Path) -> None:
    blind = status(400, "This model does not support image input.")
    steps = [
        call(("c0", "vision_analyze", {"image": "dot.png"})),
        blind,
        say("I see nothing"),
        say("done"),
    ]
    async with rig(tmp_path, steps) as r:
        r.home.file("dot.png", DOT)
        assert (await r.turn()).status == "completed"
        assert "No model here takes images" in answers(r.requests[-1])[0]


async def test_a_picture_from_the_web_is_asked_for_only_when_that_tells_nothing(
    site: Site, tmp_path: Path
) -> None:
    steps = [
        call(("c0", "read_file", {"path": "notes.txt"})),
        call(("c1", "vision_analyze", {"image": f"{site.base}/leak.png?private"})),
        call(("c2", "vision_analyze", {"image": "dot.png"})),
        say("a dot"),
        say("done"),
    ]
    async with rig(tmp_path, steps, config=site.config, options=Options()) as r:
        r.home.file("notes.txt", "private")
        r.home.file("dot.png", DOT)
        assert (await r.turn(timeout=40)).status == "completed"
        got = answers(r.requests[-1])
        assert "Not run:" in got[1] and site.asked == []
        assert got[2] == "a dot"


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            "Locator.click: Timeout 8000ms exceeded.\nCall log:\n - element is not enabled",
            "enabled",
        ),
        (
            "Timeout 8000ms exceeded.\nCall log:\n - <div>x</div> intercepts pointer events\n",
            "<div>",
        ),
        ("Page.goto: net::ERR_ABORTED at x\nCall log:\n - y", "net::ERR_ABORTED at x"),
    ],
)
def test_why_an_element_could_not_be_used_is_said(raised: str, said: str) -> None:
    told = _browser.describe_error(Exception(raised))
    assert said in told and "Timeout" not in told and "Call log" not in told


def test_schemas_are_short() -> None:
    from hermes.tools.registry import select_tools

    tools = select_tools(["browser", "vision"])
    assert sorted(tools) == sorted(
        ["vision_analyze"]
        + [
            f"browser_{n}"
            for n in "navigate snapshot click type scroll press back console vision cdp".split()
        ]
    )
    for tool in tools.values():
        assert len(json.dumps(tool.spec.parameters)) + len(tool.description) < 330
        assert tool.risk == "network" and "untrusted" in tool.brings
