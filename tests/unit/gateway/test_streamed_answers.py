"""However an answer comes in and whatever a platform refuses, the chat ends up showing it: exactly,
in order, without a secret in any version, and with no more writes than the pace allows.

The long form: HERMES_GATEWAY_STREAMS=1000."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from hermes.core.events import Recorded, TextDelta, ToolDone, ToolStarted
from hermes.core.message import Message, Text, ToolCall, ToolReturn
from hermes.core.redaction.redactor import Redactor
from hermes.core.store import Conversation
from hermes.gateway import outbox, texts, turn_reply
from hermes.gateway.adapter import Capabilities, Part, PlainPlatform, Receiver, SendFailure, Target
from hermes.gateway.turn_reply import ReplyAddress, ReplyStyle, TurnReply
from tests.kit.discord import read_discord
from tests.kit.slack import read_slack
from tests.kit.telegram import read_html
from tests.unit.gateway.gated_platform import make_workspace, open_delivery

CHAT, NAME = "alice", "chat"
SECRET = "sk-live-0123456789abcdefghij"
PASSWORD = "corr€ct (horse)! & staple #9"
SECRETS = (SECRET, PASSWORD)
EXAMPLES = int(os.environ.get("HERMES_GATEWAY_STREAMS", "20"))
FASTER = 100
"""Paces are divided by it."""
PIECES = st.sampled_from(
    [
        "a word ",
        "**bold** ",
        "`code` ",
        "[link](https://e.x/a) ",
        "漢字漢字 ",
        "👍🏽e\u0301 ",
        "1 < 2 & @everyone ",
        "\n\n",
        "\n- item\n",
        "\n```py\nx = [1]\n```\n",
        "long " * 30,
        SECRET[:6],
        f" {SECRET} ",
        f" {PASSWORD} ",
        "\n# Title\n\n",
    ]
)
PLATFORMS = {
    "telegram": "TelegramPlatform",
    "discord": "DiscordPlatform",
    "slack": "SlackPlatform",
    "matrix": "MatrixPlatform",
    "whatsapp": "WhatsappPlatform",
    "signal": "SignalPlatform",
    "irc": "IrcPlatform",
    "email": "EmailPlatform",
}
READERS: dict[str, Callable[[str], str]] = {
    "telegram": read_html,
    "discord": read_discord,
    "slack": read_slack,
}


class Fault(Struct, frozen=True):
    """What the next call ends with."""

    kind: Any
    """None: it succeeds."""
    has_effect: bool = False


SOME_FAULTS = [Fault(None), Fault("wait"), Fault("markup"), Fault("certain")]
UNCLEAR = [Fault("ambiguous"), Fault("ambiguous", has_effect=True)]
SEND_FAULTS = st.lists(st.sampled_from([*SOME_FAULTS, *UNCLEAR]), max_size=6).filter(
    lambda faults: sum(fault.kind == "ambiguous" for fault in faults) <= 2
)
EDIT_FAULTS = st.lists(st.sampled_from([*SOME_FAULTS, *UNCLEAR, Fault("edit_lost")]), max_size=6)


class Recording(PlainPlatform):
    """A chat with its writes, which refuses what the script says."""

    def __init__(
        self, capabilities: Capabilities, send_faults: list[Fault], edit_faults: list[Fault]
    ) -> None:
        self.capabilities = capabilities
        self.messages: dict[str, str] = {}
        self.doubtful: list[str] = []
        """Messages that are shown although their sender could not know."""
        self.versions: list[Part] = []
        self.edit_gaps: list[float] = []
        self.longest = 0
        self._send_faults, self._edit_faults = iter(send_faults), iter(edit_faults)
        self._count = 0
        self._last = 0.0

    async def run(self, receiver: Receiver) -> None:
        return None

    def _begin(self, part: Part, faults: Iterator[Fault]) -> Fault:
        self.longest = max(self.longest, self.capabilities.measure(part.text))
        self.versions.append(part)
        fault = next(faults, Fault(None))
        # Plain text has no markup that could be refused.
        return Fault(None) if fault.kind == "markup" and not part.markup else fault

    def _end(self, fault: Fault) -> None:
        self._last = time.monotonic()
        if fault.kind is not None:
            raise SendFailure(fault.kind, "refused", wait=0.01)

    async def send_part(self, target: Target, part: Part) -> str:
        fault = self._begin(part, self._send_faults)
        self._count += 1
        id = str(self._count)
        if fault.kind is None:
            self.messages[id] = part.text
        elif fault.has_effect:
            self.doubtful.append(part.text)
        self._end(fault)
        return id

    async def edit_part(self, target: Target, id: str, part: Part) -> None:
        self.edit_gaps.append(time.monotonic() - self._last)
        fault = self._begin(part, self._edit_faults)
        if fault.kind == "edit_lost":
            self.messages.pop(id, None)
        elif fault.kind is None or fault.has_effect:
            self.messages[id] = part.text
        self._end(fault)

    async def delete_part(self, target: Target, id: str) -> None:
        self.messages.pop(id, None)

    @property
    def shown(self) -> list[str]:
        return [text.removeprefix(f"{texts.REPEATED}\n") for text in self.messages.values()]


def find_capabilities(name: str, longest: int) -> Capabilities:
    module = import_module(f"hermes.gateway.platforms.{name}")
    found: Capabilities = getattr(module, PLATFORMS[name]).capabilities
    pace, group_pace = found.pace / FASTER, found.group_pace / FASTER
    return structs.replace(found, longest_part=longest, pace=pace, group_pace=group_pace)


async def stream(
    platform: Recording, folder: Path, pieces: list[str], pace: list[int], *, in_group: bool
) -> None:
    """One turn with a tool: its text arrives in pieces, some of them after a while."""
    async with open_delivery(folder, NAME, platform) as d:
        shows_tools = platform.capabilities.edits
        style = ReplyStyle(
            Redactor(SECRETS), make_workspace(folder), folder, shows_tools=shows_tools
        )
        address = ReplyAddress(NAME, CHAT, in_group=in_group)
        reply = TurnReply(d.outbox, address, style, Conversation("key"), (1,))
        if platform.capabilities.edits:
            reply.start_drafts(d.spawn)
        size, *pauses = pace
        waits = iter(pauses)

        async def say(text: str, state: Any) -> None:
            for at in range(0, len(text), size):
                reply.handle_event(TextDelta(text[at : at + size]))
                await asyncio.sleep(next(waits, 0) / 1000)
            calls = (ToolCall("c1", "terminal", "{}"),) if state is None else ()
            message = Message("assistant", (Text(text), *calls))
            change = reply.compose_change(message, state, "")
            if change is not None:
                await d.mailbox.apply(change)
            reply.handle_event(Recorded(message))

        await say(pieces[0], None)
        call = ToolCall("c1", "terminal", '{"command": "echo ' + SECRET + '"}')
        reply.handle_event(ToolStarted(call))
        await asyncio.sleep(next(waits, 0) / 1000)
        reply.handle_event(ToolDone(ToolReturn("c1", "terminal"), 0.1))
        await say("".join(pieces[1:]), "idle")
        await reply.end(90)
        await d.until_sent()


def squeeze(text: str) -> str:
    """Without white space, and without fences, which are closed and opened again at a cut."""
    return "".join(text.replace("```py", "").replace("```", "").split())


@pytest.mark.parametrize("name", PLATFORMS)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(
    before=st.lists(PIECES, min_size=1, max_size=8),
    after=st.lists(PIECES, max_size=8),
    # Characters at once, and milliseconds between them.
    pace=st.builds(
        lambda size, waits: [size, *waits],
        st.integers(5, 60),
        st.lists(st.integers(1, 30), min_size=4, max_size=12),
    ),
    longest=st.integers(80, 300),
    send_faults=SEND_FAULTS,
    edit_faults=EDIT_FAULTS,
    in_group=st.booleans(),
)
def test_a_streamed_answer_ends_as_the_text_of_the_model(
    name: str,
    before: list[str],
    after: list[str],
    pace: list[int],
    longest: int,
    send_faults: list[Fault],
    edit_faults: list[Fault],
    in_group: bool,
) -> None:
    pieces = [*before, f" {SECRET} ", *after]
    platform = Recording(find_capabilities(name, longest), send_faults, edit_faults)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(outbox, "FIRST_WAIT", 0.005),
        patch.object(turn_reply, "FIRST_DRAFT_SECONDS", 0.002),
    ):
        asyncio.run(stream(platform, Path(folder), pieces, pace, in_group=in_group))
    expected = Redactor(SECRETS).redact("".join(pieces))
    assert squeeze("".join(platform.shown)) == squeeze(expected)
    for version in platform.versions:
        for text in (version.text, version.markup):
            assert SECRET[:9] not in text and PASSWORD[:9] not in text
        if read := READERS.get(name):
            read(version.markup)
    capabilities = platform.capabilities
    assert platform.longest <= longest
    least = capabilities.group_pace if in_group else capabilities.pace
    assert all(gap >= least - 0.0005 for gap in platform.edit_gaps), platform.edit_gaps
    seen = (*platform.doubtful, *platform.messages.values())
    marked = sum(text.startswith(texts.REPEATED) for text in seen)
    assert marked >= len(platform.doubtful), "what is shown twice has its mark"
