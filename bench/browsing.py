"""The dashboards in Chromium: what a first load weighs, what streams and long sessions cost."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench import peers
from bench.measure import median
from bench.serving import KEY, Running, free_port, prepare

ROUNDS = 5
SESSIONS = 500
MESSAGES = 10_000
LIMIT_SECONDS = 240
"""How long a browser may take for what it is asked to do."""
LOG = "document.querySelector('[role=log]')"
PAINT = """new Promise((done, fail) => {
  const look = () => {
    const found = performance.getEntriesByName('first-contentful-paint')[0];
    if (found) done(found.startTime);
    else if (performance.now() > LIMIT) fail(new Error('the page was never painted'));
    else setTimeout(look, 10);
  };
  look();
})""".replace("LIMIT", str(20_000))
ECHO = """new Promise(async done => {
  const area = document.querySelector('textarea');
  const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
  const spent = [];
  area.focus();
  for (let key = 0; key < KEYS; key++) {
    const begin = performance.now();
    document.execCommand('insertText', false, 'x');
    await frame();
    await new Promise(resolve => setTimeout(resolve));
    spent.push(performance.now() - begin);
    await new Promise(resolve => setTimeout(resolve, PAUSE));
  }
  area.select();
  document.execCommand('delete');
  done(spent.sort((a, b) => a - b));
})"""
DRAWN = """new Promise(done => {
  const look = () => {
    const last = [...LOG.querySelectorAll('article[data-seq]')].pop();
    const text = last ? last.textContent : '';
    text.includes('wxyz'.repeat(COUNT)) ? done(Date.now()) : setTimeout(look, 5);
  };
  look();
})""".replace("LOG", LOG)
SHOWN = """new Promise(done => {
  const begin = performance.now();
  location.hash = '#/c/long';
  const look = () => document.querySelector('article[data-seq="LAST"]')
    ? done(performance.now() - begin) : requestAnimationFrame(look);
  look();
})""".replace("LAST", str(MESSAGES - 1))
READ = """new Promise(async done => {
  const log = LOG;
  const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
  const end = -(log.scrollHeight - log.clientHeight);
  for (let step = 1; step <= 120; step++) {
    log.scrollTop = end * step / 120;
    for (let n = 0; n < 6; n++) await frame();
  }
  while (!document.querySelector('article[data-seq="0"]')) {
    log.scrollTop = -log.scrollHeight;
    await frame();
  }
  log.scrollTop = 0;
  await frame();
  done(true);
})""".replace("LOG", LOG)
ASK = """async paths => {
  const headers = { 'X-Hermes-Page': localStorage.getItem('hermes-page') };
  const spent = [];
  for (const path of paths) {
    const begin = performance.now();
    await (await fetch(path, { headers })).json();
    spent.push(performance.now() - begin);
  }
  return Math.max(...spent);
}"""
LONG_TASKS = """() => new Promise(done => {
  let longest = 0;
  new PerformanceObserver(list => {
    for (const entry of list.getEntries()) longest = Math.max(longest, entry.duration);
  }).observe({ type: 'longtask', buffered: true });
  setTimeout(() => done(longest), 200);
})"""
Add = Callable[..., None]


def start_dashboard(peer: str, home: peers.Home) -> Running:
    port = free_port()
    options = ["--skip-build"] if peer == "original" else []
    command = [str(home.bin / "hermes"), "dashboard", "--no-open", "--port", str(port), *options]
    return Running(command, port, home, home.env, probe="/")


@contextmanager
def running(peer: str, home: peers.Home) -> Iterator[Running]:
    server = start_dashboard(peer, home)
    try:
        yield server
    finally:
        server.stop()


def make_code(home: peers.Home) -> str:
    command = [str(home.bin / "hermes"), "dashboard", "--code"]
    done = subprocess.run(command, env=home.env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def measure(
    homes: Mapping[str, peers.Home], add: Add, attempt: Callable[[str, Callable[[], None]], None]
) -> None:
    for peer in ("original", "ours"):
        if peer in homes:
            prepare(peer, homes[peer])
            attempt(f"{peer} web", lambda p=peer: measure_load(p, homes[p], add))
    attempt("ours web", lambda: measure_unused(homes["ours"], add))
    attempt("ours web", lambda: asyncio.run(measure_work(homes["ours"], add)))


def measure_load(peer: str, home: peers.Home, add: Add) -> None:
    """Starts, and first loads of the page in a browser that has seen nothing of it."""
    for _ in range(3):
        with running(peer, home) as server:
            add(peer, "web_start", server.listening_ms)
    with running(peer, home) as server:
        script = [sys.executable, "-m", "bench.browsing", server.url]
        env = {**os.environ, "PYTHONPATH": str(peers.ROOT)}
        done = subprocess.run(
            script, env=env, capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS
        )
        for metric, values in json.loads(done.stdout).items():
            add(peer, metric, *values)
        add(peer, "web_memory", server.rss_mb())


def measure_unused(home: peers.Home, add: Add) -> None:
    """What `hermes serve` costs more when the dashboard is on and nobody looks at it."""
    config = home.path / ".hermes" / "config.yaml"
    plain = config.read_text()
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    try:
        for number in range(2 * ROUNDS + 2):
            on = bool(number % 2)
            config.write_text(plain + ("dashboard:\n  enabled: true\n" if on else ""))
            port = free_port()
            command = [str(home.bin / "hermes"), "serve", "--port", str(port)]
            server = Running(command, port, home, home.env | {"API_SERVER_KEY": KEY})
            if number > 1:
                found[on].append((server.ready_ms or 0, server.rss_mb()))
            server.stop()
    finally:
        config.write_text(plain)
    (off_ms, off_mb), (on_ms, on_mb) = (
        (median([row[0] for row in found[on]]), median([row[1] for row in found[on]]))
        for on in (False, True)
    )
    add("ours", "web_unused_ms", on_ms)
    add("floor", "web_unused_ms", off_ms)
    add("ours", "web_unused_mb", on_mb)
    add("floor", "web_unused_mb", off_mb)


async def store_sessions(state: Path, cwd: Path) -> None:
    """Five hundred short sessions and a long one."""
    from hermes.config.paths import database_file
    from hermes.core.message import Message, Text, user_message
    from hermes.core.store import SessionMeta
    from hermes.store.sqlite import SqliteStore

    store = SqliteStore(database_file(state))
    store.open()
    await store.wait_until_open()
    said = [Message("assistant", (Text("A short answer with a zebra."),))]
    for n in range(SESSIONS):
        meta = SessionMeta(f"s{n}", cwd=str(cwd), title=f"Session {n}")
        await store.sessions.append(meta.id, [user_message(f"question {n}"), *said], create=meta)
    text = "answer {0}\n\n```python\nx = {0}\n```\n\n| a | b |\n|---|---|\n| {0} | y |\n"
    long = [
        message
        for n in range(MESSAGES // 2)
        for message in (
            user_message(f"question {n}"),
            Message("assistant", (Text(text.format(n)),)),
        )
    ]
    meta = SessionMeta("long", cwd=str(cwd), title="A long one")
    await store.sessions.append("long", long, create=meta)
    await store.close()


async def measure_work(home: peers.Home, add: Add) -> None:
    from hermes.exec.chromium import find_browser
    from hermes.tools.browser._browser import start_driver

    await store_sessions(home.path / ".hermes", home.cwd)
    server = await asyncio.to_thread(start_dashboard, "ours", home)
    try:
        before = server.rss_mb()
        async with asyncio.timeout(LIMIT_SECONDS), start_driver(dict(os.environ)) as playwright:
            browser = await playwright.chromium.launch(
                executable_path=find_browser("", os.environ), args=["--no-sandbox"]
            )
            page = await (await browser.new_context()).new_page()
            code = await asyncio.to_thread(make_code, home)
            await page.goto(f"{server.url}/#code={code}")
            await page.locator("[role=status][data-state=live]").wait_for()
            await send(page, "hello")
            await page.get_by_role("article", name="Hermes").first.wait_for()
            await page.get_by_role("button", name="Send").wait_for()
            add("ours", "web_open_mb", server.rss_mb() - before)
            await measure_streams(page, server, add)
            await measure_reading(page, add)
            add("ours", "web_tab", await measure_tabs(page))
            await browser.close()
    finally:
        server.stop()


async def send(page: Any, text: str) -> None:
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.keyboard.press("Enter")


async def measure_streams(page: Any, server: Running, add: Add) -> None:
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    await session.send("Network.enable")
    received = [0]

    def note_data(event: dict[str, Any]) -> None:
        received[0] += event["dataLength"]

    session.on("Network.dataReceived", note_data)

    async def read_script_ms() -> float:
        found = (await session.send("Performance.getMetrics"))["metrics"]
        return next(1e3 * m["value"] for m in found if m["name"] == "ScriptDuration")

    script, cpu, received[0] = await read_script_ms(), server.cpu_ms(), 0
    await send(page, "paced-1000-5")
    await page.evaluate(DRAWN.replace("COUNT", "1000"))
    await page.get_by_role("button", name="Send").wait_for()
    add("ours", "web_script", await read_script_ms() - script)
    add("ours", "web_cpu", server.cpu_ms() - cpu)
    add("ours", "web_bytes", received[0] / 1000)
    await send(page, "paced-5000-1")
    drawn = asyncio.ensure_future(page.evaluate(DRAWN.replace("COUNT", "5000")))
    echo = await page.evaluate(ECHO.replace("KEYS", "40").replace("PAUSE", "60"))
    ended = await wait_until_idle(page)
    add("ours", "web_late", max(0.0, await drawn - ended))
    add("ours", "web_echo", echo[int(0.95 * len(echo))])


async def wait_until_idle(page: Any) -> float:
    """When the server had written the whole answer, in milliseconds."""
    path = f"api/sessions/{page.url.rpartition('/')[2]}"
    script = f"""async () => {{
      const headers = {{ 'X-Hermes-Page': localStorage.getItem('hermes-page') }};
      for (;;) {{
        const before = Date.now();
        if (!(await (await fetch('{path}', {{ headers }})).json()).busy) return before;
        await new Promise(resolve => setTimeout(resolve, 20));
      }}
    }}"""
    return float(await page.evaluate(script))


async def measure_reading(page: Any, add: Add) -> None:
    paths = ["api/sessions?limit=100", "api/sessions?limit=100&cursor=400"]
    paths += ["api/sessions/search?q=zebra&limit=30", "api/sessions?q=session 49"]
    add("ours", "web_list", await page.evaluate(ASK, paths))
    await page.goto(page.url.partition("#")[0] + "#/talk")
    await page.reload()
    await page.locator("[role=status][data-state=live]").wait_for()
    add("ours", "web_first", await page.evaluate(SHOWN))
    await page.evaluate(READ)
    add("ours", "web_long_task", await page.evaluate(LONG_TASKS))
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    used = (await session.send("Runtime.getHeapUsage"))["usedSize"]
    add("ours", "web_heap", used / 1e6)
    keys = await page.evaluate(ECHO.replace("KEYS", "25").replace("PAUSE", "0"))
    add("ours", "web_keys", sum(keys))


async def measure_tabs(page: Any) -> float:
    """Milliseconds of the twelfth tab of one browser: until it shows its messages, and a request
    after that."""
    address, shown = page.url, f'article[data-seq="{MESSAGES - 1}"]'
    await page.locator(shown).wait_for()
    for _ in range(10):
        tab = await page.context.new_page()
        await tab.goto(address)
        await tab.locator(shown).wait_for()
    tab = await page.context.new_page()
    begin = time.perf_counter()
    await tab.goto(address)
    await tab.locator(shown).wait_for()
    spent = (time.perf_counter() - begin) * 1000
    return spent + float(await tab.evaluate(ASK, ["api/sessions?limit=20"]))


def _note_size(sizes: list[float], event: dict[str, Any]) -> None:
    sizes.append(event["encodedDataLength"])


async def load_pages(url: str) -> dict[str, list[float]]:
    """First loads, each in a new context: kilobytes, requests, first paint."""
    from hermes.exec.chromium import find_browser
    from hermes.tools.browser._browser import start_driver

    found: dict[str, list[float]] = {"web_kb": [], "web_requests": [], "web_paint": []}
    async with start_driver(dict(os.environ)) as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_browser("", os.environ), args=["--no-sandbox"]
        )
        for _ in range(ROUNDS):
            context = await browser.new_context()
            page = await context.new_page()
            session = await context.new_cdp_session(page)
            await session.send("Network.enable")
            sizes: list[float] = []
            note_size = partial(_note_size, sizes)
            session.on("Network.loadingFinished", note_size)
            await page.goto(url, wait_until="load")
            found["web_paint"].append(await page.evaluate(PAINT))
            await page.wait_for_timeout(1500)
            found["web_kb"].append(sum(sizes) / 1000)
            found["web_requests"].append(len(sizes))
            await context.close()
        await browser.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(load_pages(sys.argv[1]))))
