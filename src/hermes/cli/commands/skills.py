"""`hermes skills`: lists, installs, checks and changes skills."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.app.control.bundle_source import fetch_bundle
from hermes.app.control.skill_registry import (
    decide_proposal,
    describe_proposals,
    describe_skills,
    list_skills,
    open_skill_installer,
    switch_skills,
)
from hermes.cli.main import EXIT_FAILED
from hermes.cli.maintenance.bundle_install import BundleCommand, print_summary, show_findings
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, open_store, refuse_agent, run_async
from hermes.cli.terminal.text import one_line, print_report, strip_controls
from hermes.config.env import decode_argument
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.config.load import Setup
    from hermes.core.store import Store

_EPILOG = """\
commands:
  list                  list skills: name, where it is from, description
  search WORDS          find skills by their words
  inspect NAME|SOURCE   show a skill and what a scan finds in it; nothing is installed
  install SOURCE        fetch a skill, scan it, show what was found, ask, install it
  update [NAME]         fetch installed skills again, show what changed, ask
  remove NAME           move a skill to the archive
  restore NAME          bring a removed skill back
  enable, disable NAME  turn a skill on or off
  validate PATH         check a folder against the Agent Skills format
  verify [NAME]         check that installed skills are as they were installed
  pending               list changes to skills that the agent proposes
  diff ID               show one of them
  approve, reject ID    agree to it, or refuse it

SOURCE: a folder; a git address (https://, ssh://, file://) with @REF and #PATH if needed;
owner/repo[/PATH]; a zip or tar archive (a file or https). Nothing of it is executed. What a scan
finds to be dangerous is blocked.

examples:
  hermes skills install ~/src/my-skills#release-notes
  hermes skills install anthropics/skills/skills/pdf
  hermes skills list --json
"""
_COUNTS = {
    "list": (0, 0),
    "search": (1, 99),
    "inspect": (1, 1),
    "install": (1, 1),
    "update": (0, 1),
    "remove": (1, 1),
    "restore": (1, 1),
    "enable": (1, 99),
    "disable": (1, 99),
    "validate": (1, 1),
    "verify": (0, 1),
    "pending": (0, 0),
    "diff": (1, 1),
    "approve": (1, 99),
    "reject": (1, 99),
}
"""Action -> how many words it takes."""
_READING = frozenset({"list", "search", "inspect", "validate", "verify", "pending", "diff"})


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("skills", "List, install, check and change skills.", _EPILOG)
    parser.add_action(_COUNTS, "list")
    parser.add_argument("words", nargs="*", metavar="NAME|SOURCE")
    parser.add_flag("--json", help="print JSON (list, search, pending)")
    parser.add_flag("--yes", help="install, update: do not ask")
    parser.add_flag("--force", help="install, update: although it is blocked or changed here")
    args = parser.parse_command(argv, profile)
    args.words = [decode_argument(word) for word in args.words]
    least, most = _COUNTS[args.action]
    if not least <= len(args.words) <= most:
        parser.error(f"{args.action} {'takes no name' if most == 0 else 'needs a NAME or SOURCE'}")
    if args.action not in _READING:
        refuse_agent("change its skills")
    if args.action == "validate":
        return _validate_folder(Path(args.words[0]).expanduser())
    return run_async(_run_action(args))


def _validate_folder(folder: Path) -> int:
    from hermes.skills.validation import validate_skill

    folder = folder.parent if folder.name.lower() == "skill.md" else folder
    problems = validate_skill(folder.resolve())
    if not problems:
        print(f"Valid skill: {folder}")
        return 0
    print(f"Validation failed for {folder}:", file=sys.stderr)
    for problem in problems:
        print(f"  - {strip_controls(problem)}", file=sys.stderr)
    return EXIT_FAILED


async def _run_action(args: Namespace) -> int:
    setup = load_checked_setup(args.profile)
    match args.action:
        case "list" | "search":
            return _list_skills(args, setup)
        case "inspect":
            return await _inspect_skill(args, setup)
        case "install":
            return await BundleCommand(args, setup, open_skill_installer(setup)).install_bundle()
        case "update":
            return await BundleCommand(args, setup, open_skill_installer(setup)).update_bundles()
        case "remove":
            open_skill_installer(setup).remove_skill(args.words[0])
            name = args.words[0]
            print(f"removed {name}; to bring it back: hermes skills restore {name}")
            return 0
        case "restore":
            open_skill_installer(setup).restore_skill(args.words[0])
            print(f"restored {args.words[0]}")
            return 0
        case "enable" | "disable":
            return _switch_skills(args, setup)
        case "verify":
            return _verify_skills(args, setup)
    async with open_store(setup.home) as store:
        return await _handle_proposals(args, setup, store)


def _list_skills(args: Namespace, setup: Setup) -> int:
    rows = describe_skills(setup, Path.cwd(), " ".join(args.words))
    if not rows and not args.json:
        print("Nothing found.", file=sys.stderr)
    lines = []
    for row in rows:
        why = row.get("problem") or row.get("unmet") or ("disabled" if "disabled" in row else "")
        note = f"[{why}] " if why else ""
        lines.append(
            f"{row['name']:<24} {row['source']:<8} {note}{one_line(row['description'], 90)}"
        )
    return print_report(rows, map(strip_controls, lines), json=args.json)


async def _inspect_skill(args: Namespace, setup: Setup) -> int:
    word = args.words[0]
    skill = next((s for s in list_skills(setup, Path.cwd()) if s.name == word), None)
    if skill is not None:
        from hermes.skills.bundle import SkillBundle, read_folder

        fetched = SkillBundle(skill.name, read_folder(Path(skill.folder)), skill.folder)
    else:
        fetched = await fetch_bundle(setup, open_skill_installer(setup), word)
    print_summary(fetched)
    print(strip_controls(fetched.files["SKILL.md"].decode("utf-8", "replace")))
    show_findings(fetched)
    return 0


def _switch_skills(args: Namespace, setup: Setup) -> int:
    switch_skills(setup, Path.cwd(), args.words, enabled=args.action == "enable")
    for name in args.words:
        print(f"{name} is {'off' if args.action == 'disable' else 'on'}")
    return 0


def _verify_skills(args: Namespace, setup: Setup) -> int:
    installer = open_skill_installer(setup)
    records = installer.read_records()
    changed = False
    for name in args.words or sorted(records):
        if name not in records:
            raise ConfigError(f"{name} was not installed from elsewhere.")
        files = installer.find_changes(name)
        changed = changed or bool(files)
        print(f"{name}: changed since it was installed" if files else f"{name}: unchanged")
        for file in files:
            print(f"  {strip_controls(file)}")
    return EXIT_FAILED if changed else 0


async def _handle_proposals(args: Namespace, setup: Setup, store: Store) -> int:
    from hermes.skills.proposals import SkillProposals, show_change

    proposals = SkillProposals(store.objects, open_skill_installer(setup))
    if args.action == "pending":
        rows = await describe_proposals(proposals)
        if not rows and not args.json:
            print("Nothing waits for approval.", file=sys.stderr)
        lines = [f"{r['id']}  {r['action']}  {r['name']}  {r['session']}  {r['why']}" for r in rows]
        return print_report(rows, map(strip_controls, lines), json=args.json)
    for number in args.words:
        if args.action == "diff":
            print(strip_controls(show_change(await proposals.take_change(number))))
            continue
        await decide_proposal(proposals, number, approved=args.action == "approve")
        print(f"{'approved' if args.action == 'approve' else 'rejected'} {number}")
    return 0
