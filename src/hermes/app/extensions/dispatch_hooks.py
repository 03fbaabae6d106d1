"""Calls the hooks that see messages of chats before a session does."""

import logging
from collections.abc import Mapping
from pathlib import Path

from hermes.core.hooks import (
    DispatchDecision,
    HookedSession,
    HookFailure,
    HookTable,
    SessionHooks,
    parse_dispatch,
)
from hermes.core.message import ToolCall

log = logging.getLogger(__name__)


async def decide_dispatch(
    table: HookTable, platform: str, cwd: Path, message: Mapping[str, str]
) -> DispatchDecision | None:
    """What the first hook says about a message whose sender is allowed; None: nothing. `message`:
    the keywords of the hook."""

    async def nobody(call: ToolCall, reason: str, diff: str) -> None:
        return None

    def tell(code: str, sentence: str) -> None:
        log.warning("%s", sentence)

    session = HookedSession(platform, cwd, "", lambda: "", tell, nobody)
    try:
        return await SessionHooks(table, session).ask_first(
            "pre_gateway_dispatch", parse_dispatch, **message
        )
    except HookFailure:
        return DispatchDecision("skip")
