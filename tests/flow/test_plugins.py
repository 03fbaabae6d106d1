"""Plugins in whole turns: what they add, what they see, and that none of them does any harm."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes.app.agents import Options
from hermes.app.commands import CommandContext, run_command
from hermes.core.events import Answer, Approval
from tests.kit import Received, call, say
from tests.kit.bodies import messages, quoted, system, tools
from tests.kit.home import Home
from tests.kit.rig import Rig, rig

DOCS = Path(__file__).parents[2] / "docs" / "plugins.md"


def plant(root: Path, name: str, code: str, manifest: str = "") -> None:
    """A plugin in the home that a rig of this root uses."""
    folder = Home(root).path / "plugins"
    folder.mkdir(mode=0o700, exist_ok=True)
    if not manifest:
        (folder / f"{name}.py").write_text(code)
        return
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "__init__.py").write_text(code)
    (folder / name / "plugin.yaml").write_text(manifest)


def enable(*names: str, **entries: dict[str, Any]) -> dict[str, Any]:
    return {"plugins": {"enabled": list(names), "entries": entries}}


def result(request: Received) -> str:
    return messages(request)[-1].results[-1][1]


async def do(r: Rig, name: str, args: str = "") -> str:
    return (await run_command(CommandContext(r.runtime, r.session, "cli"), name, args)).text


def notices(r: Rig) -> list[str]:
    return [n.text for n in r.notices if n.code == "plugin"]


READ = call(("c1", "read_file", {"path": "a.txt"}))


async def test_the_sample_of_the_page_works_as_it_is(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert code
    plant(tmp_path, "notes", code[1])
    steps = [
        call(("c1", "tool_search", {"query": "notes"})),
        call(("c2", "tool_search", {"name": "add_note", "arguments": {"text": "buy milk"}})),
        call(("c3", "terminal", {"command": "echo /home/me/x"})),
        say("ok"),
    ]
    async with rig(tmp_path, steps, config=enable("notes")) as r:
        assert await do(r, "notes") == "No notes yet."
        await r.turn("write it down")
        assert "add_note: Write a line to the user's notes." in result(r.requests[1])
        assert "add_note" not in tools(r.requests[0]), "found by search, not declared"
        kept = '{"ok": true, "notes": 1} (kept by the plugin notes)'
        assert quoted(result(r.requests[2])) == kept
        assert quoted(result(r.requests[3])) == "~/x"
        assert await do(r, "notes") == "buy milk\n"
        assert "notes" in await do(r, "help")
        assert await do(r, "plugins") == "notes (enabled)"
        assert not notices(r)


async def test_one_that_is_not_enabled_is_not_imported(tmp_path: Path) -> None:
    plant(tmp_path, "idle", f"open({str(tmp_path / 'ran')!r}, 'w')")
    config = {"plugins": {"enabled": ["idle"], "disabled": ["idle"]}}
    for settings in ({}, config):
        async with rig(tmp_path, [say("hi")], config=settings, check=False) as r:
            await r.turn()
            assert await do(r, "plugins") in ("idle (off)", "idle (disabled)")
    assert not (tmp_path / "ran").exists()


ORIGINAL = """
import json, logging
from . import helper
calls = []
def handle(args, **kwargs):
    return json.dumps({"doubled": args.get("n", 0) * helper.TWO, "task": bool(kwargs["task_id"])})
def on_post(tool_name, args, result, task_id, **kwargs):
    assert task_id == kwargs["session_id"]
    calls.append(tool_name)
def register(ctx):
    ctx.register_tool(name="double_number", toolset="numbers", schema={"name": "double_number",
        "description": "Doubles a number.", "parameters": {"type": "object", "properties":
        {"n": {"type": "integer"}}, "required": ["n"]}}, handler=handle, emoji="x")
    ctx.register_hook("post_tool_call", on_post)
    ctx.register_hook("pre_tool_call", lambda **kwargs: {"action": "allow"})
    ctx.register_hook("on_session_finalize", on_post)
    ctx.register_command("doubled", lambda raw: ",".join(calls) + raw, description="what ran")
