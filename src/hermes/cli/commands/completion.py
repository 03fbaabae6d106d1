"""`hermes completion`: a script that lets a shell complete commands, actions and options."""

from __future__ import annotations

from hermes.cli.parser import Parser

_EPILOG = """\
The script is the same on every machine and starts nothing while you type.

examples:
  hermes completion bash > ~/.local/share/bash-completion/completions/hermes
  hermes completion zsh > "${fpath[1]}/_hermes"
  hermes completion fish > ~/.config/fish/completions/hermes.fish
  source <(hermes completion bash)          for this shell only
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes completion", "Print a completion script for a shell.", _EPILOG)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.complain(unknown)
    from hermes.cli.shell_completion import SCRIPTS, table

    print(SCRIPTS[args.shell](table()), end="")
    return 0
