"""`hermes backup`: saves a home to one file."""

import sys
import time

from hermes.cli.parser import CommandParser

_EPILOG = """\
Saves sessions, configuration, persona, memory, skills, checkpoints and the profiles of this home
as a .tar.gz that only you can read. Conversations can continue meanwhile. Keys and logins are
left out unless you add --with-secrets; so are caches, logs and downloaded models.

examples:
  hermes backup
  hermes backup ~/hermes-monday.tar.gz
  hermes backup --with-secrets /media/usb/hermes.tar.gz
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("backup", "Save everything to a file.", _EPILOG)
    default = "default: a new file in this folder"
    parser.add_argument("file", nargs="?", metavar="FILE", help=default)
    parser.add_flag("--with-secrets", help="include keys and logins")
    args = parser.parse_command(argv, profile)
    from pathlib import Path

    from hermes.cli.maintenance.home_archive import write_archive
    from hermes.cli.startup import locate_home, refuse_agent, run_async
    from hermes.config.env import decode_argument
    from hermes.core.errors import ConfigError

    refuse_agent("copy its home")
    home = locate_home(args.profile)
    if not home.is_dir():
        raise ConfigError(f"There is nothing to back up: {home} does not exist.")
    name = decode_argument(args.file or time.strftime("hermes-backup-%Y%m%d-%H%M%S.tar.gz"))
    file = Path.cwd() / Path(name).expanduser()
    written = run_async(write_archive(home, file, secrets=args.with_secrets))
    for sentence in written.left_out:
        print(sentence, file=sys.stderr)
    print(f"{written.file}: {written.count} files, {written.size / 1e6:.1f} MB")
    if args.with_secrets:
        print("It contains your keys: keep it where nobody else can read it.", file=sys.stderr)
    return 0
