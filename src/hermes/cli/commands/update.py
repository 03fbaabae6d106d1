"""`hermes update`: the command that updates this installation, and the newest version."""

import sys

from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.parser import CommandParser
from hermes.version import VERSION

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
    parser = CommandParser("update", "Show the update command.", _EPILOG)
    parser.add_flag("--check", help="look up the newest version")
    parser.add_flag("--json", help="print JSON")
    args = parser.parse_command(argv)
    from hermes.cli.maintenance.installation import detect_installation, is_newer

    found = detect_installation()
    newest, problem = _look_up_newest() if args.check else ("", "")
    newer = is_newer(newest, VERSION) if newest else None
    if args.json:
        from hermes.cli.terminal.text import to_json

        about = {
            "version": VERSION,
            "installed_with": found.installer,
            "command": found.update_command,
            "newest": newest or None,
            "newer": newer,
            "error": problem or None,
        }
        print(to_json(about))
        return EXIT_FAILED if problem else 0
    if problem:
        print_stderr(problem)
    if newer is False:
        print(f"hermes {VERSION} is the newest version.")
        return 0
    head = f"hermes {VERSION}" + (f"; {newest} is available" if newest else "")
    print(f"{head}. Installed with {found.installer}. To update:\n\n    {found.update_command}\n")
    print("Your sessions, keys and settings are not affected.", file=sys.stderr)
    return EXIT_FAILED if problem else 0


def _look_up_newest() -> tuple[str, str]:
    from hermes.cli.maintenance.installation import find_newest_version
    from hermes.cli.startup import run_async
    from hermes.core.errors import HermesError

    try:
        return run_async(find_newest_version()), ""
    except HermesError as error:
        return "", f"Could not look up the newest version: {error}"
