"""WhatsApp's Cloud API: signed deliveries, buttons, files, the 24 hours, and lost answers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway import texts
from hermes.gateway.adapter import Button
from hermes.gateway.content.whatsapp_markup import render_whatsapp
from hermes.gateway.platforms import whatsapp as platform
from hermes.gateway.platforms._whatsapp_messages import choose_buttons
from tests.gateway.platform_gateways import (
    free_port,
    live_platform,
    platform_process,
    until_failed,
)
from tests.gateway.test_turns import prompts
from tests.kit import Gate, Home, call, run_hermes, say
from tests.kit.server import Step
from tests.kit.whatsapp import (
    NUMBER_ID,
    OWN,
    OWNER,
    SECRET,
    STRANGER,
    TOKEN,
    VERIFY,
    GraphFault,
    WhatsappFake,
    sign,
    whatsapp,
)

GROUP = "Y2FwaV9ncm91cDoxOTUwNTU1MDA3"
ENV = {
    "WHATSAPP_CLOUD_ACCESS_TOKEN": TOKEN,
    "WHATSAPP_CLOUD_PHONE_NUMBER_ID": NUMBER_ID,
    "WHATSAPP_CLOUD_APP_SECRET": SECRET,
    "WHATSAPP_CLOUD_VERIFY_TOKEN": VERIFY,
}

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def chat(
    root: Path,
    *steps: Step,
    process: bool = False,
    env: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Any, WhatsappFake]]:
    port = free_port()
    async with whatsapp(f"http://127.0.0.1:{port}{platform.PATH}") as fake:
        start: Any = platform_process if process else live_platform
        whole = {"base_url": fake.url, "webhook_port": port, "allowed_users": [f"+{OWNER}"]}
        async with start(
            root,
            steps,
            name="whatsapp",
            settings={**whole, **settings},
            env={**ENV, **(env or {})},
            **(config or {}),
        ) as g:
            yield g, fake


def on_first(path: str, fault: GraphFault, kind: str = "text") -> Any:
    """The fault for the first message of a kind."""
    left = [fault]

    def find_fault(given: str, body: dict[str, Any]) -> GraphFault | None:
        return left.pop() if left and given.endswith(path) and body.get("type") == kind else None

    return find_fault


# -- markup and buttons ------------------------------------------------------------------------


def read_shown(text: str) -> str:
    """What is left when the marks are gone."""
    return re.sub(r"[*_~`\u200b]", "", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**b** *i* ~~s~~ `c*d`", "*b* _i_ ~s~ `c*d`"),
        ("# Title\ntext", "*Title*\n\ntext"),
        ("2*3 and snake_case_name", "2*\u200b3 and snake_\u200bcase_\u200bname"),
        ("**a**. *b*!", "*a*. _b_!"),
        ("un**believ**able", "un\u200b*believ*\u200bable"),
        ("```py\na = 1\n```", "```a = 1```"),
        ("[x](https://a.b/c_d_) ![p](https://e.x/p)", "x (https://a.b/c_d_) p (https://e.x/p)"),
        ("> q", "> q"),
        ("@all <b>", "@all <b>"),
    ],
)
def test_markdown_becomes_whatsapps(text: str, expected: str) -> None:
    assert render_whatsapp(text) == expected


@given(st.text(alphabet=st.sampled_from("ab12 \n*_#->.)!|\\+`~\"'"), max_size=200))
def test_markup_loses_no_letter_and_no_number(text: str) -> None:
    def keep_words(value: str) -> str:
        return "".join(c for c in value if c.isalnum())

    assert keep_words(read_shown(render_whatsapp(text))) == keep_words(text)


def test_three_buttons_are_chosen() -> None:
    labels = texts.APPROVAL_LABELS
    every = tuple(Button(labels[c], c) for c in ("once", "session", "always", "deny"))
    assert [b.data for b in choose_buttons(every)] == ["once", "session", "deny"]
    assert choose_buttons(every[:2]) == every[:2]
    assert choose_buttons(tuple(Button(f"choice {i}", str(i)) for i in range(4))) == ()
    assert choose_buttons((Button("x" * 21, "1"), Button("no", "2"))) == ()


# -- whole turns -------------------------------------------------------------------------------


async def test_a_turn_in_a_direct_chat_is_read_and_answered(tmp_path: Path) -> None:
    async with chat(tmp_path, say("Hello **you**."), say("Again.")) as (g, wa):
        id = await wa.say("hi")
        sent = await wa.until_sent("Hello *you*.")
        assert sent.chat == OWNER and "context" not in sent.body
        await wa.until(lambda: any("typing_indicator" in mark for mark in wa.marks))
        assert {mark["message_id"] for mark in wa.marks} == {id}
        await wa.say("more")
        await wa.until_sent("Again.")
        assert prompts(g) == ["hi", "more"]
        (row,) = (await run_hermes(["sessions", "list", "--json"], g.home)).json
        assert row["key"] == f"agent:main:whatsapp:dm:{OWNER}" and row["source"] == "whatsapp"


async def test_g2_strangers_statuses_and_other_numbers_are_ignored(tmp_path: Path) -> None:
    async with chat(tmp_path, say("Hello.")) as (g, wa):
        await wa.say("let me in", user=STRANGER)
        await wa.push({"statuses": [{"id": "wamid.x", "status": "failed", "errors": []}]})
        message = {"from": OWNER, "id": "wamid.y", "type": "text", "text": {"body": "other number"}}
        await wa.push({"messages": [message]}, number_id="1")
        await wa.deliver({"type": "reaction", "reaction": {"emoji": "x"}})
        await wa.push({"messages": [{"type": "text"}]})
        await wa.say("hi")
        await wa.until_sent("Hello.")
        assert prompts(g) == ["hi"] and wa.texts() == ["Hello."]
        assert not any(mark["message_id"] == "wamid.1" for mark in wa.marks)


async def test_a_stranger_gets_a_code_where_nobody_is_listed(tmp_path: Path) -> None:
    async with chat(tmp_path, allowed_users=[]) as (_, wa):
        await wa.say("hi", user=STRANGER)
        await wa.until(lambda: any("Your pairing code is" in t for t in wa.texts(STRANGER)))


async def test_groups_must_be_listed_and_only_replies_count(tmp_path: Path) -> None:
    async with chat(tmp_path, say("Here."), allowed_chats=[GROUP]) as (g, wa):
        answer = {"context": {"from": OWN, "id": "wamid.s0"}}
        await wa.say("hi", group_id="elsewhere", **answer)
        await wa.say("just talking", group_id=GROUP)
        await wa.say("hi", group_id=GROUP, user=STRANGER, **answer)
        id = await wa.say("you there?", group_id=GROUP, **answer)
        sent = await wa.until_sent("Here.")
        assert (sent.chat, sent.body["recipient_type"]) == (GROUP, "group")
        assert sent.body["context"] == {"message_id": id}
        assert prompts(g) == ["you there?"]


async def test_long_answers_are_split_and_come_whole(tmp_path: Path) -> None:
    whole = "word " * 2000
    async with chat(tmp_path, say(whole)) as (_, wa):
        await wa.say("tell me")
        await wa.until(lambda: " ".join(wa.texts()).split() == whole.split())
        assert len(wa.sent) == 3


async def test_text_that_markup_makes_too_long_is_halved(tmp_path: Path) -> None:
    whole = "a_b " * 1000
    async with chat(tmp_path, say(whole)) as (_, wa):
        await wa.say("tell me")
        words = whole.split()
        await wa.until(lambda: " ".join(wa.texts()).replace("\u200b", "").split() == words)
        assert len(wa.sent) >= 2


async def test_an_approval_has_buttons_for_the_requester(tmp_path: Path) -> None:
    command = "git push origin main"
    steps = [call(("c1", "terminal", {"command": command})), say("Fine."), say("Next.")]
    users = [OWNER, STRANGER]
    async with chat(tmp_path, *steps, allowed_users=users, admins=[OWNER]) as (_, wa):
        await wa.say("push it")
        await wa.until(lambda: any(s.buttons for s in wa.sent))
        asked = next(s for s in wa.sent if s.buttons)
        assert command in asked.text and asked.buttons[-1]["title"] == "Deny"
        await wa.press(asked, "Deny", user=STRANGER)
        await wa.until(lambda: wa.texts(STRANGER))
        await wa.press(asked, "Deny")
        await wa.until_sent("Fine.")
        await wa.until_sent(texts.DENIED_BY.format(name=f"P{OWNER[-4:]}"))
        await wa.press(asked, "Deny")
        await wa.until_sent("This is no longer open.")


async def test_files_go_both_ways(tmp_path: Path) -> None:
    async with chat(tmp_path, say("Here.\nMEDIA:out.txt\nMEDIA:out.png")) as (g, wa):
        g.home.file("out.txt", "from the agent")
        g.home.file("out.png", b"\x89PNG\r\n\x1a\n1234")
        wa.files["f1"] = b"from the person"
        document = {"id": "f1", "mime_type": "text/plain", "filename": "../../x.txt"}
        await wa.deliver({"type": "document", "document": {**document, "caption": "look"}})
        await wa.until(lambda: len(wa.sent) == 3)
        assert [s.body["type"] for s in wa.sent] == ["text", "document", "image"]
        assert wa.sent[1].file == b"from the agent"
        assert wa.sent[1].body["document"]["filename"] == "out.txt"
        (stored,) = (g.home.path / "cache" / "media").iterdir()
        assert stored.read_bytes() == b"from the person"
        assert f"[attachment: {stored} (text/plain, 15 bytes), named ../../x.txt]" in prompts(g)[0]


@pytest.mark.parametrize(
    ("media_url", "why"),
    [
        ("https://evil.example/x", "it is not on a server of WhatsApp"),
        ("http://lookaside.fbsbx.com/x", "it is not on a server of WhatsApp"),
        ("https://evilfbsbx.com/x", "it is not on a server of WhatsApp"),
        ("", "it is larger than 10 bytes"),
    ],
)
async def test_g17_files_come_from_whatsapp_only(tmp_path: Path, media_url: str, why: str) -> None:
    config = {"gateway": {"max_media_bytes": 10 if not media_url else 1000}}
    async with chat(tmp_path, say("ok"), config=config) as (g, wa):
        wa.media_url = media_url
        wa.files["f1"] = b"x" * 100
        await wa.deliver({"type": "audio", "audio": {"id": "f1", "mime_type": "audio/ogg"}})
        await wa.until_sent("ok")
        assert f"[attachment unnamed was not fetched: {why}]" in prompts(g)[0]


async def test_commands_answer(tmp_path: Path) -> None:
    async with chat(tmp_path) as (g, wa):
        await wa.say("/platforms")
        await wa.until_sent("whatsapp: connected")
        assert not g.provider.requests


# -- deliveries --------------------------------------------------------------------------------


async def test_g9_g10_only_meta_delivers(tmp_path: Path) -> None:
    async with chat(tmp_path) as (g, wa), aiohttp.ClientSession() as session:

        async def post(body: bytes, headers: dict[str, str]) -> int:
            async with session.post(wa.hook, data=body, headers=headers) as answer:
                return answer.status

        async def verify(token: str) -> tuple[int, str]:
            query = {"hub.mode": "subscribe", "hub.verify_token": token, "hub.challenge": "c1"}
            async with session.get(wa.hook, params=query) as answer:
                return answer.status, await answer.text()

        assert await post(b"no JSON", {}) == 401
        assert await post(b"no JSON", sign(b"no JSON", "another secret")) == 401
        assert await post(b"no JSON", sign(b"altered")) == 401
        assert await post(b"no JSON", sign(b"no JSON")) == 400
        assert await post(b"{}", sign(b"{}")) == 200
        assert await verify(VERIFY) == (200, "c1")
        assert (await verify("guess"))[0] == 403 and (await verify(""))[0] == 403
        assert not g.provider.requests and not wa.sent


async def test_g8_repeated_deliveries_are_one_turn_and_missed_ones_wait(tmp_path: Path) -> None:
    async with chat(tmp_path, say("one"), say("two"), process=True) as (g, wa):
        message = {"from": OWNER, "id": "wamid.same", "type": "text", "text": {"body": "first"}}
        for _ in range(3):
            await wa.push({"messages": [message]})
        await wa.until_sent("one")
        await wa.until_taken()
        assert await g.stop() == 0
        await wa.push({"messages": [message]})
        await wa.say("second")
        await g.start()
        await wa.until_sent("two")
        assert wa.texts() == ["one", "two"]


async def test_a_kill_after_the_message_was_stored_is_one_turn(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("never").hold(gate, n=0), say("the answer")]
    async with chat(tmp_path, *steps, process=True) as (g, wa):
        message = {"from": OWNER, "id": "wamid.same", "type": "text", "text": {"body": "hi"}}
        await wa.push({"messages": [message]})
        await gate.reached()
        await g.kill()
        gate.open()
        await wa.push({"messages": [message]})
        await g.start()
        await wa.until_sent("the answer")
        await wa.until_taken()
        assert len(g.provider.requests) == 2 and wa.texts() == ["the answer"]


# -- failures ----------------------------------------------------------------------------------


async def test_f82_a_send_without_an_answer_is_repeated_with_a_mark(tmp_path: Path) -> None:
    async with chat(tmp_path, say("the answer")) as (_, wa):
        wa.fault = on_first("messages", GraphFault(hang_up=True, after=True))
        await wa.say("hi")
        await wa.until_sent(f"{texts.REPEATED}\nthe answer")
        assert wa.texts() == ["the answer", f"{texts.REPEATED}\nthe answer"]


@pytest.mark.parametrize(
    "fault",
    [
        GraphFault(500, 131000, "Something went wrong"),
        GraphFault(502, raw=b"<html>bad gateway</html>"),
        GraphFault(400, 130429, "Rate limit hit"),
    ],
)
async def test_a_certain_failure_is_repeated_without_a_mark(
    tmp_path: Path, fault: GraphFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(platform._WAITS, 130429, 0.2)
    async with chat(tmp_path, say("the answer")) as (_, wa):
        wa.fault = on_first("messages", fault)
        await wa.say("hi")
        await wa.until_sent("the answer")
        assert wa.texts() == ["the answer"]


async def test_after_24_hours_an_answer_is_given_up_with_a_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with chat(tmp_path, say("lost"), say("back")) as (g, wa):
        closed = GraphFault(400, 131047, "Re-engagement message")
        wa.fault = lambda path, body: closed if body.get("type") == "text" else None
        await wa.say("hi")
        await until_failed(g)
        assert "they have not written for 24 hours" in caplog.text
        wa.fault = lambda path, body: None
        await wa.say("again")
        await wa.until_sent("back")
        assert wa.texts() == ["back"]


async def test_f84_who_is_not_on_whatsapp_is_given_up_until_they_write(tmp_path: Path) -> None:
    async with chat(tmp_path, say("lost"), say("back")) as (g, wa):
        wa.fault = on_first("messages", GraphFault(400, 131026, "Message undeliverable"))
        await wa.say("hi")
        await until_failed(g)
        await wa.say("again")
        await wa.until_sent("back")
        assert wa.texts() == ["back"]


async def test_f91_a_refused_token_turns_it_off(tmp_path: Path) -> None:
    env = {"WHATSAPP_CLOUD_ACCESS_TOKEN": "revoked-token-0123456789"}
    async with chat(tmp_path, env=env) as (g, _):
        status = g.service.status.platforms["whatsapp"]
        assert (status.state, status.error_code) == ("fatal", "unauthorized")


@pytest.mark.parametrize("name", sorted(set(ENV) - {"WHATSAPP_CLOUD_ACCESS_TOKEN"}))
async def test_without_a_variable_it_is_off_and_says_which(tmp_path: Path, name: str) -> None:
    async with chat(tmp_path, env={name: ""}) as (g, _):
        status = g.service.status.platforms["whatsapp"]
        assert (status.state, status.error_code) == ("fatal", "unconfigured")
        assert name in status.error_message


async def test_setup_tries_the_token_and_saves_everything(tmp_path: Path) -> None:
    async with whatsapp("") as fake:
        home = Home(tmp_path)
        home.configure(platforms={"whatsapp": {"base_url": fake.url}})
        command = ["gateway", "setup", "whatsapp"]
        rest = f"{NUMBER_ID}\n{SECRET}\n{VERIFY}\n"
        wrong = await run_hermes(command, home, stdin=f"wrong-token-0123456789\n{rest}")
        assert wrong.rc == 2 and "Nothing was saved" in wrong.stderr
        assert not (home.path / ".env").exists()
        done = await run_hermes(command, home, stdin=f"{TOKEN}\n{rest}")
        assert done.rc == 0 and f"The settings work: {OWN} Kit." in done.stdout, done.stderr
        for secret in (TOKEN, SECRET, VERIFY):
            assert secret not in done.stdout + done.stderr
            assert secret in (home.path / ".env").read_text()
