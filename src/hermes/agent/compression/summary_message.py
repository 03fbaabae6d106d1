"""The summary message that replaces earlier messages in requests, and the sources it cites."""

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from hermes.core.message import Message, Text
from hermes.core.untrusted_text import make_inert

SECTIONS = ("Goal", "Decisions", "Files touched", "Open work", "Next step")
_INTRO = (
    "[What stands between the marks is a handoff: the earlier part of this conversation in brief, "
    "a record and not a request. It cites messages like S1#14: message 14 of session S1, which "
    "session_search reads in full.]"
)
_SOURCE = re.compile(r"^S(\d+): messages (\d+)-(\d+) of session (\S+)$", re.M)
_MAX_SOURCES = 12
_MAX_HAPPENED = 40
_WORD = re.compile(r"\w{4,}")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


class Source(Struct, frozen=True):
    """Messages [first, last] of a session, cited as S`number`."""

    number: int
    first: int
    last: int
    session: str


class SummaryFacts(Struct, frozen=True):
    """What a good summary must name."""

    task: str = ""
    instruction: str = ""
    """The user's last words: the task, or guidance given since."""
    files: tuple[str, ...] = ()
    """Files written, the latest last."""


class Middle(Struct, frozen=True):
    """The messages that a summary replaces."""

    messages: Sequence[Message]
    source: Source
    before: str
    """The body of the earlier summary, which the new one updates."""
    facts: SummaryFacts


def read_sources(handoff: Message | None) -> tuple[Source, ...]:
    if handoff is None or not handoff.parts or not isinstance(handoff.parts[0], Text):
        return ()
    return tuple(
        Source(int(n), int(first), int(last), session)
        for n, first, last, session in _SOURCE.findall(handoff.parts[0].text)
    )


def read_body(handoff: Message | None) -> str:
    return handoff.parts[-1].text if handoff and isinstance(handoff.parts[-1], Text) else ""


def next_source(known: Sequence[Source], session: str, first: int, last: int) -> Source:
    return Source(max((s.number for s in known), default=0) + 1, first, last, session)


def build_summary(body: str, sources: Sequence[Source]) -> Message:
    """The summary message. Its body is made inert: it may quote text from untrusted sources."""
    named = [
        f"S{s.number}: messages {s.first}-{s.last} of session {s.session}"
        for s in sources[-_MAX_SOURCES:]
    ]
    intro = "\n".join([_INTRO, *named, ""])
    return Message("user", (Text(intro), Text(make_inert(body))), kind="summary")


def find_faults(body: str, facts: SummaryFacts, *, limit: int) -> list[str]:
    """What is wrong with a summary, a phrase each; empty: it is good."""
    found: list[str] = []
    lowered = body.casefold()
    missing = [s for s in SECTIONS if not re.search(rf"(?m)^\W*{s.casefold()}\b", lowered)]
    if missing:
        found.append("it lacks the sections " + ", ".join(missing))
    if len(body) > limit:
        found.append(f"it is longer than {limit} characters")
    if facts.task and not _mentions_text(lowered, facts.task):
        found.append("it does not say what the open task is: " + _quote_start(facts.task))
    if facts.instruction != facts.task and not _mentions_text(lowered, facts.instruction):
        found.append(
            "it leaves out the user's last instruction: " + _quote_start(facts.instruction)
        )
    names = {f: f.rstrip("/").rpartition("/")[2] or f for f in facts.files}
    if left_out := [f for f, name in names.items() if name.casefold() not in lowered]:
        found.append("it does not name the files " + ", ".join(left_out))
    return found


def _mentions_text(body: str, text: str) -> bool:
    """Whether the body shares enough words with a text to be about it."""
    text = text[:2000].casefold()
    words = set(_WORD.findall(text))
    if len(_UNSPACED.findall(text)) > len(text) // 4:
        words = {text[i : i + 2] for i in range(len(text) - 1) if not text[i : i + 2].isspace()}
    if len(words) < 3:
        return not words or any(word in body for word in words)
    return sum(word in body for word in words) >= min(6, max(2, -(-len(words) * 2 // 5)))


def _quote_start(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 200 else text[:199] + "…")


def build_digest(middle: Middle, limit: int) -> str:
    """A summary made without a model: what can be listed without understanding it."""
    messages, source, facts, before = middle.messages, middle.source, middle.facts, middle.before
    goal = _quote_start(facts.task) if facts.task else "See the user's messages."
    files = ", ".join(facts.files) or "None are known."
    listed = before.partition("\n## What happened\n")[2]
    happened = [line for line in listed.split("\n") if line]
    calls = Counter(c.name for m in messages for c in m.calls)
    named = ", ".join(f"{name} x{n}" for name, n in calls.most_common(12)) or "no calls"
    happened.append(f"- S{source.number}#{source.first}-{source.last}: {named}")
    happened += [
        f"- S{source.number}#{source.first + i}: the user said {_quote_start(m.text)}"
        for i, m in enumerate(messages)
        if m.role == "user" and m.kind in ("normal", "steer") and m.text
    ][-8:]
    earlier = before.partition("\n## What happened")[0].strip()
    pieces = [
        earlier[: limit // 2]
        or f"## Goal\n{goal}\n\n## Decisions\nNot summarised; read the messages cited.",
        f"## Files touched\n{files}" if not earlier else f"Files touched since: {files}",
        f"## Open work\nThe task: {goal}\n\n## Next step\nGo on with it.",
        "## What happened\n" + "\n".join(happened[-_MAX_HAPPENED:]),
    ]
    text = "\n\n".join(pieces)
    return text if len(text) <= limit else text[: limit - 1] + "…"
