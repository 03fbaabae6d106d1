"""Reading ten thousand messages: to the top and back, no step jumps; in Chromium and Firefox."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hermes.app.live.sign_in_codes import create_code
from hermes.core.message import Message, Text, user_message
from hermes.core.store import SessionMeta
from tests.e2e.dashboard.conftest import visit
from tests.e2e.dashboard.firefox import open_firefox
from tests.kit import say
from tests.kit.api import Api, api
from tests.kit.dashboard import ON

COUNT = 10_000
STEPS = 300
pytestmark = pytest.mark.timeout(1500)
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


FOLLOW = """
new Promise(async done => {
  const log = document.querySelector('.log');
  const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
  const until = async found => { while (!found()) await frame(); };
  const id = location.hash.split('/')[2];
  const send = n => fetch(`api/sessions/${id}/turns`, { method: 'POST', headers: {
    'X-Hermes-Page': localStorage.getItem('hermes-page'), 'Content-Type': 'application/json' },
    body: JSON.stringify({ client_id: `c${n}`, content: `write ${n}` }) });
  const shown = n => [...document.querySelectorAll('article.hermes[data-seq]')].filter(
    a => a.textContent.includes('last word')).length === n;
  // At the end it stays at the end, whatever is written.
  log.scrollTop = 0;
  let far = 0;
  await send(1);
  await until(() => { far = Math.max(far, Math.abs(log.scrollTop)); return shown(1); });
  await frame();
  const last = [...document.querySelectorAll('article')].pop().getBoundingClientRect().bottom;
  const atEnd = last <= log.getBoundingClientRect().bottom + 1;
  // Above, what is read does not move.
  const mark = document.querySelector('article[data-seq="36"]');
  mark.scrollIntoView();
  for (let n = 0; n < 10; n++) await frame();
  const top = mark.getBoundingClientRect().top;
  let moved = 0;
  await send(2);
  await until(() => {
    moved = Math.max(moved, Math.abs(mark.getBoundingClientRect().top - top));
    return document.querySelectorAll('[data-partial]').length === 0 && shown(2);
  });
  done({ far, atEnd, moved, seq: Number(mark.dataset.seq) });
})
"""
WORDS = ["word " * 40 for _ in range(60)] + ["last word"]


def _check_follow(found: dict[str, Any]) -> None:
    print(found)
    assert found["atEnd"] and found["far"] <= 2, found
    assert found["moved"] <= 2, found


async def _store_short_session(a: Api, cwd: Path) -> None:
    messages: list[Message] = []
    for n in range(20):
        messages.append(user_message(f"question {n}"))
        messages.append(Message("assistant", (Text(f"answer {n}\n\n" + "line\n\n" * (n % 7)),)))
    meta = SessionMeta("short", source="cli", cwd=str(cwd), title="A short one")
    await a.server.runtime.store.sessions.append("short", messages, create=meta)


async def test_a_growing_answer_is_followed_or_leaves_the_reader_alone(tmp_path: Path) -> None:
    async with visit(tmp_path, then=say(*WORDS).slow(0.005)) as v:
        await _store_short_session(v.api, tmp_path)
        await v.page.goto(f"{v.api.url}/#/c/short")
        await v.page.locator("article[data-seq='39']").wait_for()
        _check_follow(await v.page.evaluate(FOLLOW))


@pytest.mark.skipif(FIREFOX is None, reason="Firefox is not installed")
async def test_a_growing_answer_in_firefox(tmp_path: Path) -> None:
    assert FIREFOX is not None
    async with (
        api(tmp_path, then=say(*WORDS).slow(0.005), config=ON) as a,
        open_firefox(FIREFOX, tmp_path / "profile") as firefox,
    ):
        await _store_short_session(a, tmp_path)
        code = await create_code(a.server.runtime.store.objects)
        await firefox.open(f"{a.url}/#code={code}")
        await firefox.wait_for("document.querySelector('[data-state=live]') !== null")
        await firefox.run("(location.hash = '#/c/short', true)")
        await firefox.wait_for("document.querySelector('[data-seq=\"39\"]') !== null")
        _check_follow(await firefox.run(FOLLOW))


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
    assert found["measured"] >= STEPS * 0.9, found
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
