"""E-mail with a real IMAP server: new mail, replies, files, and a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.gateway.platform_runs import list_prompts, platform_gateway
from tests.kit import say
from tests.kit.dovecot import dovecot
from tests.kit.mail import ADDRESS, AUTHSERV, OWNER, PASSWORD, compose, mail_server

pytestmark = pytest.mark.e2e


async def test_a_mailbox_on_dovecot(tmp_path: Path) -> None:
    async with mail_server() as out, dovecot(PASSWORD) as box:
        box.deliver(compose("before the first start"))
        settings = {
            "enabled": True,
            "address": ADDRESS,
            "imap_host": "127.0.0.1",
            "imap_port": box.port,
            "smtp_host": "127.0.0.1",
            "smtp_port": out.smtp_port,
            "tls": "none",
            "authserv_id": AUTHSERV,
            "allowed_users": [OWNER],
        }
        steps = [say("one"), say("two"), say("three")]
        env = {"EMAIL_PASSWORD": PASSWORD}
        async with platform_gateway(tmp_path, "email", settings, env, steps) as g:
            box.deliver(compose("é now", Subject="", files={"a.txt": b"some notes"}))
            first = await out.until_sent("one")
            box.deliver(compose("a robot", Auto_Submitted="auto-generated"))
            box.deliver(compose("again", In_Reply_To=first["Message-ID"]))
            await out.until_sent("two")
            async with asyncio.timeout(90):
                while [f for f in box.list_flags().values()].count("S") != 2:
                    await asyncio.sleep(0.1)
            await g.kill()
            box.deliver(compose("while it was down", Subject=""))
            await g.start()
            await out.until_sent("three")
            prompts = list_prompts(g)
            assert prompts[0].startswith("é now\n") and "10 bytes), named a.txt]" in prompts[0]
            assert prompts[1:] == ["again", "while it was down"]
            assert await g.stop() == 0
