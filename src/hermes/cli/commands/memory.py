"""`hermes memory`: shows and changes what the agent remembers."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, open_store, refuse_agent, run_async
from hermes.cli.terminal.text import print_report, strip_controls
from hermes.config.env import decode_argument
from hermes.config.load import Setup
from hermes.core.store import DELIVERIES, Store
from hermes.core.text import format_plural

if TYPE_CHECKING:
    from hermes.memory.notebook import Notebook

_EPILOG = """\
commands:
  list                    list what is remembered
  search WORDS            find facts by their words
  add TEXT                remember something
  remove ID...            forget it; kept for 30 days
  restore ID...           remember it again
  pending                 list what the agent wants to remember and needs your word for
  approve ID...|all       agree to it
  reject ID...            refuse it
  scopes                  list whose memories there are: yours (profile), and those of chats
  clear                   forget everything in a scope; asks first, or add --yes
  status                  show how full the notes are, and what waits

Notes are in HERMES_HOME/memories/MEMORY.md (about the work) and USER.md (about you); you may edit
them. New conversations begin with them. What does not fit is stored and found by search.

examples:
  hermes memory add "The staging server is called heron." --target memory
  hermes memory add "I prefer short answers." --target user
  hermes memory approve all
"""
_ACTIONS = (
    *("list", "search", "add", "remove", "restore", "pending", "approve", "reject"),
    *("scopes", "clear", "status"),
)
_READING = frozenset({"list", "search", "pending", "scopes", "status"})
_NOTHING = {
    "list": 'Nothing is remembered yet. Example: hermes memory add "I prefer short answers."',
    "search": "Nothing found.",
    "pending": "Nothing waits for your word.",
}
_TAKES_WORDS = frozenset({"search", "add", "remove", "restore", "approve", "reject"})
_TAKES_IDS = frozenset({"remove", "restore", "approve", "reject"})


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("memory", "Show and change what the agent remembers.", _EPILOG)
    parser.add_action(_ACTIONS, "list")
    parser.add_argument("words", nargs="*", metavar="TEXT|ID")
    targets = ("memory", "user")
    parser.add_argument("--target", choices=targets, help="notes about the work, or about the user")
    parser.add_argument("--scope", metavar="NAME", help="another memory than yours; see scopes")
    parser.add_flag("--json", help="print JSON (list, search, pending, scopes, status)")
    parser.add_flag("--yes", help="clear: do not ask")
    args = parser.parse_command(argv, profile)
    args.words = [decode_argument(word) for word in args.words]
    if bool(args.words) != (args.action in _TAKES_WORDS):
        parser.error(f"{args.action} {'takes no words' if args.words else 'needs TEXT or an ID'}")
    if args.action not in _READING:
        refuse_agent("change the memory")
    return run_async(_run_action(args))


async def _run_action(args: Namespace) -> int:
    setup = load_checked_setup(args.profile)
    async with open_store(setup.home) as store:
        if args.action == "scopes":
            return await _list_scopes(args, store)
        if args.action == "status":
            return await _show_status(args, setup, store)
        if args.action == "clear":
            return await _clear_scope(args, setup, store)
        if args.json and args.action in _READING:
            return await _print_facts(args, setup, store)
        lines = await _run_verb(args, setup, store)
        for line in lines:
            print(strip_controls(line))
        if not lines and (nothing := _NOTHING.get(args.action)):
            print(nothing, file=sys.stderr)
        if args.action not in _READING:
            await _deliver_changes(setup, store)
    return 0


async def _deliver_changes(setup: Setup, store: Store) -> None:
    """Tell the memory provider now if that is quick; else the next conversation does."""
    if setup.config.memory.provider:
        from hermes.app.knowledge.providers import deliver_waiting

        await deliver_waiting(setup, store)


def _open_notebook(setup: Setup, store: Store, scope: str) -> Notebook:
    from hermes.core.redaction.redactor import Redactor
    from hermes.memory.notebook import Notebook
    from hermes.memory.scope import MemoryScope

    redact = Redactor(setup.secrets.redactable_values()).redact
    return Notebook(store.facts, setup.home, setup.config.memory, MemoryScope(scope, scope), redact)


async def _run_verb(args: Namespace, setup: Setup, store: Store) -> list[str]:
    from hermes.memory.commands import run_verb
    from hermes.memory.scope import PROFILE

    action, words = args.action, args.words
    if action == "pending" or words == ["all"]:
        scopes = [args.scope] if args.scope else [name for name, _ in await _read_scopes(store)]
    elif action in _TAKES_IDS and not args.scope:
        return [
            line
            for word in words
            for line in await run_verb(
                _open_notebook(setup, store, await _find_scope(store, word)), action, [word], None
            )
        ]
    else:
        scopes = [args.scope or PROFILE]
    lines = []
    for scope in scopes:
        lines += await run_verb(_open_notebook(setup, store, scope), action, words, args.target)
    return lines


async def _find_scope(store: Store, word: str) -> str:
    """The scope of the fact with this id."""
    from hermes.memory.commands import parse_id
    from hermes.memory.scope import PROFILE

    number = parse_id(word)
    fact = await store.facts.read(lambda table: table.find_fact(number))
    return fact.scope if fact else PROFILE


async def _read_scopes(store: Store) -> Sequence[tuple[str, int]]:
    return await store.facts.read(lambda table: table.list_scopes())


async def _print_facts(args: Namespace, setup: Setup, store: Store) -> int:
    from hermes.memory.memory_tool import format_fact
    from hermes.memory.scope import PROFILE

    rows = []
    if args.action == "pending":
        facts = await store.facts.read(
            lambda table: table.list_facts(args.scope or "", args.target, states=("pending",))
        )
        rows = [
            {**format_fact(f), "scope": f.scope, "session": f.session, "action": f.action}
            for f in facts
        ]
        return print_report(rows, (), json=True)
    book = _open_notebook(setup, store, args.scope or PROFILE)
    if args.action == "list":
        found = await book.list_facts(args.target)
    else:
        found = await book.search_facts(" ".join(args.words), 50, args.target)
    return print_report([format_fact(fact) for fact in found], (), json=True)


async def _list_scopes(args: Namespace, store: Store) -> int:
    from hermes.memory.scope import hash_scope

    found = await _read_scopes(store)
    rows = [{"scope": name, "facts": count, "folder": hash_scope(name)} for name, count in found]
    lines = [f"{row['facts']:>6}  {strip_controls(str(row['scope']))}" for row in rows]
    if not rows and not args.json:
        print("Nothing is remembered yet.", file=sys.stderr)
    return print_report(rows, lines, json=args.json)


async def _show_status(args: Namespace, setup: Setup, store: Store) -> int:
    from hermes.config.paths import memories_folder
    from hermes.memory.commands import measure_memory
    from hermes.memory.scope import PROFILE

    settings = setup.config.memory
    book = _open_notebook(setup, store, args.scope or PROFILE)
    row = {
        "enabled": settings.enabled,
        "folder": str(memories_folder(setup.home)),
        **await measure_memory(book),
    }
    if not args.scope:
        waiting = await store.facts.read(lambda table: table.list_facts("", states=("pending",)))
        row["pending"] = len(waiting)
    if settings.provider:
        from hermes.app.knowledge.providers import check_provider

        row["provider"] = await check_provider(setup)
        row["undelivered"] = len(await store.objects.list_all(DELIVERIES))
    lines = [f"{name}: {value}" for name, value in row.items() if name != "enabled"]
    lines.insert(0, f"memory is {'on' if settings.enabled else 'off (memory.enabled)'}")
    return print_report([row], lines, json=args.json)


async def _clear_scope(args: Namespace, setup: Setup, store: Store) -> int:
    from hermes.cli.terminal.picker import confirm_change
    from hermes.memory.scope import PROFILE

    book = _open_notebook(setup, store, args.scope or PROFILE)
    count = len(await book.list_facts(args.target))
    if not args.yes:
        what = {"user": " about the user", "memory": " about the work"}.get(args.target, "")
        question = f"Forget {format_plural(count, 'fact')}{what}?"
        code = confirm_change("memory clear", question, "Nothing was forgotten.")
        if code is not None:
            return code
    await book.clear_facts(args.target)
    await _deliver_changes(setup, store)
    print(f"forgot {format_plural(count, 'fact')}; each can be restored for 30 days")
    return 0
