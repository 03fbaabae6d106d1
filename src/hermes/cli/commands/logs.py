"""`hermes logs`: shows the log, and follows it."""

import sys

from hermes.cli.parser import CommandParser

_EPILOG = """\
Warnings and errors of all conversations of this home, with secrets redacted. The file is
HERMES_HOME/logs/hermes.log: one JSON object per line, rotated at 4 MB. Times are UTC.

examples:
  hermes logs
  hermes logs -f --level error
  hermes logs --session 20260101 -n 200
  hermes logs --json | jq -r .message
"""
_LEVELS = ("debug", "info", "warning", "error", "critical")


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("logs", "Show the log.", _EPILOG)
    parser.add_flag("-f", "--follow", help="keep showing new records, until Ctrl-C")
    last = "show the last N (default: 50)"
    parser.add_count_option("-n", "--lines", default=50, metavar="N", help=last)
    least = "show only this level and above"
    parser.add_argument("--level", choices=_LEVELS, default="debug", metavar="L", help=least)
    parser.add_argument(
        "--session", metavar="ID", default="", help="show only this session; a prefix is enough"
    )
    parser.add_flag("--json", help="print JSON lines")
    args = parser.parse_command(argv, profile)
    from hermes.app.live.log_records import follow_log, make_filter, read_tail
    from hermes.cli.log_file import format_record
    from hermes.cli.startup import locate_home
    from hermes.cli.terminal.text import to_json
    from hermes.config import paths

    file = paths.log_file(locate_home(args.profile))
    matches = make_filter(args.level, args.session)
    format_line = to_json if args.json else format_record
    found, position = read_tail(file, args.lines, matches)
    for record in found:
        print(format_line(record))
    if not found and not args.follow:
        print("No matching records." if file.exists() else "The log is empty.", file=sys.stderr)
    if args.follow:
        sys.stdout.flush()
        for record in follow_log(file, position, matches, _pause_while_read):
            print(format_line(record), flush=True)
    return 0


def _pause_while_read(seconds: float) -> None:
    """Raises BrokenPipeError when nobody reads any more: the next record may be hours away."""
    import select

    reader = select.poll()
    reader.register(1, 0)  # a closed reader is reported without asking
    if reader.poll(seconds * 1000):
        raise BrokenPipeError
