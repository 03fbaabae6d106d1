"""`hermes version`."""

from __future__ import annotations

from hermes.cli.parser import Parser
from hermes.version import VERSION

_EPILOG = """\
examples:
  hermes version
  hermes --version
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes version", "Print the version and exit.", _EPILOG)
    _, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.complain(unknown)
    print(f"hermes {VERSION}")
    return 0
