"""`hermes import`: restores a backup."""

import sys
import time

from hermes.cli.parser import CommandParser

_EPILOG = """\
FILE was written by hermes backup. It is checked completely first: a file that is damaged, was
tampered with, or comes from a newer version changes nothing. A home that is not empty is only
replaced with --force; its content is then kept in HERMES_HOME/aside. Keys that are not in the
backup stay as they are.

examples:
  hermes import hermes-backup-20260101-120000.tar.gz
  hermes import --force hermes-monday.tar.gz
  hermes -p copy import hermes-monday.tar.gz
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("import", "Restore a backup.", _EPILOG)
    parser.add_argument("file", metavar="FILE", help="the backup")
    parser.add_flag("--force", help="replace existing content, which is set aside")
    args = parser.parse_command(argv, profile)
    from pathlib import Path

    from hermes.cli.maintenance.home_archive import restore_archive
    from hermes.cli.startup import locate_home, refuse_agent, run_async
    from hermes.config.env import decode_argument
    from hermes.core.errors import ConfigError

    refuse_agent("replace its home")
    home = locate_home(args.profile)
    file = Path.cwd() / Path(decode_argument(args.file)).expanduser()
    if not file.is_file():
        raise ConfigError(f"There is no file {file}.")
    done = run_async(restore_archive(home, file, force=args.force))
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(done.header.created))
    print(f"Restored {done.count} files of {when} (hermes {done.header.version}) to {home}.")
    if done.aside:
        print(f"The previous content is in {done.aside}.")
    if not done.header.secrets:
        print("The backup contains no keys; yours were not changed.", file=sys.stderr)
    return 0
