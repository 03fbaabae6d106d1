"""Completion scripts, made from what the commands themselves say they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from hermes.cli.main import COMMANDS
from hermes.cli.parser import outline


class Option(Struct, frozen=True):
    names: tuple[str, ...]
    help: str = ""
    choices: tuple[str, ...] = ()
    takes: bool = False
    """Whether a value follows."""


class Entry(Struct, frozen=True):
    name: str
    help: str
    actions: tuple[str, ...] = ()
    """What its first argument may be."""
    options: tuple[Option, ...] = ()


def table() -> list[Entry]:
    return [_entry(name, line) for name, line in COMMANDS.items()]


def _entry(name: str, line: str) -> Entry:
    actions: tuple[str, ...] = ()
    options: list[Option] = []
    for action in outline(name).arguments():
        choices = tuple(map(str, action.choices or ()))
        if not action.option_strings:
            actions = actions or choices
        else:
            text = " ".join((action.help or "").split())
            takes = action.nargs != 0
            options.append(Option(tuple(action.option_strings), text, choices, takes))
    return Entry(name, line, actions, tuple(options))


_GLOBAL = ("-p", "--profile", "-h", "--help", "--version")


def bash(entries: Sequence[Entry]) -> str:
    cases, valued = [], []
    for entry in entries:
        names = " ".join(name for option in entry.options for name in option.names)
        actions = " ".join(entry.actions)
        cases.append(f'        {entry.name}) actions="{actions}" options="{names}" ;;')
        for option in entry.options:
            if option.takes:
                words = " ".join(option.choices)
                for name in option.names:
                    valued.append(f'        "{entry.name} {name}") values="{words}"; takes=1 ;;')
    return _BASH.format(
        commands=" ".join(entry.name for entry in entries),
        options=" ".join(_GLOBAL),
        cases="\n".join(cases),
        valued="\n".join(valued),
    )


_BASH = """\
# bash completion of hermes; made by `hermes completion bash`
_hermes() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} last=${{COMP_WORDS[COMP_CWORD-1]}}
    local command="" place=0 i actions="" options="" values="" takes=0
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in
            -p|--profile) ((i++)) ;;
            -*) ;;
            *) command=${{COMP_WORDS[i]}}; place=$i; break ;;
        esac
    done
    if [[ -z $command ]]; then
        [[ $last == -p || $last == --profile ]] && return
        COMPREPLY=($(compgen -W "{commands} help {options}" -- "$word"))
        return
    fi
    if [[ $command == help ]]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    case $command in
{cases}
    esac
    case "$command $last" in
{valued}
    esac
    if ((takes)); then
        [[ -n $values ]] && COMPREPLY=($(compgen -W "$values" -- "$word"))
        return
    fi
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    elif [[ -n $actions ]] && ((COMP_CWORD == place + 1)); then
        COMPREPLY=($(compgen -W "$actions" -- "$word"))
    fi
}}
complete -o bashdefault -o default -F _hermes hermes
"""


def zsh(entries: Sequence[Entry]) -> str:
    described = "\n".join(f"        {_quoted(f'{e.name}:{e.help}')}" for e in entries)
    cases = []
    for entry in entries:
        lines = [f"        {_zsh_option(option)} \\" for option in entry.options]
        first = f"'1:action:({' '.join(entry.actions)})'" if entry.actions else "'1:file:_files'"
        body = "\n    ".join(lines)
        cases.append(
            f"        {entry.name})\n            _arguments -s \\\n    {body}\n"
            f"                {first} '*:file:_files' ;;"
        )
    return _ZSH.format(commands=described, cases="\n".join(cases))


_ZSH = """\
#compdef hermes
# zsh completion of hermes; made by `hermes completion zsh`
_hermes() {{
    local -a commands
    local curcontext=$curcontext state line
    commands=(
{commands}
    )
    _arguments -C '(-p --profile)'{{-p,--profile}}'[use another profile]:profile:' \\
        '(-h --help)'{{-h,--help}}'[help]' '--version[print the version]' \\
        '1:command:->command' '*::argument:->argument'
    case $state in
        command) _describe -t commands command commands ;;
        argument)
            case $line[1] in
{cases}
            esac ;;
    esac
}}
if [[ $funcstack[1] == _hermes ]]; then _hermes "$@"; else compdef _hermes hermes; fi
"""


def _zsh_option(option: Option) -> str:
    text = _plain(option.help).replace("[", "(").replace("]", ")").replace(":", " -")
    value = ""
    if option.takes:
        value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
    return " ".join(f"'*{name}[{text}]{value}'" for name in option.names)


def fish(entries: Sequence[Entry]) -> str:
    lines = [
        "# fish completion of hermes; made by `hermes completion fish`",
        "complete -c hermes -n __fish_use_subcommand -s p -l profile -x -d 'use another profile'",
        "complete -c hermes -n __fish_use_subcommand -s h -l help -f -d help",
        "complete -c hermes -n __fish_use_subcommand -l version -f -d 'print the version'",
    ]
    for entry in entries:
        here = f"'__fish_seen_subcommand_from {entry.name}'"
        about = _quoted(entry.help)
        lines.append(f"complete -c hermes -n __fish_use_subcommand -f -a {entry.name} -d {about}")
        if entry.actions:
            words = " ".join(entry.actions)
            once = f"'__fish_seen_subcommand_from {entry.name}; "
            once += f"and not __fish_seen_subcommand_from {words}'"
            lines.append(f"complete -c hermes -n {once} -f -a {_quoted(words)}")
        lines += [_fish_option(here, option) for option in entry.options]
    return "\n".join(lines) + "\n"


def _fish_option(here: str, option: Option) -> str:
    parts = [f"complete -c hermes -n {here}"]
    for name in option.names:
        parts.append(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}")
    if option.choices:
        parts.append(f"-x -a {_quoted(' '.join(option.choices))}")
    elif option.takes:
        parts.append("-r")
    if option.help:
        parts.append(f"-d {_quoted(_plain(option.help))}")
    return " ".join(parts)


def _quoted(text: str) -> str:
    return "'" + _plain(text) + "'"


def _plain(text: str) -> str:
    """Nothing in it that a shell would read between single quotes."""
    return text.replace("'", "’").replace("\\", "/")


SCRIPTS: dict[str, Callable[[Sequence[Entry]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
