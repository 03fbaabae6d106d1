"""`hermes update`: the command that updates this installation, and the newest version."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.parser import CommandParser
from hermes.version import VERSION

if TYPE_CHECKING:
    from hermes.cli.installation import Installation

_EPILOG = """\
Shows the command that updates this installation, which depends on how it was installed: uv, pipx,
pip, a git checkout, or system packages. It runs nothing and never touches HERMES_HOME. --check
asks the configured package index for the newest version; nothing else is sent.
exit status: 0, or 1 when the index could not be reached

examples:
  hermes update
  hermes update --check
  hermes update --check --json | jq -r .newest
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("hermes update", "Show the update command.", _EPILOG)
    parser.add_argument("--check", action="store_true", help="look up the newest version")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_command(argv)
    from hermes.cli.installation import detect_installation

    found = detect_installation()
    newest, problem = _look_up_newest() if args.check else ("", "")
    if args.json:
        _print_json(found, newest, problem)
        return EXIT_FAILED if problem else 0
    if problem:
        print_stderr(problem)
    _print_text(found, newest)
    return EXIT_FAILED if problem else 0


def _print_text(found: Installation, newest: str) -> None:
    from hermes.cli.installation import is_newer

    if newest and not is_newer(newest, VERSION):
        print(f"hermes {VERSION} is the newest version.")
        return
    head = f"hermes {VERSION}"
    if newest:
        head += f"; {newest} is available"
    print(f"{head}. Installed with {found.installer}. To update:\n\n    {found.update_command}\n")
    print("Your sessions, keys and settings are not affected.", file=sys.stderr)


def _look_up_newest() -> tuple[str, str]:
    import asyncio

    from hermes.cli.installation import find_newest_version
    from hermes.core.errors import HermesError

    try:
        return asyncio.run(find_newest_version()), ""
    except HermesError as error:
        return "", f"Could not look up the newest version: {error}"


def _print_json(found: Installation, newest: str, problem: str) -> None:
    from hermes.cli.installation import is_newer
    from hermes.cli.terminal.text import to_json

    print(
        to_json(
            {
                "version": VERSION,
                "installed_with": found.installer,
                "command": found.update_command,
                "newest": newest or None,
                "newer": is_newer(newest, VERSION) if newest else None,
                "error": problem or None,
            }
        )
    )
