"""`hermes acp` driven by the protocol's own client: prompts, permissions, modes, history."""

from __future__ import annotations

import asyncio
import json
import socket
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

acp = pytest.importorskip("acp")

from acp import RequestError, schema  # noqa: E402
from acp.stdio import spawn_agent_process  # noqa: E402

from hermes.app.runtime import Runtime  # noqa: E402
from hermes.config.load import load_setup  # noqa: E402
from hermes.config.paths import database_file  # noqa: E402
from hermes.core.message import user_message  # noqa: E402
from hermes.core.store import SessionMeta  # noqa: E402
from hermes.server.editors.agent import EditorAgent  # noqa: E402
from hermes.store.sqlite import SqliteStore  # noqa: E402
from tests.flow.test_mcp import kit_server  # noqa: E402
from tests.kit import (  # noqa: E402
    Gate,
    Home,
    Provider,
    call,
    finish,
    say,
    start_hermes,
    status,
    think,
)
from tests.kit.bodies import messages, system  # noqa: E402
from tests.kit.home import MODEL, program  # noqa: E402
from tests.kit.processes import naming, until  # noqa: E402
from tests.kit.skills import write_skill  # noqa: E402

pytestmark = pytest.mark.e2e


FILES = schema.ClientCapabilities(
    fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
)


