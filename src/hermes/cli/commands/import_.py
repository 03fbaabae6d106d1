"""`hermes import`: a backup put back."""

from __future__ import annotations

import sys
import time

from hermes.cli.parser import Parser, profile_option

_EPILOG = """\
FILE is what hermes backup made. It is checked as a whole first; a file that is damaged, was
tampered with, or is of a newer version changes nothing. Into a home that has something already
only with --force: then what was there is kept in HERMES_HOME/aside. Keys that are not in the
backup stay as they are.

examples:
  hermes import hermes-backup-20260101-120000.tar.gz
  hermes import --force hermes-monday.tar.gz
  hermes -p copy import hermes-monday.tar.gz
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes import", "Put a backup back.", _EPILOG)
    parser.add_argument("file", metavar="FILE", help="a backup")
    parser.add_argument("--force", action="store_true", help="put what is there aside")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        parser.complain(unknown)
    import asyncio
    from pathlib import Path

    from hermes.cli.restore import restore
    from hermes.config import paths
    from hermes.config.env import decode_argument, get_environment, is_inside_agent
    from hermes.core.errors import ConfigError

    if is_inside_agent():
        raise ConfigError("A tool of an agent may not replace its home; do it yourself.")
    home = paths.find_home(get_environment(), args.profile)
    file = Path.cwd() / Path(decode_argument(args.file)).expanduser()
    if not file.is_file():
        raise ConfigError(f"There is no file {file}.")
    done = asyncio.run(restore(home, file, force=args.force))
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(done.header.created))
    print(f"{done.count} files of {when} (hermes {done.header.version}) are in {home}.")
    if done.aside:
        print(f"What was there before is in {done.aside}.")
    if not done.header.secrets:
        print("The backup has no keys; those that are here stay.", file=sys.stderr)
    return 0
