"""Pictures from elsewhere in answers: links, once a session has read what could leave by them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.server.turns.image_links import LOOKAHEAD, ImageLinkFilter, link_images
from tests.kit import call, say
from tests.kit.api import Answer, api

READ = call(("c1", "read_file", {"path": "notes.txt"}))
PICTURE = "Look: ![a chart](https://example.org/x.png?q=secret), and `![b](http://x)`."
LINK = PICTURE.replace("![a", "[a")
HI = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 99, "input": "hi"}


@pytest.mark.parametrize(
    "text,expected",
    [
        ("![a](http://e/x)", "[a](http://e/x)"),
        ("![a](HTTPS://e)", "[a](HTTPS://e)"),
        ("![a](//e/x)", "[a](//e/x)"),
        ("![a]( <http://e>)", "[a]( <http://e>)"),
        ("![a](\nhttp://e)", "[a](\nhttp://e)"),
        ("![a](ht&#116;p://e)", "[a](ht&#116;p://e)"),
        ("![a](http\\://e)", "[a](http\\://e)"),
        ("![a\\]b](http://e)", "[a\\]b](http://e)"),
        ("x![a](http://e)", "x[a](http://e)"),
        ("!![a](http://e)", "! [a](http://e)"),
        ("\\\\![a](http://e)", "\\\\[a](http://e)"),
        ("[![b](http://i)](http://l)", "[[b](http://i)](http://l)"),
        ("![a][r]\n\n[r]: http://e", "[a][r]\n\n[r]: http://e"),
        ("![r]\n", "[r]\n"),
        (f"![{'a' * LOOKAHEAD}](http://e)", f"[{'a' * LOOKAHEAD}](http://e)"),
        ("<img src=http://e>", "&lt;img src=http://e>"),
        ("<IMG/src=http://e>", "&lt;IMG/src=http://e>"),
        ("don`t ![a](http://e)\nor`", "don`t [a](http://e)\nor`"),
        ("don`t ![a](http://e)", "don`t [a](http://e)"),
        ("```md\n![a](http://e)\n```\n![a](http://e)", "```md\n![a](http://e)\n```\n[a](http://e)"),
        ("```a`b\n![a](http://e)", "```a`b\n[a](http://e)"),
        ("    ```\n![a](http://e)", "    ```\n[a](http://e)"),
    ],
)
def test_a_picture_from_elsewhere_is_a_link(text: str, expected: str) -> None:
    assert link_images(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "![a](data:image/png;base64,AAAA)",
        "![a](chart.png) ![b](./c.png 'title') ![c](/tmp/d.png)",
        "\\![a](http://e)",
        "let v = vec![1, 2]; vec![a][0]; #![allow(x)]; wow![1]",
        "`![a](http://e)` and ``b ` ![a](http://e)``",
        "~~~\n![a](http://e)\n~~~\n",
        "```\n<img src=http://e>\n![a](http://e)",
        "a < b, <imgx>, <i>, [a](http://e), !, ![, ![a",
        "ends with !",
        "ends with <",
        "ends with \\",
        "ends with `",
    ],
)
def test_what_is_left_alone(text: str) -> None:
    assert link_images(text) == text


_PIECES = "![ a ]( http://e ) ` `` ``` ~~~ \n ! < img <img\t \\ [r] data:x word # ] ( .. é".split(
    " "
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=24), st.lists(st.integers(1, 6), min_size=1))
def test_it_does_not_matter_how_a_text_is_cut(pieces: list[str], sizes: list[int]) -> None:
    text = "".join(pieces)
    scan, out, at, n = ImageLinkFilter(), "", 0, 0
    while at < len(text):
        size = sizes[n % len(sizes)]
        out += scan.feed(text[at : at + size])
        at, n = at + size, n + 1
    whole = ImageLinkFilter()
    assert out + scan.close() == whole.feed(text) + whole.close()


def test_at_most_what_may_begin_a_picture_is_held_back() -> None:
    scan = ImageLinkFilter()
    assert scan.feed("Well!") == "Well"
    assert scan.feed(" So: ![a") == "! So: "
    assert scan.feed("](h") == ""
    assert scan.feed("ttp:") == "[a](http:"
    assert scan.close() == ""


def texts(answer: Answer, path: str) -> set[str]:
    """What a client would show, wherever this answer says it."""
    assert answer.status == 200, answer.body
    if not answer.headers["Content-Type"].startswith("text/event-stream"):
        data = answer.json
        if "choices" in data:
            return {data["choices"][0]["message"]["content"]}
        if "output" in data:
            return {data["output"][-1]["content"][0]["text"]}
        return {data["content"][-1]["text"] if "content" in data else data["message"]["content"]}
    found, said = set(), ""
    for _, data in answer.events:
        if data == "[DONE]":
            continue
        if path.endswith("completions") and data.get("choices"):
            said += data["choices"][0]["delta"].get("content") or ""
        elif isinstance(data.get("delta"), str):
            said += data["delta"] if "arguments" not in data.get("type", "") else ""
        elif isinstance(data.get("delta"), dict):
            said += data["delta"].get("text", "")
        if data.get("type") == "response.completed":
            found.add(data["response"]["output"][-1]["content"][0]["text"])
        if data.get("output") and isinstance(data["output"], str):
            found.add(data["output"])
    return found | {said}


async def test_whole_and_streamed_answers_agree_and_the_store_has_the_model_s_words(
    tmp_path: Path,
) -> None:
    script = [READ, say(PICTURE, size=3)] * 6 + [say(PICTURE, size=3)] * 2
    async with api(tmp_path, script) as a:
        a.home.file("notes.txt", "private")
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            for stream in (False, True):
                answer = await a.post(path, {**HI, "stream": stream})
                assert texts(answer, path) == {LINK}, (path, stream)
        session = answer.headers["X-Hermes-Session-Id"]
        said = {"message": "hi"}
        one = await a.post(f"/api/sessions/{session}/chat", said)
        two = await a.post(f"/api/sessions/{session}/chat/stream", said)
        assert texts(one, "") == texts(two, "") == {LINK}
        listed = (await a.get(f"/api/sessions/{session}/messages")).json["data"]
        shown = {
            p["text"]
            for m in listed
            for p in m["content"]
            if m["role"] == "assistant" and "text" in p
        }
        assert shown == {LINK}
        stored = await a.server.runtime.store.sessions.load_messages(session)
        assert {m.text for m in stored if m.role == "assistant" and m.text} == {PICTURE}


async def test_runs_tell_links_too(tmp_path: Path) -> None:
    async with api(tmp_path, [READ, say(PICTURE, size=3)]) as a:
        a.home.file("notes.txt", "private")
        run = (await a.post("/v1/runs", {"input": "hi"})).json["run_id"]
        told = await a.get(f"/v1/runs/{run}/events")
        assert texts(told, "") == {LINK}
        assert (await a.get(f"/v1/runs/{run}")).json["output"] == LINK


@pytest.mark.parametrize("reads,setting", [(False, "link"), (True, "keep")])
async def test_pictures_stay_where_nothing_can_leave_or_it_is_wanted(
    tmp_path: Path, reads: bool, setting: str
) -> None:
    script = [*([READ] if reads else []), say(PICTURE, size=3)] * 2
    async with api(tmp_path, script, settings={"images": setting}) as a:
        a.home.file("notes.txt", "private")
        path = "/v1/chat/completions"
        for stream in (False, True):
            assert texts(await a.post(path, {**HI, "stream": stream}), path) == {PICTURE}
