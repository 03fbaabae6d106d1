"""Signal through a signal-cli daemon: people, groups, styles, files, and what may have arrived."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway import texts
from hermes.gateway.content.signal_markup import render_signal, split_styles
from hermes.gateway.platforms import signal as platform
from tests.gateway.platform_gateways import live_platform, platform_process, until_failed
from tests.gateway.test_turns import prompts
from tests.kit import Gate, Home, call, run_hermes, say
from tests.kit.server import Step
from tests.kit.signal_daemon import (
    ACCOUNT,
    GROUP,
    NUMBER,
    OWNER,
    STRANGER,
    Answer,
    SignalFake,
    signal_daemon,
)

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def chat(
    root: Path,
    *steps: Step,
    process: bool = False,
    daemon: dict[str, Any] | None = None,
    account: str = ACCOUNT,
    config: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Any, SignalFake]]:
    async with signal_daemon(**(daemon or {})) as fake:
        start: Any = platform_process if process else live_platform
        async with start(
            root,
            steps,
            name="signal",
            settings={"allowed_users": [OWNER], **settings},
            env={"SIGNAL_HTTP_URL": fake.url, "SIGNAL_ACCOUNT": account},
            **(config or {}),
        ) as g:
            yield g, fake


def on_first(method: str, answer: Answer) -> Any:
    left = [answer]
    return lambda name, params: left.pop() if name == method and left else None


# -- styles ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown", "styles"),
    [
        ("**b** and *i*", "b and i", ["0:1:BOLD", "6:1:ITALIC"]),
        ("\U0001f600 ~~s~~ `c`", "\U0001f600 s c", ["3:1:STRIKETHROUGH", "5:1:MONOSPACE"]),
        ("***x***", "x", ["0:1:BOLD", "0:1:ITALIC"]),
        ("# T\n\n```py\na*b*\n```", "T\n\na*b*", ["0:1:BOLD", "3:4:MONOSPACE"]),
        ("[x](https://a.b) ![p](https://e.x/p)", "x (https://a.b) p (https://e.x/p)", []),
        ("a\ufdd0b\ufdd4 @everyone <b>", "ab @everyone <b>", []),
    ],
)
def test_markdown_becomes_text_and_styles(text: str, shown: str, styles: list[str]) -> None:
    assert split_styles(render_signal(text)) == (shown, styles)


@given(
    st.text(
        alphabet=st.sampled_from("ab12 \n*_#->.)!|\\+`~\"'\ufdd0\ufdd4\U0001f600"), max_size=200
    )
)
def test_styles_lose_no_letter_and_stay_inside(text: str) -> None:
    def keep_words(value: str) -> str:
        return "".join(c for c in value if c.isalnum())

    shown, styles = split_styles(render_signal(text))
    assert keep_words(shown) == keep_words(text)
    for style in styles:
        start, size, _ = style.split(":")
        assert 0 < int(size) <= len(shown.encode("utf-16-le")) // 2 - int(start)


# -- whole turns -------------------------------------------------------------------------------


async def test_a_turn_in_a_direct_chat_with_styles_and_typing(tmp_path: Path) -> None:
    async with chat(tmp_path, say("Hello **you**."), say("Again.")) as (g, signal):
        await signal.say("hi")
        sent = await signal.until_sent("Hello you.")
        assert sent.chat == OWNER and sent.params["textStyle"] == ["6:3:BOLD"]
        assert "quoteTimestamp" not in sent.params
        await signal.until(lambda: any(m == "sendTyping" for m, _ in signal.calls))
        await signal.say("and?", quote={"id": 1, "authorUuid": OWNER, "text": "that"})
        await signal.until_sent("Again.")
        assert prompts(g) == ["hi", "> that\nand?"]
        (row,) = (await run_hermes(["sessions", "list", "--json"], g.home)).json
        assert row["key"] == f"agent:main:signal:dm:{OWNER}" and row["source"] == "signal"


@pytest.mark.parametrize("listed", [NUMBER, int(NUMBER)])
async def test_people_can_be_listed_by_number(tmp_path: Path, listed: Any) -> None:
    async with chat(tmp_path, say("Hello."), allowed_users=[listed]) as (_, signal):
        await signal.say("hi")
        assert (await signal.until_sent("Hello.")).chat == OWNER


async def test_g2_a_stranger_gets_a_code_or_nothing(tmp_path: Path) -> None:
    async with chat(tmp_path, allowed_users=[], config={}) as (g, signal):
        await signal.say("hi", user=STRANGER)
        await signal.until(lambda: any("Your pairing code is" in t for t in signal.texts(STRANGER)))
        assert not g.provider.requests


async def test_groups_must_be_listed_and_only_mentions_and_replies_count(tmp_path: Path) -> None:
    other = GROUP.replace("Pmpi", "Qnqj")
    async with chat(tmp_path, say("One."), say("Two."), allowed_chats=[GROUP]) as (g, signal):
        mine = {"mentions": [signal.mention(3)]}
        await signal.say("hi \ufffc", group=other, **mine)
        await signal.say("just talking", group=GROUP)
        await signal.say("hi \ufffc", group=GROUP, user=STRANGER, **mine)
        await signal.say("hi \ufffc", group=GROUP, mentions=[signal.mention(3, STRANGER)])
        await signal.push({"syncMessage": {"sentMessage": {"message": "me"}}})
        await signal.push({"typingMessage": {"action": "STARTED"}})
        await signal.push(
            {"dataMessage": {"timestamp": 5, "message": None, "reaction": {"emoji": "x"}}}
        )
        at = await signal.say("hi \ufffc there", group=GROUP, **mine)
        sent = await signal.until_sent("One.")
        assert sent.chat == GROUP
        assert (sent.params["quoteTimestamp"], sent.params["quoteAuthor"]) == (at, OWNER)
        quote = {"id": 1, "authorUuid": "11111111-1111-4111-8111-111111111111", "text": "One."}
        await signal.say("why?", group=GROUP, quote=quote)
        await signal.until_sent("Two.")
        assert prompts(g) == ["hi  there", "> One.\nwhy?"]


async def test_long_answers_are_split_and_come_whole(tmp_path: Path) -> None:
    whole = "word " * 1000
    async with chat(tmp_path, say(whole)) as (_, signal):
        await signal.say("tell me")
        await signal.until(lambda: " ".join(signal.texts()).split() == whole.split())
        assert len(signal.sent) == 3 and all(len(t) <= 2000 for t in signal.texts())


async def test_files_go_both_ways(tmp_path: Path) -> None:
    async with chat(tmp_path, say("Here.\nMEDIA:out.txt"), config={}) as (g, signal):
        g.home.file("out.txt", "from the agent")
        signal.files["f1"] = b"from the person"
        await signal.say(
            "look",
            attachments=[{"id": "f1", "contentType": "text/plain", "filename": "../x;y.txt"}],
        )
        await signal.until(lambda: any(s.file for s in signal.sent))
        assert [s.text for s in signal.sent] == ["Here.", ""]
        assert signal.sent[1].file == b"from the agent"
        (stored,) = (g.home.path / "cache" / "media").iterdir()
        assert stored.read_bytes() == b"from the person"
        assert f"[attachment: {stored} (text/plain, 15 bytes), named ../x;y.txt]" in prompts(g)[0]


async def test_f90_an_attachment_that_is_too_large_leaves_a_note(tmp_path: Path) -> None:
    config = {"gateway": {"max_media_bytes": 100}}
    async with chat(tmp_path, say("ok"), config=config) as (g, signal):
        signal.files["f1"] = b"x" * 9000
        await signal.say("hm", attachments=[{"id": "f1", "size": 5}])
        await signal.until_sent("ok")
        assert "[attachment unnamed was not fetched: it is too large]" in prompts(g)[0]


async def test_an_approval_is_answered_by_a_word(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "git push origin main"})), say("Fine.")]
    async with chat(tmp_path, *steps) as (_, signal):
        await signal.say("push")
        await signal.until(lambda: any("Approval needed" in t for t in signal.texts()))
        await signal.say("No")
        await signal.until_sent("Fine.")
        await signal.until_sent(texts.DENIED_BY.format(name="Olga"))
        assert sum("Approval needed" in t for t in signal.texts()) == 1


async def test_commands_and_edits(tmp_path: Path) -> None:
    gate = Gate()
    async with chat(tmp_path, say("one").hold(gate, n=0), say("two")) as (g, signal):
        await signal.say("first")
        await gate.reached()
        at = await signal.say("sceond")
        await signal.until_sent(texts.QUEUED)
        edit = {
            "targetSentTimestamp": at,
            "dataMessage": {"timestamp": at + 9, "message": "second"},
        }
        await signal.push({"editMessage": edit})
        await signal.say("/platforms")
        await signal.until_sent("signal: connected")
        gate.open()
        await signal.until_sent("two")
        assert prompts(g) == ["first", "second"]


# -- failures ----------------------------------------------------------------------------------


async def test_g8_repeated_events_are_one_turn_and_missed_ones_are_answered(tmp_path: Path) -> None:
    async with chat(tmp_path, say("one"), say("two"), say("three")) as (g, signal):
        await signal.say("first")
        await signal.until_sent("one")
        await signal.hang_up()
        await signal.until(lambda: signal.streams == 2)
        await signal.say("second")
        await signal.until_sent("two")
        await g.stop()
        await signal.say("third")
        await g.start()
        await signal.until_sent("three")
        assert signal.texts() == ["one", "two", "three"]


async def test_a_kill_after_the_message_was_stored_is_one_turn(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("never").hold(gate, n=0), say("the answer")]
    async with chat(tmp_path, *steps, process=True) as (g, signal):
        await signal.say("hi")
        await gate.reached()
        await g.kill()
        gate.open()
        await g.start()
        await signal.until_sent("the answer")
        assert len(g.provider.requests) == 2 and signal.texts() == ["the answer"]


async def test_f82_a_send_without_an_answer_is_repeated_with_a_mark(tmp_path: Path) -> None:
    async with chat(tmp_path, say("the answer")) as (_, signal):
        signal.fault = on_first("send", Answer(hang_up=True, after=True))
        await signal.say("hi")
        await signal.until_sent(f"{texts.REPEATED}\nthe answer")
        assert signal.texts() == ["the answer", f"{texts.REPEATED}\nthe answer"]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(result={"timestamp": 1, "results": [{"type": "NETWORK_FAILURE"}]}),
        Answer(
            result={
                "timestamp": 1,
                "results": [{"type": "RATE_LIMIT_FAILURE", "retryAfterSeconds": 0.2}],
            }
        ),
    ],
)
async def test_a_certain_failure_is_repeated_without_a_mark(tmp_path: Path, answer: Answer) -> None:
    async with chat(tmp_path, say("the answer")) as (_, signal):
        signal.fault = on_first("send", answer)
        await signal.say("hi")
        await signal.until_sent("the answer")
        assert signal.texts() == ["the answer"]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(error={"code": -1, "message": "The user is not registered."}),
        Answer(result={"timestamp": 1, "results": [{"type": "UNREGISTERED_FAILURE"}]}),
    ],
)
async def test_f84_who_left_signal_is_given_up_until_they_write(
    tmp_path: Path, answer: Answer
) -> None:
    async with chat(tmp_path, say("lost"), say("back")) as (g, signal):
        signal.fault = on_first("send", answer)
        await signal.say("hi")
        await until_failed(g)
        await signal.say("again")
        await signal.until_sent("back")
        assert signal.texts() == ["back"]


async def test_a_silent_daemon_is_connected_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "SILENT_SECONDS", 0.3)
    async with chat(tmp_path, say("here"), daemon={"beats": False}) as (_, signal):
        await signal.until(lambda: signal.streams >= 2)
        signal.beats = True
        await signal.say("hi")
        await signal.until_sent("here")


async def test_f91_an_unknown_account_turns_it_off(tmp_path: Path) -> None:
    async with chat(tmp_path, account="+1000000000") as (g, _):
        status = g.service.status.platforms["signal"]
        assert (status.state, status.error_code) == ("fatal", "unauthorized")


async def test_setup_tries_the_account_and_saves_it(tmp_path: Path) -> None:
    async with signal_daemon() as fake:
        home = Home(tmp_path)
        command = ["gateway", "setup", "signal"]
        wrong = await run_hermes(command, home, stdin=f"{fake.url}\n+1000000000\n")
        assert wrong.rc == 2 and "Nothing was saved" in wrong.stderr
        assert not (home.path / ".env").exists()
        done = await run_hermes(command, home, stdin=f"{fake.url}\n{ACCOUNT}\n")
        assert done.rc == 0 and f"The settings work: {ACCOUNT}." in done.stdout, done.stderr
        assert "SIGNAL_ACCOUNT=" in (home.path / ".env").read_text()
