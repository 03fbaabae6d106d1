"""Reading ten thousand messages: to the top and back, no step jumps; in Chromium and Firefox."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hermes.app.live.sign_in_codes import create_code
from hermes.core.message import Message, Text, user_message
from hermes.core.store import SessionMeta
from tests.e2e.dashboard.conftest import visit
from tests.e2e.dashboard.firefox import open_firefox
from tests.kit.api import Api, api
from tests.kit.dashboard import ON

COUNT = 10_000
STEPS = int(os.environ.get("HERMES_TEST_STEPS", "50"))
pytestmark = pytest.mark.timeout(240 if STEPS <= 50 else 1500)
FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
READ = """
new Promise(async done => {
  const log = document.querySelector('.log');
  const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
  const settle = async () => {  // until what is in view is loaded and nothing grows any more
    let before = '';
    for (let quiet = 0; quiet < 3;) {
      await frame();
      const box = log.getBoundingClientRect();
      const seen = [...document.querySelectorAll('.group')].filter(g => {
        const r = g.getBoundingClientRect();
        return r.bottom > box.top - 500 && r.top < box.bottom + 500;
      });
      const loaded = seen.every(g => g.querySelector('[data-seq]'));
      const now = seen.map(g => g.dataset.group + ':' + g.offsetHeight).join();
      quiet = loaded && now === before ? quiet + 1 : 0;
      before = now;
    }
  };
  const inView = () => {
    const box = log.getBoundingClientRect();
    return [...document.querySelectorAll('article[data-seq]')].find(a => {
      const r = a.getBoundingClientRect();
      return r.top >= box.top + 150 && r.bottom < box.bottom - 150;
    });
  };
  let worst = 0, most = 0, measured = 0;
  const jump = log.scrollHeight / (STEPS / 2);
  for (let step = 0; step < STEPS; step++) {
    const up = step < STEPS / 2;
    log.scrollTop += (up ? -1 : 1) * (step % 2 ? jump * 2 - 300 : 300);
    await settle();
    const mark = inView();
    if (!mark) continue;
    const top = mark.getBoundingClientRect().top;
    log.scrollTop += up ? -40 : 40;
    const moved = mark.getBoundingClientRect().top - top;
    await settle();
    const off = mark.getBoundingClientRect().top - top - moved;
    if (mark.isConnected) {
      worst = Math.max(worst, Math.abs(off));
      measured += 1;
    }
    most = Math.max(most, document.querySelectorAll('article').length);
  }
  log.scrollTop = -log.scrollHeight;
  await settle();
  const first = Boolean(document.querySelector('article[data-seq="0"]'));
  log.scrollTop = 0;
  await settle();
  const last = Boolean(document.querySelector('article[data-seq="LAST"]'));
  done({ worst, most, measured, first, last });
})
""".replace("STEPS", str(STEPS)).replace("LAST", str(COUNT - 1))


async def _store_long_session(a: Api, cwd: Path) -> None:
    messages: list[Message] = []
    for n in range(COUNT // 2):
        messages.append(user_message(f"question {n}"))
        messages.append(Message("assistant", (Text(f"answer {n}\n\n" + "line\n\n" * (n % 7)),)))
    meta = SessionMeta("long", source="cli", cwd=str(cwd), title="A long one")
    await a.server.runtime.store.sessions.append("long", messages, create=meta)


def _check(found: dict[str, float]) -> None:
    print(found)
    assert found["worst"] <= 2, found
    assert found["measured"] > STEPS // 2, found
    assert found["most"] <= 160, found
    assert found["first"] and found["last"], found


async def test_ten_thousand_messages_are_read_in_chromium(tmp_path: Path) -> None:
    async with visit(tmp_path) as v:
        await _store_long_session(v.api, tmp_path)
        await v.page.goto(f"{v.api.url}/#/c/long")
        await v.page.locator(f"article[data-seq='{COUNT - 1}']").wait_for()
        _check(await v.page.evaluate(READ))


@pytest.mark.skipif(FIREFOX is None, reason="Firefox is not installed")
async def test_ten_thousand_messages_are_read_in_firefox(tmp_path: Path) -> None:
    assert FIREFOX is not None
    async with (
        api(tmp_path, config=ON) as a,
        open_firefox(FIREFOX, tmp_path / "profile") as firefox,
    ):
        await _store_long_session(a, tmp_path)
        code = await create_code(a.server.runtime.store.objects)
        await firefox.open(f"{a.url}/#code={code}")
        await firefox.wait_for("document.querySelector('[data-state=live]') !== null")
        await firefox.run("(location.hash = '#/c/long', true)")
        await firefox.wait_for(f"document.querySelector('[data-seq=\"{COUNT - 1}\"]') !== null")
        _check(await firefox.run(READ))
