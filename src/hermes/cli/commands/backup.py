"""`hermes backup`: everything of a home in one file."""

from __future__ import annotations

import sys
import time

from hermes.cli.parser import Parser, profile_option

_EPILOG = """\
Sessions, configuration, persona, memory, skills, checkpoints and the profiles below this home, as
a .tar.gz that only you can read. Conversations may go on meanwhile. Keys and logins stay here
unless you say --with-secrets; caches, logs and downloaded models are left out.

examples:
  hermes backup
  hermes backup ~/hermes-monday.tar.gz
  hermes backup --with-secrets /media/usb/hermes.tar.gz
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes backup", "Put everything into one file.", _EPILOG)
    parser.add_argument("file", nargs="?", metavar="FILE", help="default: a new one in this folder")
    parser.add_argument("--with-secrets", action="store_true", help="keys and logins too")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        parser.complain(unknown)
    import asyncio
    from pathlib import Path

    from hermes.cli.backup import make
    from hermes.config import paths
    from hermes.config.env import decode_argument, get_environment, is_inside_agent
    from hermes.core.errors import ConfigError

    if is_inside_agent():
        raise ConfigError("A tool of an agent may not copy its home; do it yourself.")
    home = paths.find_home(get_environment(), args.profile)
    if not home.is_dir():
        raise ConfigError(f"There is nothing to back up: {home} does not exist.")
    name = decode_argument(args.file or time.strftime("hermes-backup-%Y%m%d-%H%M%S.tar.gz"))
    made = asyncio.run(make(home, Path.cwd() / Path(name).expanduser(), secrets=args.with_secrets))
    for sentence in made.left_out:
        print(sentence, file=sys.stderr)
    print(f"{made.file}: {made.count} files, {made.size / 1e6:.1f} MB")
    if args.with_secrets:
        print("It holds your keys: keep it where nobody else reads.", file=sys.stderr)
    return 0
