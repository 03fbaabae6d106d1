"""`hermes config`: shows, changes and checks the configuration."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec

from hermes.cli.main import EXIT_USAGE, print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import create_home, locate_home, refuse_agent
from hermes.cli.terminal.text import to_json
from hermes.config import paths
from hermes.config.env import decode_argument
from hermes.config.load import Setup, list_key_variables, load_setup, read_source
from hermes.config.schema import Config
from hermes.config.secrets import mask_secrets
from hermes.core.errors import ConfigError
from hermes.core.text import format_plural

if TYPE_CHECKING:
    from hermes.mcp.server_config import ServerConfig

_EPILOG = """\
commands:
  show             show the configuration in effect, including defaults (--json)
  get KEY          print one value
  set KEY VALUE    change one value; comments and the rest of the file stay
  check            report what is wrong or outdated in config.yaml, with line numbers
  path             print the path of config.yaml

examples:
  hermes config set model.default anthropic/claude-sonnet-4.5
  hermes config set fallback_providers openrouter:qwen/qwen3-coder,lab:llama-3.3-70b
  hermes config get agent.max_turns
  hermes config set model.max_tokens null        # back to the default
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("config", "Show and change the configuration.", _EPILOG)
    parser.add_action(sorted(_ACTIONS), "show")
    shape = "a KEY looks like agent.max_turns"
    parser.add_argument("words", nargs="*", metavar="KEY VALUE", help=shape)
    parser.add_flag("--json", help="print JSON (show, get)")
    parser.add_profile_option(profile)
    args, unknown = parser.parse_known_intermixed_args(argv)
    if args.action == "set" and len(args.words) == len(unknown) == 1:
        args.words.append(unknown.pop())  # a value that begins with a dash
    if unknown:
        parser.reject_unknown(unknown)
    count = {"get": 1, "set": 2}.get(args.action, 0)
    if len(args.words) != count:
        need = ("takes no key", "needs a KEY", "needs a KEY and a VALUE")[count]
        parser.error(f"{args.action} {need}")
    args.words = [decode_argument(word) for word in args.words]
    return _ACTIONS[args.action](args)


def _show_config(args: Namespace) -> int:
    data = mask_secrets(msgspec.to_builtins(load_setup(args.profile).config))
    if args.json:
        print(to_json(data))
    else:
        import yaml

        print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")
    return 0


def _get_value(args: Namespace) -> int:
    from hermes.config import key_path

    data = mask_secrets(msgspec.to_builtins(load_setup(args.profile).config))
    key = args.words[0]
    path = key_path.parse_key(key, data)
    try:
        value = key_path.get_at(data, path)
    except KeyError:
        raise ConfigError(f"{key} is not set.") from None
    if isinstance(value, str) and not args.json:
        print(value)
    else:
        print(to_json(value))
    return 0


def _set_value(args: Namespace) -> int:
    from hermes.config.update import set_value
    from hermes.config.yaml_edit import render_value

    refuse_agent("change the configuration")
    home = create_home(args.profile)
    change = set_value(home, *args.words)
    print(f"{change.key} = {render_value(mask_secrets({change.key: change.new})[change.key])}")
    if change.cleared:
        print(f"Removed, because it belonged to {change.old}: {', '.join(change.cleared)}")
    return 0


def _check_config(args: Namespace) -> int:
    from hermes.app.control.model_selection import describe_missing
    from hermes.config.validate import validate_config
    from hermes.config.yaml_source import parse_yaml

    home = locate_home(args.profile)
    file, source = paths.config_file(home), read_source(home)
    if source is None:
        print(f"{file} does not exist; the defaults apply.")
        return 0
    checked = validate_config(parse_yaml(source))
    for problem in checked.problems:
        print(f"error: config.yaml {problem}")
    for note in checked.notes:
        print(f"old: config.yaml {note}")
    if checked.config is None:
        print_stderr(f"{file} has {format_plural(len(checked.problems), 'error')}")
        return EXIT_USAGE
    if errors := [*_check_rules(checked.config), *_check_hooks(checked.config)]:
        for error in errors:
            print(f"error: config.yaml {error}")
        print_stderr(f"{file} has {format_plural(len(errors), 'error')}")
        return EXIT_USAGE
    setup = load_setup(args.profile)
    for name in sorted(list_key_variables(checked.config) - list_key_variables(Config())):
        if setup.secrets.get(name) is None:
            print(f"note: {name} is named as a key, but set neither in the environment nor in .env")
    for server in _list_broken_servers(checked.config):
        print(f"note: mcp_servers.{server.name} is not used: {server.problem}")
    for unusable in _list_platform_problems(setup):
        print(f"note: {unusable}")
    if missing := describe_missing(setup):
        print(f"note: {missing}")
    print(f"{file} is valid.")
    return 0


def _list_broken_servers(config: Config) -> list[ServerConfig]:
    """The MCP servers that cannot be started as they are written."""
    if not config.mcp_servers:
        return []
    from hermes.mcp.server_config import read_config_section

    return [server for server in read_config_section(config.mcp_servers).values() if server.problem]


def _list_platform_problems(setup: Setup) -> list[str]:
    """Of the messengers: what the gateway would refuse. Plugins may bring more of them."""
    config, problems = setup.config, []
    if not config.platforms:
        return []
    from hermes.config.platforms import read_platform
    from hermes.gateway.platforms import HOSTED, list_names, load_platform, require_known

    for name in config.platforms:
        try:
            if name in list_names():
                read_platform(name, load_platform(name).settings, config, setup.secrets)
            elif name not in HOSTED and not config.plugins.enabled:
                require_known(name)
        except ConfigError as error:
            problems.append(str(error))
    return problems


def _check_rules(config: Config) -> list[str]:
    """What is wrong with the approval rules."""
    if not config.approvals.rules:
        return []
    from hermes.exec.command_policy import CommandRules

    try:
        CommandRules.load_rules(list(config.approvals.rules))
    except ConfigError as error:
        return [f"approvals.rules: {error}"]
    return []


def _check_hooks(config: Config) -> list[str]:
    """What is wrong with the commands that are hooks: with it no session starts."""
    if not config.hooks:
        return []
    from hermes.app.extensions.shell_hooks import list_hook_problems

    return list_hook_problems(config.hooks)


def _print_path(args: Namespace) -> int:
    print(paths.config_file(locate_home(args.profile)))
    return 0


_ACTIONS = {
    "show": _show_config,
    "get": _get_value,
    "set": _set_value,
    "check": _check_config,
    "path": _print_path,
}
