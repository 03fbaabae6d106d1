"""E-mail: whole turns against a mailbox and an SMTP server on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from tests.gateway.gateways import GatewayProcess
from tests.gateway.platform_runs import list_prompts, platform_gateway, until_fatal
from tests.kit import call, run_hermes, say
from tests.kit.mail import (
    ADDRESS,
    AUTHSERV,
    OWNER,
    PASSWORD,
    MailServer,
    compose,
    mail_server,
    read_text,
)

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def mailbox(
    root: Path,
    *steps: Any,
    idle: bool = True,
    then: Any = None,
    start: bool = True,
    **settings: Any,
) -> AsyncIterator[tuple[GatewayProcess, MailServer]]:
    async with mail_server(idle=idle) as server:
        given = {
            "address": ADDRESS,
            "imap_host": "127.0.0.1",
            "imap_port": server.imap_port,
            "smtp_host": "127.0.0.1",
            "smtp_port": server.smtp_port,
            "tls": "none",
            "enabled": True,
            "authserv_id": AUTHSERV,
            "allowed_users": ["Owner@kit.example"],
            **settings,
        }
        env = {"EMAIL_PASSWORD": PASSWORD}
        running = platform_gateway(root, "email", given, env, steps, then=then, start=start)
        async with running as g:
            yield g, server


async def test_a_mail_is_answered_in_its_thread(tmp_path: Path) -> None:
    steps = (say("Hello **you** <i>x</i>."), say("More.\nMEDIA:out.txt"), say("Else."))
    async with mailbox(tmp_path, *steps) as (g, server):
        g.home.file("out.txt", "sent along")
        number = await server.deliver(compose("Who are you?", Message_ID="<root@kit.example>"))
        first = await server.until_sent("Hello **you** <i>x</i>.")
        assert first["To"] == OWNER and first["Subject"] == "Re: A question"
        assert first["In-Reply-To"] == "<root@kit.example>" == first["References"]
        assert first["Auto-Submitted"] == "auto-replied"
        html = first.get_body(("html",))
        assert html is not None and "<b>you</b> &lt;i&gt;x&lt;/i&gt;." in html.get_content()
        await server.until(lambda: any("STORE" in c for c in server.commands))
        assert "\\Seen" in next(m for m in server.inbox if m.number == number).flags

        quoted = "And more?\n\nOn Monday Hermes wrote:\n> Hello you.\n> bye\n"
        answer = compose(
            quoted,
            Subject="Re: A question",
            In_Reply_To=first["Message-ID"],
            Message_ID="<second@kit.example>",
            files={"../notes.txt": b"some notes"},
        )
        await server.deliver(answer)
        second = await server.until_sent("More.")
        assert second["References"].split()[-1] == "<second@kit.example>"
        await server.until(lambda: len(server.sent) == 3)
        (file,) = server.sent[2].iter_attachments()
        assert file.get_content() == "sent along"
        await server.deliver(compose("Something else", Subject="Other"))
        third = await server.until_sent("Else.")
        assert third["Subject"] == "Re: Other"
        prompts = list_prompts(g)
        assert prompts[0] == "Subject: A question\n\nWho are you?"
        assert prompts[1].startswith("And more?\n") and "Hello you" not in prompts[1]
        assert "(text/plain, 10 bytes), named ../notes.txt]" in prompts[1]
        rows = (await run_hermes(["sessions", "list", "--json"], g.home)).json
        assert len(rows) == 2, "a thread is a session"
        assert all(r["key"].startswith(f"agent:main:email:dm:{OWNER}:") for r in rows)
        assert await g.stop() == 0


NEVER: list[dict[str, Any]] = [
    {"sender": "stranger@kit.example"},
    {"vouched": False},
    {"vouched": False, "Authentication_Results": "mx.evil; dmarc=pass header.from=kit.example"},
    {"vouched": False, "Authentication_Results": f"{AUTHSERV}; dmarc=fail header.from=kit.example"},
    {"vouched": False, "Authentication_Results": f"{AUTHSERV}; dkim=pass header.d=evil.example"},
    {"Auto_Submitted": "auto-replied"},
    {"List_Id": "<x.kit.example>"},
    {"Precedence": "bulk"},
    {"X_Auto_Response_Suppress": "OOF"},
    {"Return_Path": "<>"},
    {"sender": "no-reply@kit.example"},
    {"sender": "mailer-daemon@kit.example"},
    {"sender": ADDRESS},
]


async def test_what_is_never_answered(tmp_path: Path) -> None:
    people = [OWNER, ADDRESS, "no-reply@kit.example", "mailer-daemon@kit.example"]
    async with mailbox(tmp_path, then=say("one"), allowed_users=people) as (g, server):
        for headers in NEVER:
            await server.deliver(compose("hello", **headers))
        aligned = f"{AUTHSERV}; dkim=pass header.d=kit.example; spf=none"
        await server.deliver(compose("mine", vouched=False, Authentication_Results=aligned))
        await server.until(lambda: server.sent)
        assert await g.stop() == 0
        assert len(g.provider.requests) == 1 and len(server.sent) == 1
        assert [m.flags for m in server.inbox[:-1]] == [set()] * len(NEVER), "left as they were"


async def test_the_first_start_begins_now_and_nothing_missed_is_lost(tmp_path: Path) -> None:
    steps = (say("one"), say("two"), say("three"))
    async with mailbox(tmp_path, *steps, start=False) as (g, server):
        await server.deliver(compose("long ago"))
        await g.start()
        await server.deliver(compose("now", Subject=""))
        await server.until_sent("one")
        await g.kill()
        await server.deliver(compose("while it was down", Subject=""))
        await g.start()
        await server.until_sent("two")
        await g.kill()
        state = g.home.path / "platforms" / "email" / "state.json"
        assert state.stat().st_mode & 0o777 == 0o600
        old = {**json.loads(state.read_bytes()), "last": 1}
        state.write_text(json.dumps(old))  # as if it had been killed before it was written
        await g.start()
        await server.deliver(compose("and on", Subject=""))
        await server.until_sent("three")
        assert list_prompts(g) == ["now", "while it was down", "and on"]


async def test_a_mail_that_cannot_be_read_holds_no_other_up(tmp_path: Path) -> None:
    async with mailbox(tmp_path, say("what does it say?"), say("hello"), trust_from=True) as (
        g,
        server,
    ):
        broken = compose("caf\u00e9", Subject="").replace(b'charset="utf-8"', b'charset="idna"')
        assert b"idna" in broken
        await server.deliver(broken)
        await server.until_sent("what does it say?")
        await server.deliver(compose("next", Subject=""))
        await server.until_sent("hello")
        assert "could not be read" in list_prompts(g)[0]


async def test_ten_replies_an_hour_and_the_rest_waits(tmp_path: Path) -> None:
    async with mailbox(tmp_path, then=say("yes"), trust_from=True, allow_all_users=True) as (
        g,
        server,
    ):
        for n in range(12):
            await server.deliver(compose(f"mail {n}", Message_ID=f"<{n}@kit.example>"))
        await server.deliver(compose("somebody else", sender="other@kit.example", vouched=False))
        await server.until(lambda: any(m["To"] == "other@kit.example" for m in server.sent))
        await server.until(lambda: len(server.sent) == 11)
        assert await g.stop() == 0
        assert len([m for m in server.sent if m["To"] == OWNER]) == 10


@pytest.mark.parametrize("idle", [True, False])
async def test_a_dropped_connection_is_opened_again(tmp_path: Path, idle: bool) -> None:
    async with mailbox(tmp_path, say("one"), idle=idle, poll_seconds=0.3) as (_, server):
        begun = server.logins
        server.drop_connections()
        await server.until(lambda: server.logins > begun)
        await server.deliver(compose(html="<p>Is <b>this</b></p><script>x</script>read?"))
        await server.until_sent("one")


async def test_failed_sends(tmp_path: Path) -> None:
    async with mailbox(tmp_path, then=say("answer")) as (g, server):
        faults = ["451 busy", "421 later"]
        server.smtp_fault = lambda command: faults.pop() if faults and command == "DATA" else None
        await server.deliver(compose("first"))
        await server.until_sent("answer")
        server.hang_up_after_data = 1
        await server.deliver(compose("second"))
        await server.until_sent(f"{texts.REPEATED}\nanswer")
        assert [read_text(m) for m in server.sent].count("answer") == 2
        server.smtp_fault = lambda command: "550 no such user" if command == "RCPT" else None
        await server.deliver(compose("third"))
        state = g.home.path / "gateway_state.json"
        async with asyncio.timeout(90):
            while json.loads(state.read_bytes())["outbox"]["failed"] != 1:
                await asyncio.sleep(0.1)


async def test_commands_and_approvals_by_mail(tmp_path: Path) -> None:
    push = call(("c1", "terminal", {"command": "git push origin main"}))
    async with mailbox(tmp_path, push, say("Done.")) as (_, server):
        await server.deliver(compose("push it", Message_ID="<push@kit.example>"))
        await server.until(lambda: server.sent)
        assert "/approve or /deny" in read_text(server.sent[0])
        reply = compose("/deny\n\n> please", In_Reply_To=server.sent[0]["Message-ID"])
        await server.deliver(reply)
        await server.until_sent("Done.")


async def test_a_refused_password_and_plain_text_elsewhere_are_fatal(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with mailbox(tmp_path / "a", start=False) as (g, server):
        server.password = "another"
        await g.start()
        assert await until_fatal(g, "email") == "unauthorized"
    async with mailbox(tmp_path / "b", imap_host="mail.example.org") as (g, _):
        assert await until_fatal(g, "email") == "unconfigured"


async def test_a_mailbox_that_hears_nobody_says_so(tmp_path: Path) -> None:
    gap = "no sender counts before authserv_id is set"
    async with mailbox(tmp_path, authserv_id="") as (g, _):
        assert gap in g.stderr
        checked = await run_hermes(["doctor", "--json"], g.home)
        found = {check["name"]: check for check in checked.json}["messenger email"]
        assert found["state"] == "failed" and gap in found["text"]
        setup = await run_hermes(["gateway", "setup", "email"], g.home, stdin=f"{PASSWORD}\n")
        assert setup.rc == 0 and gap in setup.stdout
        (g.home.path / ".env").unlink()


async def test_setup_tries_both_servers(tmp_path: Path) -> None:
    async with mailbox(tmp_path, start=False) as (g, _):
        del g.home.env["EMAIL_PASSWORD"]
        wrong = await run_hermes(["gateway", "setup", "email"], g.home, stdin="nonsense\n")
        assert wrong.rc == 2 and "Nothing was saved" in wrong.stderr
        done = await run_hermes(["gateway", "setup", "email"], g.home, stdin=f"{PASSWORD}\n")
        assert done.rc == 0 and ADDRESS in done.stdout
        (g.home.path / ".env").unlink()


async def test_an_administrator_need_not_be_listed_twice(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"allowed_users": [], "admins": ["Owner@kit.example"]}
    async with mailbox(tmp_path, say("Hello."), **settings) as (_, server):
        await server.deliver(compose("Who are you?"))
        await server.until_sent("Hello.")
