"""`hermes version`: prints the version."""

from hermes.cli.parser import CommandParser
from hermes.version import VERSION

_EPILOG = """\
examples:
  hermes version
  hermes --version
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("version", "Print the version and exit.", _EPILOG)
    parser.parse_command(argv)
    print(f"hermes {VERSION}")
    return 0
