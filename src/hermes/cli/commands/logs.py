"""`hermes logs`: what was logged, and what is being logged."""

from __future__ import annotations

import sys

from hermes.cli.parser import Parser, positive, profile_option

_EPILOG = """\
Warnings and errors of all conversations of this home, with secrets redacted. The file is
HERMES_HOME/logs/hermes.log: a JSON object per line, begun anew at 4 MB. Times are UTC.

examples:
  hermes logs
  hermes logs -f --level error
  hermes logs --session 20260101 -n 200
  hermes logs --json | jq -r .message
"""
_LEVELS = ("debug", "info", "warning", "error", "critical")


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes logs", "Show what was logged.", _EPILOG)
    add = parser.add_argument
    add("-f", "--follow", action="store_true", help="go on showing, until Ctrl-C")
    add("-n", "--lines", type=positive, default=50, metavar="N", help="the last N (default: 50)")
    add("--level", choices=_LEVELS, default="debug", metavar="L", help="at least this serious")
    add("--session", metavar="ID", default="", help="of this session; the beginning will do")
    add("--json", action="store_true", help="as they are: JSON lines")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.complain(unknown)
    from hermes.cli import log_reader as logbook
    from hermes.cli.terminal.text import dump
    from hermes.config import paths
    from hermes.config.env import get_environment

    file = paths.log_file(paths.find_home(get_environment(), args.profile))
    test = logbook.wanted(args.level, args.session)
    show = dump if args.json else logbook.readable
    found, place = logbook.tail(file, args.lines, test)
    for record in found:
        print(show(record))
    if not found and not args.follow:
        print(f"Nothing is logged{' like that' if file.exists() else ' yet'}.", file=sys.stderr)
    if args.follow:
        sys.stdout.flush()
        for record in logbook.follow(file, place, test, _pause):
            print(show(record), flush=True)
    return 0


def _pause(seconds: float) -> None:
    """Ends early when nobody reads any more: the next line to write may be hours away."""
    import select

    reader = select.poll()
    reader.register(1, 0)  # that it is gone is told unasked
    if reader.poll(seconds * 1000):
        raise BrokenPipeError
