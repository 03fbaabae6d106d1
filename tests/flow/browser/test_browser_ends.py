"""Browser tools: who is asked, how browsers end, and pictures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hermes.app.agents import Options
from hermes.core.events import Approval
from hermes.tools.browser import _browser
from tests.flow.browser.conftest import Site, answers, list_children, on, processes, use
from tests.kit import Home, Provider, Received, Reply, call, say, start_hermes, status
from tests.kit.bodies import messages
from tests.kit.processes import until
from tests.kit.rig import rig

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
        assert (await r.turn("go on", timeout=90)).status == "completed"
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
        assert (await r.turn(timeout=90)).status == "completed"
        got = answers(r.requests[-1])
        assert "did not answer" in got[1]
        assert "another" in got[2]
        assert "The browser ended" in got[3] and "browser_navigate" in got[3]
        assert "another" in got[4]
        await until(lambda: not processes(scratch))
        assert (await r.turn("and now", timeout=90)).status == "completed"
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
        async with asyncio.timeout(90):
            await arrived.wait()
        assert "URL:" in answers(provider.requests[-1])[0]
        mine = [*processes(scratch), *list_children(process.pid)]
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
            assert (await r.turn(timeout=90)).status == "completed"
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
        assert (await r.turn(timeout=90)).status == "completed"
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
