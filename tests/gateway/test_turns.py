"""Whole turns in a messenger."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.gateways import gateway
from tests.kit import say

pytestmark = pytest.mark.e2e


async def test_a_message_is_answered(tmp_path: Path) -> None:
    async with gateway(tmp_path, [say("Hello **you**.")]) as g:
        await g.telegram.say("hi")
        await g.telegram.until_shown("Hello you.")
        assert await g.stop() == 0
        assert g.telegram.texts() == ["Hello you."]