class Editor:
    """A client that keeps every update and answers permissions as told."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.forms: list[Any] = []
        self.written: str | None = "as green as grass"
        self.answer: str | None = "once"
        self.can_answer = True
        self.news = asyncio.Condition()
        self.buffers: dict[str, str] = {}
        """Unsaved files by their paths."""
        self.saved: dict[str, str] = {}

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> Any:
        if path not in self.buffers:
            raise RequestError.resource_not_found(path)
        return schema.ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        self.saved[path] = content

    def on_connect(self, conn: Any) -> None:
        return None

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        async with self.news:
            self.updates.append(update)
            self.news.notify_all()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append((tool_call, options))
        if not self.can_answer:
            raise RequestError.method_not_found("session/request_permission")
        if self.answer is None:
            return schema.RequestPermissionResponse(
                outcome=schema.DeniedOutcome(outcome="cancelled")
            )
        outcome = schema.AllowedOutcome(outcome="selected", option_id=self.answer)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.forms.append((message, mode))
        if self.written is None:
            return schema.DeclineElicitationResponse(action="decline")
        content = {name: self.written for name in mode.requested_schema.properties}
        return schema.AcceptElicitationResponse(action="accept", content=content)

    def of_kind(self, kind: str) -> list[Any]:
        return [u for u in self.updates if u.session_update == kind]

    @property
    def said(self) -> str:
        return "".join(u.content.text for u in self.of_kind("agent_message_chunk"))

    async def until(self, kind: str) -> None:
        async with asyncio.timeout(90), self.news:
            await self.news.wait_for(lambda: bool(self.of_kind(kind)))


@asynccontextmanager
async def editor(
    root: Path, steps: list[Any] | Provider, offers: schema.ClientCapabilities = FILES
) -> AsyncIterator[tuple[Any, Editor, Home, Provider]]:
    """The agent in this process, connected to a client by a pair of sockets."""
    provider = steps if isinstance(steps, Provider) else Provider(steps)
    async with provider:
        home = Home.of(root, provider)
        mine, its = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=mine)
        async with Runtime.open(load_setup("", home.env)) as runtime:
            agent: Any = EditorAgent(runtime)
            agent_reader, agent_writer = await asyncio.open_connection(sock=its)
            serving = asyncio.create_task(
                acp.run_agent(agent, agent_writer, agent_reader, use_unstable_protocol=True)
            )
            client = Editor()
            connected: Any = client
            conn = acp.connect_to_agent(connected, writer, reader, use_unstable_protocol=True)
            try:
                await conn.initialize(protocol_version=1, client_capabilities=offers)
                yield conn, client, home, provider
            finally:
                await conn.close()
                writer.close()
                await asyncio.wait_for(serving, 90)
                await agent.close()
                agent_writer.close()
                await asyncio.gather(writer.wait_closed(), agent_writer.wait_closed())


@asynccontextmanager
async def editor_process(home: Home) -> AsyncIterator[tuple[Any, Editor]]:
    """The program itself, started by a client."""
    client: Any = Editor()
    words = [*program(), "acp"]
    async with spawn_agent_process(
        client, words[0], *words[1:], env=home.env, cwd=home.work, use_unstable_protocol=True
    ) as (conn, _):
        async with asyncio.timeout(90):
            await conn.initialize(protocol_version=1, client_capabilities=FILES)
        yield conn, client


def text(words: str) -> list[Any]:
    return [acp.text_block(words)]


async def test_a_whole_task(tmp_path: Path) -> None:
    todos = [{"content": "write", "status": "in_progress"}, {"content": "check"}]
    steps = [
        think("hm") + call(("c1", "todo", {"todos": todos})),
        call(("c2", "write_file", {"path": "a.txt", "content": "new\n"})),
        call(("c3", "terminal", {"command": "cat a.txt"})),
        say("All ", "done."),
    ]
    async with editor(tmp_path, steps) as (conn, client, home, _provider):
        (home.work / "a.txt").write_text("old\n")
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        assert [m.id for m in made.modes.available_modes] == ["ask", "confirm_edits", "read_only"]
        assert [o.id for o in made.config_options] == ["model", "effort"]
        done = await conn.prompt(session_id=made.session_id, prompt=text("do it"))
        assert done.stop_reason == "end_turn" and client.said == "All done."
        assert next(u.content.text for u in client.of_kind("agent_thought_chunk")) == "hm"
        calls = client.of_kind("tool_call")
        kinds = [(u.tool_call_id, u.kind, u.status) for u in calls]
        assert kinds == [
            ("c1", "think", "in_progress"),
            ("c2", "edit", "in_progress"),
            ("c3", "execute", "in_progress"),
        ]
        assert calls[1].locations[0].path == str(home.work / "a.txt")
        ends = {u.tool_call_id: u for u in client.of_kind("tool_call_update") if u.raw_output}
        diff = ends["c2"].content[0]
        assert (diff.type, diff.old_text, diff.new_text) == ("diff", "old\n", "new\n")
        assert ends["c3"].status == "completed" and "new" in ends["c3"].content[0].content.text
        (plan,) = client.of_kind("plan")
        assert [(e.content, e.status) for e in plan.entries] == [
            ("write", "in_progress"),
            ("check", "pending"),
        ]
        await client.until("available_commands_update")
        assert not client.asked


@pytest.mark.parametrize("answer", ["deny", "nonsense", None])
async def test_whatever_is_no_clear_yes_is_a_no(tmp_path: Path, answer: str | None) -> None:
    target = tmp_path / "outside.txt"
    steps = [call(("c1", "write_file", {"path": str(target), "content": "x"})), say("ok")]
    async with editor(tmp_path, steps) as (conn, client, home, _):
        client.answer = answer
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        await conn.prompt(session_id=made.session_id, prompt=text("go"))
        ((asked, options),) = client.asked
        assert asked.tool_call_id.startswith("c1") and "outside" in asked.content[0].content.text
        kinds = {o.option_id: o.kind for o in options}
        assert kinds["once"] == "allow_once" and kinds["deny"] == "reject_once"
        assert not target.exists()


@pytest.mark.parametrize(
    "reply",
    [
        {"result": {"outcome": {"outcome": "perhaps"}}},
        {"result": {"outcome": {"outcome": "selected", "optionId": 1}}},
        {"result": "yes"},
        {"result": None},
        {"error": "cannot"},
        {"error": {"code": -32603, "message": "cannot"}},
    ],
)
async def test_an_answer_that_the_protocol_does_not_know_is_a_no(
    tmp_path: Path, reply: dict[str, Any]
) -> None:
    target = tmp_path / "outside.txt"
    steps = [call(("c1", "write_file", {"path": str(target), "content": "x"})), say("ok")]
    async with Provider(steps) as provider:
        home = Home.of(tmp_path, provider)
        process = await start_hermes(["acp"], home, stdin=PIPE)
        assert process.stdin is not None and process.stdout is not None

        def send(**message: Any) -> None:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

        async def request(number: int, method: str, **params: Any) -> Any:
            assert process.stdout is not None
            send(id=number, method=method, params=params)
            while line := await process.stdout.readline():
                message = json.loads(line)
                if message.get("method") == "session/request_permission":
                    send(id=[1], result={})
                    send(id=message["id"], **reply)
                elif message.get("id") == number:
                    return message["result"]

        async with asyncio.timeout(90):
            await request(1, "initialize", protocolVersion=1)
            made = await request(2, "session/new", cwd=str(home.work), mcpServers=[])
            prompt = [{"type": "text", "text": "go"}]
            ended = await request(3, "session/prompt", sessionId=made["sessionId"], prompt=prompt)
            process.stdin.close()
            assert await process.wait() == 0
        assert ended == {"stopReason": "end_turn"} and not target.exists()
        assert "The user denied it." in messages(provider.requests[1])[-1].results[0][1]


async def test_what_is_asked_because_of_what_it_changes_is_no_reading(tmp_path: Path) -> None:
    """Clients may allow all that reads by themselves."""
    job = {"action": "create", "schedule": "daily 09:00", "prompt": "look"}
    skill = {"action": "create", "name": "mine", "content": "---\nname: mine\n---\n"}
    steps = [
        call(("c1", "read_file", {"path": "page.txt"})),
        call(("c2", "memory", {"action": "add", "content": "from a page"})),
        call(("c3", "tool_search", {"name": "cronjob", "arguments": job})),
        call(("c4", "tool_search", {"name": "skill_manage", "arguments": skill})),
        say("ok"),
    ]
    async with editor(tmp_path, steps) as (conn, client, home, _):
        home.file("page.txt", "remember this")
        client.answer = "deny"
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        await conn.prompt(session_id=made.session_id, prompt=text("go"))
        asked = [(row.title.partition(":")[0], row.kind) for row, _ in client.asked]
        assert asked == [("memory", "other"), ("cronjob", "other"), ("skill_manage", "edit")]


async def test_a_client_that_cannot_be_asked_is_asked_once(tmp_path: Path) -> None:
    steps = [
        *(
            call((f"c{n}", "write_file", {"path": str(tmp_path / f"{n}.txt"), "content": "x"}))
            for n in range(3)
        ),
        say("ok"),
    ]
    async with editor(tmp_path, steps) as (conn, client, home, _):
        client.can_answer = False
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        await conn.prompt(session_id=made.session_id, prompt=text("go"))
        assert len(client.asked) == 1 and not list(tmp_path.glob("?.txt"))


async def test_modes(tmp_path: Path) -> None:
    def write(n: int) -> Any:
        return call((f"c{n}", "write_file", {"path": f"{n}.txt", "content": "x\n"}))

    steps = [write(1), say("one"), write(2), say("two"), write(3), say("three")]
    async with editor(tmp_path, steps) as (conn, client, home, _):
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        name = made.session_id
        await conn.prompt(session_id=name, prompt=text("one"))
        assert not client.asked
        await conn.set_session_mode(session_id=name, mode_id="confirm_edits")
        await conn.prompt(session_id=name, prompt=text("two"))
        ((asked, _),) = client.asked
        assert "+x" in asked.content[0].content.text, "with its diff"
        await conn.set_session_mode(session_id=name, mode_id="read_only")
        await conn.prompt(session_id=name, prompt=text("three"))
        assert sorted(p.name for p in home.work.iterdir()) == ["1.txt", "2.txt"]
        with pytest.raises(RequestError):
            await conn.set_session_mode(session_id=name, mode_id="nonsense")


async def test_cancel_queue_and_failure(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("slow").hold(gate), *[status(400)] * 6]
    async with editor(tmp_path, Provider(steps, then=say("fine"))) as (
        conn,
        _client,
        home,
        _provider,
    ):
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        name = made.session_id
        first = asyncio.create_task(conn.prompt(session_id=name, prompt=text("one")))
        await gate.reached()
        second = asyncio.create_task(conn.prompt(session_id=name, prompt=text("two")))
        await conn.cancel(session_id=name)
        assert (await asyncio.wait_for(first, 90)).stop_reason == "cancelled"
        gate.open()
        try:
            await asyncio.wait_for(second, 90)
        except RequestError as error:
            assert str(error)
        with pytest.raises(RequestError) as failed:
            for _ in range(3):
                await conn.prompt(session_id=name, prompt=text("three"))
        assert "kept" in str(failed.value) or "lost" in str(failed.value)


async def test_sessions_are_loaded_listed_forked_and_closed(tmp_path: Path) -> None:
    steps = [
        call(("c1", "read_file", {"path": "a.txt"})),
        say("first answer"),
        say("second answer"),
        say("third answer"),
    ]
    async with editor(tmp_path, Provider(steps)) as (conn, client, home, provider):
        (home.work / "a.txt").write_text("text\n")
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        await conn.prompt(session_id=made.session_id, prompt=text("the question"))
        listed = await conn.list_sessions(cwd=str(home.work))
        (row,) = listed.sessions
        assert row.session_id == made.session_id and row.title == "the question"
        await conn.close_session(session_id=made.session_id)
        with pytest.raises(RequestError):
            await conn.prompt(session_id=made.session_id, prompt=text("x"))
        client.updates.clear()
        await conn.load_session(cwd=str(home.work), session_id=made.session_id, mcp_servers=[])
        assert client.of_kind("user_message_chunk")[0].content.text == "the question"
        assert client.said == "first answer"
        assert client.of_kind("tool_call")[0].tool_call_id == "c1"
        await conn.prompt(session_id=made.session_id, prompt=text("go on"))
        assert client.said == "first answersecond answer"
        forked = await conn.fork_session(session_id=made.session_id, cwd=str(home.work))
        assert forked.session_id != made.session_id
        await conn.prompt(session_id=forked.session_id, prompt=text("in the fork"))
        said = [m.text for m in messages(provider.requests[-1]) if m.role == "user"]
        assert said[0] == "the question" and said[-1] == "in the fork"
        with pytest.raises(RequestError):
            await conn.load_session(cwd=str(home.work), session_id="nonsense", mcp_servers=[])


async def test_sessions_of_the_terminal_are_listed_behind_any_number_of_others(
    tmp_path: Path,
) -> None:
    async with editor(tmp_path, []) as (conn, _, home, _):
        store = SqliteStore(database_file(home.path))
        said = [user_message("hello")]
        for n in range(60):
            meta = SessionMeta(f"mine{n}", source="cli", cwd=str(home.work))
            await store.sessions.append(meta.id, said, create=meta)
        for n in range(300):
            meta = SessionMeta(f"job{n}", source="cron", cwd=str(home.work))
            await store.sessions.append(meta.id, said, create=meta)
        await store.close()
        first = await conn.list_sessions(cwd=str(home.work))
        second = await conn.list_sessions(cwd=str(home.work), cursor=first.next_cursor)
        found = [row.session_id for row in (*first.sessions, *second.sessions)]
        assert found == [f"mine{n}" for n in reversed(range(60))] and second.next_cursor is None
        assert (await conn.list_sessions(cursor="9" * 40)).sessions


async def test_the_first_model_can_be_chosen_again(tmp_path: Path) -> None:
    async with editor(tmp_path, [say("one"), say("two")]) as (conn, _, home, provider):
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        name = made.session_id
        for wanted in ("another-model", MODEL):
            changed = await conn.set_config_option(config_id="model", session_id=name, value=wanted)
            model = changed.config_options[0]
            assert model.current_value == wanted
            assert MODEL in [option.value for option in model.options]
            await conn.prompt(session_id=name, prompt=text("go"))
        assert [r.json["model"] for r in provider.requests] == ["another-model", MODEL]
        with pytest.raises(RequestError):
            await conn.prompt(session_id=name, prompt=text(" "))


async def test_resources_images_commands_and_options(tmp_path: Path) -> None:
    async with editor(tmp_path, [say("seen"), say("hard")]) as (conn, client, home, provider):
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        name = made.session_id
        resource = acp.resource_block(acp.embedded_text_resource("file:///x.py", "print(1)"))
        await conn.prompt(session_id=name, prompt=[*text("look"), resource])
        body = messages(provider.requests[0])[-1].text
        assert "look" in body and "print(1)" in body and "<data-" in body
        await conn.prompt(session_id=name, prompt=text("/version"))
        assert "hermes" in client.said.lower() and len(provider.requests) == 1
        changed = await conn.set_config_option(config_id="effort", session_id=name, value="high")
        assert changed.config_options[1].current_value == "high"
        with pytest.raises(RequestError):
            await conn.set_config_option(config_id="effort", session_id=name, value="enormous")


async def test_the_program_itself_and_a_session_that_is_open_elsewhere(tmp_path: Path) -> None:
    async with Provider([say("hello")]) as provider:
        home = Home.of(tmp_path, provider)
        async with editor_process(home) as (conn, client):
            made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
            name = made.session_id
            await conn.prompt(session_id=name, prompt=text("hi"))
            assert client.said == "hello"
            async with editor_process(home) as (other, _):
                with pytest.raises(RequestError, match="open elsewhere"):
                    await other.load_session(cwd=str(home.work), session_id=name, mcp_servers=[])
                await conn.close_session(session_id=name)
                await other.load_session(cwd=str(home.work), session_id=name, mcp_servers=[])


@pytest.mark.parametrize("first", [b"[" * 100_000, b"x" * (51 << 20)], ids=["nested", "long"])
async def test_lines_that_are_no_messages_are_left_out(tmp_path: Path, first: bytes) -> None:
    junk = (b"no json", b"\xff\xfe", b"[1, 2]", b"5", b"null", b'"x"', b"", b"[" * 100_000)

    async with Provider([]) as provider:
        process = await start_hermes(["acp"], Home.of(tmp_path, provider), stdin=PIPE)
        assert process.stdin is not None and process.stdout is not None
        for number, method in enumerate(("initialize", "session/list")):
            params = {"protocolVersion": 1} if not number else {}
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for line in (first, *junk) if not number else junk:
                process.stdin.write(line + b"\n")
            process.stdin.write(json.dumps(request).encode() + b"\n")
            answer = json.loads(await process.stdout.readline())
            assert answer["id"] == number and "result" in answer
        process.stdin.close()
        assert await process.wait() == 0


async def test_files_go_through_the_editor(tmp_path: Path) -> None:
    steps = [
        call(("c1", "read_file", {"path": "a.txt"})),
        call(("c2", "patch", {"path": "a.txt", "old": "typed", "new": "changed"})),
        call(("c3", "write_file", {"path": "b.txt", "content": "made\n"})),
        call(("c4", "read_file", {"path": "../home/.env"})),
        say("done"),
    ]
    async with Provider(steps) as provider:
        home = Home.of(tmp_path, provider)
        async with editor_process(home) as (conn, client):
            a, b = home.work / "a.txt", home.work / "b.txt"
            a.write_text("on disk\n")
            (home.path / ".env").write_text("SECRET_KEY=abc\n")
            client.buffers = {str(a): "typed\n", str(home.path / ".env"): "leaked\n"}
            made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
            done = await conn.prompt(session_id=made.session_id, prompt=text("edit"))
            assert done.stop_reason == "end_turn"
            assert "1|typed" in messages(provider.requests[1])[-1].results[0][1]
            assert client.saved == {str(a): "changed\n", str(b): "made\n"}
            assert a.read_text() == "changed\n" and b.read_text() == "made\n"
            last = messages(provider.requests[-1])[-1].results[0][1]
            assert "leaked" not in last, "paths are checked before the editor is asked"


async def test_the_servers_of_the_editor_hold_for_its_session(tmp_path: Path) -> None:
    entry = kit_server("acp-server")
    mine = schema.McpServerStdio(name="kit", command=entry["command"], args=entry["args"], env=[])
    steps = [
        call(("c1", "tool_search", {"query": "add numbers"})),
        call(("c2", "mcp__kit__add", {"a": 2, "b": 3})),
        say("five"),
        say("none"),
    ]
    async with editor(tmp_path, steps) as (conn, _client, home, provider):
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[mine])
        await conn.prompt(session_id=made.session_id, prompt=text("add"))
        assert "5" in messages(provider.requests[2])[-1].results[0][1]
        assert "MCP servers" in system(provider.requests[0])
        assert naming("acp-server")
        await conn.close_session(session_id=made.session_id)
        await until(lambda: not naming("acp-server"))
        other = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        await conn.prompt(session_id=other.session_id, prompt=text("add"))
        assert "MCP servers" not in system(provider.requests[-1])


async def test_questions_with_choices_and_skills_as_commands(tmp_path: Path) -> None:
    steps = [
        call(("c1", "clarify", {"question": "Which?", "choices": ["red", "blue"]})),
        say("blue it is"),
        say("as the skill says"),
    ]
    async with editor(tmp_path, steps) as (conn, client, home, provider):
        write_skill(home.path / "skills", "paint", body="Paint twice.")
        client.answer = "1"
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        await client.until("available_commands_update")
        (shown,) = client.of_kind("available_commands_update")
        assert "paint" in {command.name for command in shown.available_commands}
        await conn.prompt(session_id=made.session_id, prompt=text("paint it"))
        (asked, options) = client.asked[0]
        assert asked.title == "Which?" and [o.name for o in options] == ["red", "blue"]
        assert "blue" in messages(provider.requests[1])[-1].results[0][1]
        await conn.prompt(session_id=made.session_id, prompt=text("/paint the door"))
        assert "Paint twice." in messages(provider.requests[2])[-1].text


FORMS = schema.ClientCapabilities(
    elicitation=schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())
)


@pytest.mark.parametrize(
    ("offers", "written", "told"),
    [(FORMS, "as green as grass", "as green as grass"), (FORMS, None, ""), (FILES, "unasked", "")],
    ids=["written", "declined", "no forms"],
)
async def test_questions_for_a_text(tmp_path: Path, offers: Any, written: Any, told: str) -> None:
    steps = [call(("c1", "clarify", {"question": "Which colour?"})), say("done")]
    async with editor(tmp_path, steps, offers) as (conn, client, home, provider):
        client.written = written
        made = await conn.new_session(cwd=str(home.work), mcp_servers=[])
        await conn.prompt(session_id=made.session_id, prompt=text("paint it"))
        result = messages(provider.requests[1])[-1].results[0][1]
        if offers is FILES:
            assert client.forms == []
        else:
            ((question, mode),) = client.forms
            assert question == "Which colour?" and mode.session_id == made.session_id
            assert mode.requested_schema.required == ["answer"]
        assert told in result and ("green" in result) == bool(told), result


@pytest.mark.parametrize("closed", ["</dev/null", "<&-", "<requests"])
async def test_without_an_editor_it_ends(tmp_path: Path, closed: str) -> None:
    async with Provider([]) as provider:
        home = Home.of(tmp_path, provider)
        params = {"protocolVersion": 1}
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        home.file("requests", json.dumps(request) + "\n")
        shell = ["sh", "-c", f'"$@" {closed}', "sh", *program()]
        ran = await finish(await start_hermes(["acp"], home, command=shell))
        assert (ran.rc, ran.stderr) == (0, ""), ran
        assert ('"protocolVersion": 1' in ran.stdout) is (closed == "<requests")


async def test_its_output_cannot_go_to_a_file(tmp_path: Path) -> None:
    async with Provider([]) as provider:
        home = Home.of(tmp_path, provider)
        shell = ["sh", "-c", '"$@" >out', "sh", *program()]
        ran = await finish(await start_hermes(["acp"], home, command=shell))
        assert ran.rc == 2 and "cannot go to a file" in ran.stderr and "bug" not in ran.stderr
