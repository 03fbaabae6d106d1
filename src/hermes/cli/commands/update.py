"""`hermes update`: how this installation gets newer, and whether there is anything newer."""

from __future__ import annotations

import sys
from argparse import Namespace

from hermes.cli.main import EXIT_FAILED, fail
from hermes.cli.parser import Parser
from hermes.version import VERSION

_EPILOG = """\
Says the command that updates this installation, which depends on how it was made: uv, pipx, pip,
a git checkout, or the system's packages. It runs nothing itself and never touches HERMES_HOME.
--check asks the package index this machine is set up with for the newest version; nothing else
is sent. exit status: 0, or 1 when the index could not be asked

examples:
  hermes update
  hermes update --check
  hermes update --check --json | jq -r .newest
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes update", "Say how to get a newer version.", _EPILOG)
    parser.add_argument("--check", action="store_true", help="ask which version is the newest")
    parser.add_argument("--json", action="store_true", help="as JSON")
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.complain(unknown)
    from hermes.cli.installation import how

    found = how()
    newest, problem = _newest() if args.check else ("", "")
    if args.json:
        _print_json(found.way, found.command, newest, problem)
        return EXIT_FAILED if problem else 0
    if problem:
        fail(problem)
    _say(args, newest, found.way, found.command)
    return EXIT_FAILED if problem else 0


def _say(args: Namespace, newest: str, way: str, command: str) -> None:
    from hermes.cli.installation import newer

    if newest and not newer(newest, VERSION):
        print(f"hermes {VERSION} is the newest version.")
        return
    head = f"hermes {VERSION}"
    if newest:
        head += f"; {newest} is there"
    print(f"{head}. Installed with {way}. To update:\n\n    {command}\n")
    print("Your sessions, keys and settings stay where they are.", file=sys.stderr)


def _newest() -> tuple[str, str]:
    import asyncio

    from hermes.cli.installation import newest
    from hermes.core.errors import HermesError

    try:
        return asyncio.run(newest()), ""
    except HermesError as error:
        return "", f"The newest version is not known: {error}"


def _print_json(way: str, command: str, newest: str, problem: str) -> None:
    from hermes.cli.installation import newer
    from hermes.cli.terminal.text import dump

    print(
        dump(
            {
                "version": VERSION,
                "installed_with": way,
                "command": command,
                "newest": newest or None,
                "newer": newer(newest, VERSION) if newest else None,
                "error": problem or None,
            }
        )
    )