"""


async def test_one_written_for_the_original_runs_unchanged(tmp_path: Path) -> None:
    manifest = "name: numbers\nversion: 0.3\nprovides_tools: [double_number]\n"
    plant(tmp_path, "numbers", ORIGINAL, manifest)
    (Home(tmp_path).path / "plugins/numbers/helper.py").write_text("TWO = 2\n")
    steps = [
        call(("c1", "double_number", {"n": 21})),
        call(("c2", "double_number", {})),
        say("ok"),
    ]
    options = Options(yolo=True, toolsets=("numbers",))
    async with rig(tmp_path, steps, config=enable("numbers"), options=options) as r:
        assert (await r.turn("go")).status == "completed"
        assert tools(r.requests[0]) == ["double_number"]
        assert json.loads(quoted(result(r.requests[1]))) == {"doubled": 42, "task": True}
        assert "n is missing" in result(r.requests[2])
        assert await do(r, "doubled", "!") == "double_number!"
        assert notices(r) == []


HOOKS = """
import json, pathlib
def register(api):
    file = api.data / "seen.jsonl"
    def see(name):
        def callback(**kw):
            with file.open("a") as f:
                row = [name, sorted(kw), kw.get("tool_name"), kw.get("args")]
                f.write(json.dumps(row) + chr(10))
        return callback
    for name in api.config["names"]:
        api.register_hook(name, see(name))
"""


def seen(r: Rig, name: str = "watch") -> list[list[Any]]:
    text = (r.home.path / "plugins/.data" / name / "seen.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


async def test_hooks_see_every_tool_call_and_model_call(tmp_path: Path) -> None:
    from hermes.core.hooks import HOOK_KEYWORDS

    plant(tmp_path, "watch", HOOKS)
    names = [n for n in HOOK_KEYWORDS if n not in ("pre_gateway_dispatch",)]
    steps = [
        READ,
        call(("c2", "tool_search", {"name": "session_search", "arguments": {"query": "x"}})),
        call(("c3", "terminal", {"command": "echo hi"})),
        say("ok"),
    ]
    config = enable("watch", watch={"names": names})
    async with rig(tmp_path, steps, config=config) as r:
        r.home.file("a.txt", "text")
        await r.turn("go")
        rows = seen(r)
        for name, keywords, *_ in rows:
            assert keywords == sorted(["session_id", "platform", *HOOK_KEYWORDS[name]]), name
        order = [name for name, *_ in rows]
        first = ["on_session_start", "pre_llm_call", "pre_api_request", "post_api_request"]
        assert order[:4] == first
        assert order[-2:] == ["post_llm_call", "on_session_end"]
        ran = [(tool, args) for name, _, tool, args in rows if name == "pre_tool_call"]
        assert ran == [
            ("read_file", {"path": "a.txt"}),
            ("session_search", {"query": "x"}),
            ("terminal", {"command": "echo hi"}),
        ]
        assert order.count("transform_terminal_output") == 1
        assert not notices(r)


DECIDE = """
def register(api):
    api.register_hook("pre_tool_call", lambda **kw: api.config.get("first"))
    api.register_hook("pre_tool_call", lambda **kw: api.config.get("second"))
    api.register_hook("pre_llm_call", lambda **kw: {"context": "[today is a holiday]"})
"""


async def test_the_first_decision_counts(tmp_path: Path) -> None:
    plant(tmp_path, "guard", DECIDE)
    block = {"action": "block", "message": "not on a holiday"}
    config = enable("guard", guard={"first": block, "second": {"action": "junk"}})
    async with rig(tmp_path, [READ, say("ok")], config=config) as r:
        r.home.file("a.txt", "secret text")
        await r.turn("read a.txt")
        assert quoted(result(r.requests[1])) == "not on a holiday"
        assert messages(r.requests[0])[-1].text == "read a.txt\n\n[today is a holiday]"
        assert (await r.stored())[0].text == "read a.txt\n\n[today is a holiday]"
        r.prompts[0] += "\n\n[today is a holiday]"
        r._checked = True  # every later prompt is changed too


@pytest.mark.parametrize(("answer", "runs"), [("once", True), ("deny", False), (None, False)])
async def test_a_hook_has_a_person_asked(tmp_path: Path, answer: Answer | None, runs: bool) -> None:
    plant(
        tmp_path,
        "guard",
        DECIDE.replace('"pre_llm_call"', '"post_llm_call"').replace(
            '{"context": "[today is a holiday]"}', "None"
        ),
    )
    asked: list[Approval] = []

    async def person(question: Approval) -> Answer:
        asked.append(question)
        assert answer
        return answer

    config = enable("guard", guard={"first": {"action": "approve", "message": "a.txt is special"}})
    async with rig(tmp_path, [READ, say("ok")], config=config) as r:
        r.home.file("a.txt", "the text")
        r.session.interactions.user_present = answer is not None
        r.session.interactions.on_approval = person
        await r.turn("go")
        assert [q.summary for q in asked] == (["a.txt is special"] if answer else [])
        assert ("the text" in result(r.requests[1])) == runs
        assert runs or "a.txt is special" in result(r.requests[1])


HOSTILE = """
import asyncio, time
def fail(**kw):
    raise SystemExit("boom")
