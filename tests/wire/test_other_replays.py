"""Recorded conversations of three wires, read into canonical messages and sent again: the request
means what the recorded one meant, which the provider had accepted."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest

from hermes.core.history import History
from hermes.core.message import Message, Target
from hermes.core.provider import Settings
from hermes.llm.history_view import HistoryView
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire import load_wire
from hermes.llm.wire.request_fields import RequestHead
from tests.wire.importers import IMPORT, MEANING, Conversation, Meaning
from tests.wire.recordings import ROOT, Recording, load
from tests.wire.test_other_oracles import ours

pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason="no recordings beside the project")
APIS = ("anthropic", "gemini", "bedrock")


def target(api: str) -> Target:
    return Target("p", "m", api)


def request_of(r: Recording) -> dict[str, Any]:
    if not isinstance(r.request, dict):
        pytest.skip("the request was not recorded as JSON")
    return r.request


def encoded(api: str, talk: Conversation, messages: list[Message]) -> dict[str, Any]:
    encoder = load_wire(api).Encoder(target(api), Quirks())
    view = HistoryView(target(api), Quirks(), encoder.add_group)
    view.add_new_messages(History(messages))
    body = encoder.build_body(
        view.pending_groups(), RequestHead(talk.system, tuple(talk.tools), Settings(), True)
    )
    return orjson.loads(body)


def every() -> list[Any]:
    return [pytest.param(r, id=f"{api}-{r.name}") for api in APIS for r in load(api)]


@pytest.mark.parametrize("r", every())
def test_a_recorded_request_sent_again_means_the_same(r: Recording) -> None:
    request = request_of(r)
    talk = IMPORT[r.api](request, target(r.api))
    body = encoded(r.api, talk, talk.messages)
    assert without_attachment_notes(MEANING[r.api](body)) == MEANING[r.api](request)
    again = IMPORT[r.api](body, target(r.api))
    assert again.system == talk.system
    assert [t.name for t in again.tools] == [t.name for t in talk.tools]
    assert [t.parameters for t in again.tools] == [
        {**t.parameters, "type": "object"} for t in talk.tools
    ]


def without_attachment_notes(meaning: Meaning) -> Meaning:
    """The text Converse demands next to a document is ours."""
    return [
        (role, [a for a in atoms if a != ("text", "See the attached document.")])
        for role, atoms in meaning
    ]


# -- an answer, and the next request of its conversation -----------------------------------------


def pairs() -> list[Any]:
    out = []
    for api in APIS:
        found = {r.name: r for r in load(api)}
        for name, r in found.items():
            place = re.fullmatch(r"(.*)\.(\d+)", name)
            after = found.get(f"{place[1]}.{int(place[2]) + 1}") if place else None
            if after is not None and r.status == 200:
                out.append(pytest.param(r, after, id=f"{api}-{name}"))
    return out


@pytest.mark.parametrize(("r", "after"), pairs())
def test_an_answer_goes_back_as_the_next_request_had_it(r: Recording, after: Recording) -> None:
    before = IMPORT[r.api](request_of(r), target(r.api)).messages
    talk = IMPORT[r.api](request_of(after), target(r.api))
    answer = ours(r)[1]
    at = len(before)
    goes_on = talk.messages[:at] == before and talk.messages[at].role == "assistant"
    same = r.stream != "json" or bool(marks(r.response) & marks(after.request))
    if not (goes_on and same):
        pytest.skip("not the next request of the same conversation")
    recorded = MEANING[r.api](request_of(after))
    mine = encoded(
        r.api, talk, [*before, answer, *renamed(talk.messages[at + 1 :], talk, answer, at)]
    )
    assert told(MEANING[r.api](mine)) == told(recorded)


def marks(value: Any) -> set[str]:
    """Words long enough to tell conversations apart: ids, signatures, sentences."""
    if isinstance(value, dict):
        return {m for v in value.values() for m in marks(v)}
    if isinstance(value, list):
        return {m for v in value for m in marks(v)}
    text = value if isinstance(value, str) else ""
    words = re.findall(r"[\w+/-]{20,}|[^.]{40,}", text.replace("-", "+").replace("_", "/"))
    return {w[:200] for w in words}


def renamed(rest: list[Message], talk: Conversation, answer: Message, at: int) -> list[Message]:
    """Results under the ids our decoder gave the calls: the recorded client made up others."""
    ids = dict(
        zip([c.id for c in talk.messages[at].calls], [c.id for c in answer.calls], strict=True)
    )
    out = []
    for message in rest:
        parts = tuple(
            type(p)(ids.get(p.call_id, p.call_id), p.name, p.content, p.error)
            if message.role == "tool"
            else p
            for p in message.parts
        )
        out.append(Message(message.role, parts, origin=message.origin))
    return out


def told(meaning: Meaning) -> list[Any]:
    """Order, roles, calls, signatures and what was said; not the ids, and not how text was cut."""
    out: list[Any] = []
    for role, atoms in meaning:
        for atom in atoms:
            if atom[0] == "text":
                text = re.sub(r"(?s)<thinking>.*?</thinking>\s*", "", atom[1])
                if out and out[-1][:2] == (role, "text"):
                    out[-1] = (role, "text", out[-1][2] + text, *atom[2:])
                elif text:
                    out.append((role, "text", text, *atom[2:]))
            elif atom[0] in ("call", "result"):
                out.append((role, atom[0], *atom[2:]))
            elif atom[0] == "native":
                block = dict(atom[1])
                out.append((role, "native", block.get("type"), block.get("id")))
            else:
                out.append((role, *atom))
    return out


def test_there_is_something_to_replay() -> None:
    assert len(pairs()) > 10
