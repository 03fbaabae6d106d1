"""`hermes config`: show, get, set, check, path."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from hermes.cli.main import EXIT_USAGE, fail
from hermes.cli.parser import Parser, profile_option
from hermes.config import paths
from hermes.config.env import argument_text, environment, inside_agent
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.config.schema import Config
    from hermes.config.secrets import Secrets

_EPILOG = """\
commands:
  show             the configuration in effect, defaults included (--json)
  get KEY          one value
  set KEY VALUE    change one value; comments and everything else in the file stay
  check            what is wrong or outdated in config.yaml, line by line
  path             where config.yaml is

examples:
  hermes config set model.default anthropic/claude-sonnet-4.5
  hermes config set fallback_providers openrouter:qwen/qwen3-coder,lab:llama-3.3-70b
  hermes config get agent.max_turns
  hermes config set model.max_tokens null        # back to the default
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes config", "Show and change the configuration.", _EPILOG)
    parser.add_argument("action", choices=sorted(_ACTIONS), help="see below")
    parser.add_argument("words", nargs="*", metavar="KEY VALUE", help="KEY is like agent.max_turns")
    parser.add_argument("--json", action="store_true", help="as JSON (show, get)")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_intermixed_args(argv)
    if args.action == "set" and len(args.words) == len(unknown) == 1:
        args.words.append(unknown.pop())  # a value that begins with a dash
    if unknown:
        parser.complain(unknown)
    wanted = {"get": 1, "set": 2}.get(args.action, 0)
    if len(args.words) != wanted:
        shape = ("takes no key", "needs a KEY", "needs a KEY and a VALUE")[wanted]
        parser.error(f"{args.action} {shape}")
    args.words = [argument_text(word) for word in args.words]
    return _ACTIONS[args.action](args)


def _show(args: Namespace) -> int:
    from hermes.config.load import load

    data = _masked(_effective(load(args.profile).config))
    if args.json:
        from hermes.cli.terminal.text import dump

        print(dump(data))
    else:
        import yaml

        print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")
    return 0


def _get(args: Namespace) -> int:
    from hermes.cli.terminal.text import dump
    from hermes.config import key_path as keys
    from hermes.config.load import load

    data = _masked(_effective(load(args.profile).config))
    key = args.words[0]
    path = keys.find(key, data)
    try:
        value = keys.value_at(data, path)
    except KeyError:
        raise ConfigError(f"{key} is not set.") from None
    if isinstance(value, str) and not args.json:
        print(value)
    else:
        print(dump(value))
    return 0


def _set(args: Namespace) -> int:
    from hermes.config.update import set_value
    from hermes.config.yaml_edit import render

    if inside_agent():
        raise ConfigError("A tool of an agent may not change the configuration; do it yourself.")
    home = paths.find_home(environment(), args.profile)
    for warning in paths.make_home(home):
        fail(warning)
    change = set_value(home, *args.words)
    print(f"{change.key} = {render(_masked({change.key: change.new})[change.key])}")
    if change.cleared:
        print(f"Taken out, because it belonged to {change.old}: {', '.join(change.cleared)}")
    return 0


def _check(args: Namespace) -> int:
    from hermes.config.load import load, read_source
    from hermes.config.schema import key_variables
    from hermes.config.validate import check
    from hermes.config.yaml_source import parse
    from hermes.core.text import counted

    home = paths.find_home(environment(), args.profile)
    source = read_source(home)
    if source is None:
        print(f"{paths.config_file(home)} does not exist; the defaults apply.")
        return 0
    checked = check(parse(source))
    for problem in checked.problems:
        print(f"error: config.yaml {problem}")
    for note in checked.notes:
        print(f"old: config.yaml {note}")
    if checked.config is None:
        fail(f"{paths.config_file(home)} has {counted(len(checked.problems), 'error')}")
        return EXIT_USAGE
    if wrong := _bad_rules(checked.config):
        print(f"error: config.yaml approvals.rules: {wrong}")
        fail(f"{paths.config_file(home)} has 1 error")
        return EXIT_USAGE
    secrets = load(args.profile).secrets
    for name in sorted(key_variables(checked.config)):
        if secrets.get(name) is None:
            print(f"note: {name} is named as a key, but set neither in the environment nor in .env")
    for name in _without_effect(checked.config):
        print(f"note: {name} is understood, but has no effect in this version")
    _note_endpoint(checked.config, secrets)
    print(f"{paths.config_file(home)} is valid.")
    return 0


def _without_effect(config: Config) -> list[str]:
    """What is set for features that are not there yet: nobody should rely on it."""
    default = type(config)()
    names = ("platforms", "mcp_servers")
    return [name for name in names if getattr(config, name) != getattr(default, name)]


def _bad_rules(config: Config) -> str:
    """What the commands' gate would say to the rules."""
    if not config.approvals.rules:
        return ""
    from hermes.exec.command_policy import Rules

    try:
        Rules.load(list(config.approvals.rules))
    except ConfigError as error:
        return str(error)
    return ""


def _note_endpoint(config: Config, secrets: Secrets) -> None:
    """Valid, and yet no model could be called with it."""
    from hermes.llm.endpoints.endpoint import ModelChoice
    from hermes.llm.endpoints.resolver import resolve_chain

    try:
        resolve_chain(config, secrets, ModelChoice())
    except ConfigError as error:
        print(f"note: {error}")


def _path(args: Namespace) -> int:
    print(paths.config_file(paths.find_home(environment(), args.profile)))
    return 0


_ACTIONS = {"show": _show, "get": _get, "set": _set, "check": _check, "path": _path}


def _effective(config: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(config)


def _masked(value: Any) -> Any:
    """Secrets that stand in the file against advice are not repeated."""
    from hermes.config.secrets import secret_name

    if isinstance(value, dict):
        return {
            key: "[redacted]"
            if isinstance(item, str) and item and secret_name(key) and not key.endswith("_env")
            else _masked(item)
            for key, item in value.items()
        }
    return [_masked(item) for item in value] if isinstance(value, (list, tuple)) else value