def hang(**kw):
    time.sleep(600)
async def block_loop(**kw):
    time.sleep(600)
async def wait(**kw):
    await asyncio.sleep(600)
async def leave(**kw):
    exit()
def junk(**kw):
    return 7
def flood(**kw):
    return "x" * 1_000_001
class Escape(BaseException):
    pass
def cancel(**kw):
    raise asyncio.CancelledError
async def cancel_loop(**kw):
    raise asyncio.CancelledError
def press(**kw):
    raise KeyboardInterrupt
async def press_loop(**kw):
    raise KeyboardInterrupt
async def escape_loop(**kw):
    raise Escape
async def stop_loop(**kw):
    asyncio.get_running_loop().stop()
    await asyncio.sleep(600)
class Unprintable(Exception):
    def __str__(self):
        raise self
def raise_unprintable(**kw):
    raise Unprintable
class Lying(str):
    def __str__(self):
        raise Escape
    def __len__(self):
        raise Escape
    __getitem__ = __iter__ = __format__ = __len__
def lie(**kw):
    return Lying("the text")
def register(api):
    for name in api.config["hooks"]:
        api.register_hook(name, globals()[api.config["way"]])
"""


WAYS = (
    *("fail", "hang", "block_loop", "wait", "leave", "junk", "flood", "cancel", "cancel_loop"),
    *("press", "press_loop", "escape_loop", "stop_loop", "raise_unprintable", "lie"),
)


@pytest.mark.parametrize("way", WAYS)
async def test_a_hostile_one_changes_nothing_and_is_switched_off(tmp_path: Path, way: str) -> None:
    plant(tmp_path, "bad", HOSTILE)
    hooks = ["pre_tool_call", "transform_tool_result", "post_tool_call", "pre_llm_call"]
    config = enable("bad", bad={"way": way, "hooks": hooks})
    config["plugins"]["hook_timeout_seconds"] = 0.05
    again = call(("c2", "read_file", {"path": "a.txt", "offset": 1}))
    async with rig(tmp_path, [READ, again, say("ok")], config=config) as r:
        r.home.file("a.txt", "the text")
        assert (await r.turn("go")).text == "ok"
        assert "the text" in result(r.requests[1])
        (text,) = notices(r)
        assert text.startswith("Plugin bad was switched off after 3 faults: ")
        assert "bad (failed: switched off after 3 faults" in await do(r, "plugins")


async def test_a_required_one_that_fails_blocks_every_tool(tmp_path: Path) -> None:
    plant(tmp_path, "bad", HOSTILE)
    entry = {"way": "fail", "hooks": ["pre_tool_call"], "required": True}
    steps = [
        READ,
        *(call((f"d{n}", "read_file", {"path": "a.txt", "offset": n})) for n in (1, 2, 3)),
    ]
    async with rig(tmp_path, [*steps, say("ok")], config=enable("bad", bad=entry)) as r:
        r.home.file("a.txt", "the text")
        await r.turn("go")
        for request in r.requests[1:]:
            assert "Plugin bad is required and failed: pre_tool_call: " in result(request)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("x = 1", "it has no function register(api)"),
        ("def register(api): exit(3)", "SystemExit(3)"),
        (
            "def register(api):\n  api.register_command('ok', print)\n"
            "  api.register_tool('read_file', 'x', {}, print)",
            "there is a tool read_file already",
        ),
        ("def register(api): api.register_command('/new', print)", "there is a command /new"),
        ("def register(api): api.register_hook('on_what', print)", "there is no hook on_what"),
        (
            "def register(api): api.register_tool('t', 'x', {'required': 7}, print)",
            "the schema of t does not describe an object",
        ),
        (
            "def register(api): api.register_tool('t', 'x', {'properties': {'a': id}}, print)",
            "the schema of t is not JSON",
        ),
        (
            "def register(api):\n  schema = {}\n  for _ in range(200): schema = {'items': schema}\n"
            "  api.register_tool('t', 'x', schema, print)",
            "the schema of t has more than 100 levels",
        ),
        (
            "class E(Exception):\n  def __str__(self): raise self\ndef register(api): raise E",
            "an exception without a text",
        ),
        ("def register(api): api.secret('KIT_KEY')", "KIT_KEY is not in requires_env of bad."),
    ],
)
async def test_one_that_fails_leaves_nothing(tmp_path: Path, code: str, why: str) -> None:
    plant(tmp_path, "bad", code)
    plant(tmp_path, "good", "def register(api): api.register_command('fine', lambda raw: 'yes')")
    config = enable("bad", "missing", "good", bad={"required": False})
    async with rig(tmp_path, [say("ok")], config=config) as r:
        await r.turn("go")
        first, second = notices(r)
        assert first.startswith("bad: not loaded: ") and why in first
        assert second == "missing: not loaded: there is no such plugin"
        assert await do(r, "fine") == "yes"
        assert "hermes_plugin_bad" not in sys.modules or "1/0" not in code


async def test_a_required_one_that_is_not_loaded_blocks_every_tool(tmp_path: Path) -> None:
    config = enable("gone", gone={"required": True})
    async with rig(tmp_path, [READ, say("ok")], config=config) as r:
        r.home.file("a.txt", "the text")
        await r.turn("go")
        assert "Plugin gone is required and failed" in result(r.requests[1])


async def test_secrets_settings_a_skill_and_a_question_to_the_model(tmp_path: Path) -> None:
    code = (
        "async def ask(raw):\n  return await API.ask_model(raw) + API.secret('WEATHER_KEY')\n"
        "def register(api):\n  global API\n  API = api\n"
        "  api.register_command('ask', ask)\n"
        "  api.register_skill('forecast', api.data.parents[1] / 'weather' / 'skill')\n"
    )
    plant(tmp_path, "weather", code, "name: weather\napi: 1\nrequires_env: [WEATHER_KEY]\n")
    folder = Home(tmp_path).path / "plugins/weather/skill"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: skill\ndescription: Read clouds.\n---\nLook up.\n")
    steps = [say("sunny"), call(("c1", "skill_view", {"name": "weather:forecast"})), say("ok")]
    config = enable("weather")
    async with rig(tmp_path, steps, config=config, env={"WEATHER_KEY": "value-1"}) as r:
        assert await do(r, "ask", "what is it like?") == "sunnyvalue-1"
        await r.turn("go")
        assert "weather:forecast: Read clouds." in system(r.requests[1])
        assert "Look up." in result(r.requests[2])
    async with rig(tmp_path, [say("x")], config=config, check=False) as r:
        await r.turn()
        assert notices(r) == ["weather: not loaded: WEATHER_KEY is not set (environment or .env)"]


SHELL = """#!{python}
import json, sys
event = json.load(sys.stdin)
open({log!r}, "a").write(json.dumps(event) + chr(10))
{body}
"""


def shell_hook(root: Path, body: str) -> str:
    file = root / "hook.py"
    log = str(root / "log.jsonl")
    file.write_text(SHELL.format(python=sys.executable, log=log, body=body))
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("event", "body", "told"),
    [
        ("pre_tool_call", "print('no', file=sys.stderr); sys.exit(2)", "no"),
        ("pre_tool_call", "print(json.dumps({'decision': 'block', 'reason': 'never'}))", "never"),
        ("pre_tool_call", "print(json.dumps({'action': 'block', 'message': 'no'}))", "no"),
        ("transform_tool_result", "print(json.dumps({'result': 'other text'}))", "other text"),
        ("transform_tool_result", "print('\"plain text\"')", "plain text"),
        ("pre_tool_call", "sys.exit(1)", "the text"),
        ("pre_tool_call", "print('junk')", "the text"),
        ("post_tool_call", "pass", "the text"),
    ],
)
async def test_a_command_as_a_hook(tmp_path: Path, event: str, body: str, told: str) -> None:
    row = {"matcher": "read.*", "command": shell_hook(tmp_path, body)}
    steps = [READ, call(("c2", "terminal", {"command": "echo x"})), say("ok")]
    async with rig(tmp_path, steps, config={"hooks": {event: [row]}}) as r:
        r.home.file("a.txt", "the text")
        await r.turn("go")
        assert told in result(r.requests[1])
        assert "the text" not in result(r.requests[1]) or told == "the text"
        assert quoted(result(r.requests[2])) == "x", "the matcher leaves it alone"
        (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
        payload = json.loads(line)
        assert payload["hook_event_name"] == event and payload["tool_name"] == "read_file"
        assert payload["tool_input"] == {"path": "a.txt"}
        assert payload["session_id"] == r.session.id and payload["cwd"] == str(r.home.work)
        assert payload["extra"]["tool_call_id"] == "c1" and payload["extra"]["platform"] == "cli"


async def test_a_turn_can_be_stopped_while_a_hook_hangs(tmp_path: Path) -> None:
    plant(tmp_path, "bad", HOSTILE)
    config = enable("bad", bad={"way": "hang", "hooks": ["pre_tool_call"]})
    config["plugins"]["hook_timeout_seconds"] = 500
    async with rig(tmp_path, [READ], config=config, check=False) as r:
        turn = r.begin("go")
        await r.until(lambda e: type(e).__name__ == "ToolStarted")
        await asyncio.sleep(0)
        r.session.interrupt()
        assert (await turn).status == "interrupted"


async def test_hooks_see_subagents_and_their_tools(tmp_path: Path) -> None:
    plant(tmp_path, "watch", HOOKS)
    names = ["pre_tool_call", "subagent_start", "subagent_stop"]
    steps = [call(("c1", "delegate_task", {"goal": "look"})), READ, say("seen"), say("ok")]
    async with rig(tmp_path, steps, config=enable("watch", watch={"names": names})) as r:
        r.home.file("a.txt", "text")
        await r.turn("go")
        assert [(name, tool) for name, _, tool, _ in seen(r)] == [
            ("pre_tool_call", "delegate_task"),
            ("subagent_start", None),
            ("pre_tool_call", "read_file"),
            ("subagent_stop", None),
        ]


async def test_tools_of_plugins_obey_the_settings_of_tools(tmp_path: Path) -> None:
    code = (
        "def register(api):\n"
        "  api.register_tool('look_up', 'books', {}, print, risk='read')\n"
        "  api.register_tool('order_book', 'books', {}, print)\n"
    )
    plant(tmp_path, "books", code)

    async def offered(platform: str, options: Options, **settings: Any) -> set[str]:
        config = {**enable("books"), "tools": settings}
        async with rig(tmp_path, [], config=config, check=False) as r:
            session = await r.runtime.open_session(source=platform, options=options)
            return {"look_up", "order_book"} & set(session.agent.tools)

    both = {"look_up", "order_book"}
    assert await offered("cli", Options()) == both
    assert await offered("webhook", Options()) == {"look_up"}, "programs only read"
    assert await offered("cli", Options(toolsets=("books",))) == both
    assert await offered("cli", Options(toolsets=("order_book", "read_file"))) == {"order_book"}
    assert await offered("cli", Options(toolsets=("file",))) == set()
    assert await offered("cli", Options(toolsets=("none",))) == set()
    assert await offered("cli", Options(), disabled=["order_book"], enabled=[]) == {"look_up"}


async def test_memory_can_be_kept_by_a_plugin(tmp_path: Path) -> None:
    code = (
        "import json\n"
        "class Shelf:\n"
        "  name = 'shelf'\n"
        "  def __init__(self, api): self.file = api.data / 'calls'\n"
        "  def note(self, *row):\n"
        "    with self.file.open('a') as file: file.write(json.dumps(row) + chr(10))\n"
        "  def recall(self, scope, query, limit): return ['Herons eat fish.', {'text': 'B'}]\n"
        "  def write(self, action, content, **more): self.note(action, content)\n"
        "  async def record(self, user, assistant, **more): self.note(user, assistant)\n"
        "def register(api): api.register_memory_provider(Shelf(api))\n"
    )
    plant(tmp_path, "keeper", code)
    config = {**enable("keeper"), "memory": {"provider": "shelf", "recall": "auto"}}
    steps = [call(("c1", "memory", {"action": "add", "content": "Tea is good."})), say("done")]
    async with rig(tmp_path, steps, config=config, check=False) as r:

        async def allow(_: Any) -> Any:
            return "once"

        r.session.interactions.on_approval = allow
        r.session.interactions.user_present = True
        await r.turn("hello")
        assert "- Herons eat fish.\n- B" in messages(r.requests[0])[-1].text
        file = r.home.path / "plugins/.data/keeper/calls"
        async with asyncio.timeout(90):
            while not file.exists() or file.read_text().count("\n") < 2:
                await asyncio.sleep(0.01)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows == [["add", "Tea is good."], ["hello", "done"]]
