"""`hermes completion`: a script that lets a shell complete commands, actions and options."""

from hermes.cli.parser import CommandParser

_EPILOG = """\
The script is the same on every machine and runs nothing while you type.

examples:
  hermes completion bash > ~/.local/share/bash-completion/completions/hermes
  hermes completion zsh > "${fpath[1]}/_hermes"
  hermes completion fish > ~/.config/fish/completions/hermes.fish
  source <(hermes completion bash)          for this shell only
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("completion", "Print a completion script for a shell.", _EPILOG)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    args = parser.parse_command(argv)
    from hermes.cli.shell_completion import SCRIPTS, list_commands

    print(SCRIPTS[args.shell](list_commands()), end="")
    return 0
