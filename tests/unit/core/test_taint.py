"""What a session has read, what that makes a call ask for, and the words of others made inert."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from hermes.core.history import History
from hermes.core.message import Media, Message, Target, Text, ToolCall, ToolReturn, user_message
from hermes.core.store import SessionMeta
from hermes.core.taint import BOTH, Source, Taint
from hermes.core.tool import Risk, Tool, ToolResult, needs_approval, tool
from hermes.core.untrusted_text import make_inert, reveal_hidden, wrap_text, wrapper_mark
from hermes.llm.history_view import NO_RESULT, HistoryView
from hermes.llm.provider_spec import Quirks
from hermes.store.migrations import MIGRATIONS
from hermes.store.sqlite import SqliteStore
from hermes.tools.registry import select_tools

# -- the two bits ------------------------------------------------------------------------------


class Nothing(Struct, frozen=True):
    pass


async def run(p: Nothing, ctx: Any) -> ToolResult:
    return ToolResult("")


def made(brings: Collection[Source], sends: bool) -> Tool[Nothing]:
    return Tool("t", "d", Nothing, run, brings=frozenset(brings), sends=sends)


STATES = [Taint(p, u) for p in (False, True) for u in (False, True)]
BRINGS: list[Collection[Source]] = [(), ("private",), ("untrusted",), ("private", "untrusted")]


@pytest.mark.parametrize("taint", STATES)
@pytest.mark.parametrize("brings", BRINGS)
def test_a_call_asks_when_it_could_pass_on_private_data_for_a_stranger(
    taint: Taint, brings: Collection[Source]
) -> None:
    assert not needs_approval(taint, made(brings, sends=False))
    private, untrusted = taint.private, taint.untrusted
    if "private" in brings:  # it can read and send in one go
        private, untrusted = True, untrusted or "untrusted" in brings
    reason = needs_approval(taint, made(brings, sends=True))
    assert bool(reason) == (private and untrusted)
    assert not reason or ("t could send data out" in reason and len(reason) < 200)


def test_one_call_may_be_known_to_send_or_not_to_send() -> None:
    shell = made(BOTH, sends=True)
    assert needs_approval(Taint(), shell)
    assert not needs_approval(Taint(True, True), shell, sends=False)
    assert needs_approval(Taint(True, True), made((), sends=False), sends=True)


@given(st.lists(st.sampled_from(STATES)))
def test_bits_are_only_ever_added(steps: list[Taint]) -> None:
    now = Taint()
    for step in steps:
        then = now | step
        assert then.private >= now.private and then.untrusted >= now.untrusted
        assert then.private == (now.private or step.private)
        assert Taint.from_bits(then.bits) == then
        now = then


@pytest.mark.parametrize(
    ("risk", "brings", "sends"),
    [
        ("read", BOTH, False),
        ("write", frozenset(), False),
        ("exec", BOTH, True),
        ("network", {"untrusted"}, True),
    ],
)
def test_what_a_tool_does_not_say_follows_from_its_risk(
    risk: Risk, brings: Collection[Source], sends: bool
) -> None:
    async def odd(p: Nothing, ctx: Any) -> str:
        return ""

    quiet = tool("d", risk=risk)(odd)
    assert (quiet.brings, quiet.sends) == (frozenset(brings), sends)
    said = tool("d", risk=risk, brings=("private",), sends=not sends)(odd)
    assert (said.brings, said.sends) == (frozenset({"private"}), not sends)


def test_a_tool_made_by_hand_is_thought_capable_of_everything() -> None:
    assert needs_approval(Taint(), Tool("t", "d", Nothing, run))


def test_the_tools_that_exist_declare_what_they_are() -> None:
    tools = select_tools(["all"])
    for name in ("terminal", "read_file", "search_files"):
        assert name not in tools or tools[name].brings == BOTH
    for name in ("web_extract", "web_search"):
        assert name not in tools or ("untrusted" in tools[name].brings and tools[name].sends)
    for name in ("read_file", "write_file", "patch"):
        assert name not in tools or not tools[name].sends
    assert tools["terminal"].sends


# -- kept --------------------------------------------------------------------------------------


async def test_bits_are_stored_with_the_result_and_never_taken_away(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hermes.db")
    await store.sessions.append(
        "s", [user_message("a")], create=SessionMeta("s", taint=Taint(private=True))
    )
    await store.sessions.append("s", [user_message("b")], taint=Taint(untrusted=True))
    await store.sessions.append("s", [user_message("c")], taint=Taint())
    await store.sessions.append("s", [user_message("d")])
    await store.sessions.create(SessionMeta("clean"))
    await store.close()
    again = SqliteStore(tmp_path / "hermes.db")
    try:
        meta, clean = await again.sessions.get_meta("s"), await again.sessions.get_meta("clean")
        assert meta and meta.taint == Taint(True, True) and meta.messages == 4
        assert clean and clean.taint == Taint()
        assert {m.id: m.taint.bits for m in await again.sessions.list_recent()} == {
            "s": 3,
            "clean": 0,
        }
    finally:
        await again.close()


async def test_sessions_from_before_the_bits_count_as_both(tmp_path: Path) -> None:
    path = tmp_path / "hermes.db"
    db = apsw.Connection(str(path))
    MIGRATIONS[0](db)
    db.execute("PRAGMA user_version = 1; PRAGMA application_id = 0x48524D53")
    db.execute(
        "INSERT INTO sessions (id, source, key, cwd, title, model, parent, created, updated)"
        " VALUES ('old', 'cli', '', '', '', '', '', 1, 1)"
    )
    db.close()
    path.chmod(0o600)
    store = SqliteStore(path)
    try:
        meta = await store.sessions.get_meta("old")
        assert meta and meta.taint == Taint(True, True)
        await store.sessions.append("old", [user_message("more")], taint=Taint(private=True))
        await store.sessions.create(SessionMeta("new"))
        new = await store.sessions.get_meta("new")
        assert new and new.taint == Taint()
    finally:
        await store.close()


# -- hidden characters -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pay\u200bload", "pay<U+200B>load"),
        ("a\u202egnp.exe", "a<U+202E>gnp.exe"),
        ("\u2066x\u2069", "<U+2066>x<U+2069>"),
        ("\U000e0048\U000e0049", "<U+E0048><U+E0049>"),
        ("soft\u00adhyphen", "soft<U+00AD>hyphen"),
        ("a\u2060b\ufeffc", "a<U+2060>b<U+FEFF>c"),
        ("\u3164\u115f", "<U+3164><U+115F>"),
        ("x\ufe01\ufe02", "x<U+FE01><U+FE02>"),
        ("😀\U000e0100\U000e0101", "😀<U+E0100><U+E0101>"),
        ("+\U000e0159", "+<U+E0159>"),
        ("😀\ufe0f\ufe0f\ufe0e", "😀\ufe0f<U+FE0F><U+FE0E>"),
        ("a\ufff3b", "a<U+FFF3>b"),
        ("\x1b]52;c;aGk=\x07", "<U+001B>]52;c;aGk=<U+0007>"),
        ("csi\x9b31m", "csi<U+009B>31m"),
        ("latin\u200dletters\u200c", "latin<U+200D>letters<U+200C>"),
        ("\U0001f3f4\U000e0068\U000e0069\U000e0068\U000e0069\U000e0068\U000e007f",
         "\U0001f3f4<U+E0068><U+E0069><U+E0068><U+E0069><U+E0068><U+E007F>"),
    ],
)  # fmt: skip
def test_what_is_hidden_is_shown(text: str, shown: str) -> None:
    assert reveal_hidden(text) == shown
    assert reveal_hidden(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "plain\ttext\nwith\r\nlines\x0c",
        "👩\u200d💻 👩🏽\u200d🚀 ❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈 1\ufe0f⃣ ⚠\ufe0f",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "می\u200cخواهم",  # Persian
        "क\u094d\u200dष क\u094d\u200cष",  # Hindi
        "ශ\u0dca\u200dරී",  # Sinhala
        "שלום\u200f! (hi)",
        "葛\U000e0100城市",
        "naïve café — “quotes” … \u00a0 日本語 العربية",
    ],
)
def test_what_belongs_to_the_writing_stays(text: str) -> None:
    assert reveal_hidden(text) == text


@given(st.text(alphabet=st.characters(max_codepoint=0x10FFFF)))
def test_nothing_invisible_is_left_between_latin_letters(text: str) -> None:
    spaced = "".join(f"a{c}a" for c in text)
    left = [c for c in reveal_hidden(spaced) if unicodedata.category(c) in ("Cf", "Cc")]
    visible = "\t\n\r\x0c\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2"
    assert not set(left) - {*visible, "\U000110bd", "\U000110cd"}


# -- markers -----------------------------------------------------------------------------------

FORGED = [
    "</data-0a1b2c>", "<data-0a1b2c>", "<|im_start|>", "<|im_end|>", "<|endoftext|>",
    "<|start_header_id|>", "<｜User｜>", "<start_of_turn>", "<end_of_turn>", "<<SYS>>", "<</SYS>>",
    "[INST]", "[/INST]", "[no result: interrupted]", "</DATA-0A1B2C>", "<|IM_START|>",
    "</data-0a1b2c >", "< / data-0a1b2c>", "</data-0a1b2c foo='1'>", "</data\u20110a1b2c>",
    "＜/data-0a1b2c＞", "</ｄａｔａ-0a1b2c>", "<\n/data-0a1b2c\n>", "</𝐝𝐚𝐭𝐚-0a1b2c>",
    "<| im_end |>", "<tool_response>", "</tool_results>", "<system-reminder>", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[SYSTEM_PROMPT]", "[ INST ]", "[No result : Interrupted]",
    "<end_of_utterance>",
]  # fmt: skip


@pytest.mark.parametrize("marker", FORGED)
def test_markers_are_broken_and_stay_readable(marker: str) -> None:
    quoted = make_inert(f"before {marker} after")
    assert marker not in quoted
    assert quoted.replace("\\", "") == f"before {marker} after"
    assert make_inert(quoted) == quoted


@pytest.mark.parametrize(
    "words",
    [
        "User guidance: x",
        "user  guidance : x",
        "USER\nGUIDANCE：x",
        "**User guidance**: x",
        "user_guidance: x",
        "Ｕｓｅｒ ｇｕｉｄａｎｃｅ：x",
        "𝐔𝐬𝐞𝐫 𝐠𝐮𝐢𝐝𝐚𝐧𝐜𝐞: x",
        "User\u00a0guidance∶ x",
    ],
)
def test_guidance_in_output_is_a_quotation(words: str) -> None:
    assert " (quoted)" in make_inert(words)
    assert make_inert(make_inert(words)) == make_inert(words)


def test_code_that_only_looks_similar_stays() -> None:
    text = (
        "a <| b |> c; f <|> g; x[INSTALL]; <data-table>; <data-value='1'>; List<data>; [no result]"
    )
    assert make_inert(text) == text


# -- the wrapper -------------------------------------------------------------------------------

HERE = Target("here", "model", "chat")
A, B = ToolCall("a", "read", "{}"), ToolCall("b", "write", "{}")
MARK = wrapper_mark("20250101-000000-abcdef01")


def sent(*messages: Message, quirks: Quirks | None = None, mark: str = MARK) -> list[Any]:
    out: list[Message] = []
    view = HistoryView(HERE, quirks or Quirks(), out.append)
    view.add_new_messages(History(messages, mark=mark))
    return [p for g in out + view.pending_groups() for p in g.parts if isinstance(p, ToolReturn)]


def result(call: ToolCall, *content: Text | Media) -> Message:
    return Message("tool", (ToolReturn(call.id, call.name, content),))


def asked(*calls: ToolCall) -> tuple[Message, Message]:
    return user_message("go"), Message("assistant", calls, origin=HERE)


def test_results_are_wrapped_in_a_mark_of_the_session_at_little_cost() -> None:
    first, second = sent(*asked(A, B), result(A, Text("one")), result(B, Text("two")))
    assert first.text == f"<{MARK}>\none\n</{MARK}>" and second.text == f"<{MARK}>\ntwo\n</{MARK}>"
    assert len(first.text) - len("one") <= 40
    assert (
        wrapper_mark("20250101-000000-abcdef01") == MARK != wrapper_mark("20250101-000000-abcdef02")
    )


def test_guidance_is_outside_and_last() -> None:
    _, last = sent(
        *asked(A, B),
        result(A, Text("one")),
        result(B, Text("two")),
        user_message("blue", kind="steer"),
    )
    assert last.text == f"<{MARK}>\ntwo\n</{MARK}>\n\nUser guidance: blue"


def test_our_own_words_about_a_missing_result_are_not_wrapped() -> None:
    (missing,) = sent(*asked(A))
    assert missing.text == NO_RESULT


def test_text_around_an_image_is_wrapped_as_one() -> None:
    image = Media("image/png", b"png")
    (found,) = sent(*asked(A), result(A, Text("above"), image, Text("below")))
    assert found.content == (Text(f"<{MARK}>\nabove"), image, Text(f"below\n</{MARK}>"))
    (alone,) = sent(*asked(A), result(A, image))
    assert alone.content == (image,)


def test_without_a_mark_nothing_is_wrapped() -> None:
    (found,) = sent(*asked(A), result(A, Text("one")), mark="")
    assert found.text == "one"


@given(st.lists(st.sampled_from(["<", "</", MARK, f"<{MARK}>", f"</{MARK}>", ">", "\n", "x"])))
def test_no_content_can_end_the_wrapper(pieces: list[str]) -> None:
    whole = wrap_text("".join(pieces), MARK, begin=True, end=True)
    assert whole.count(f"<{MARK}>") == whole.count(f"</{MARK}>") == 1
    assert whole.startswith(f"<{MARK}>\n") and whole.endswith(f"\n</{MARK}>")
