"""`hermes setup`: finds a model that works and uses it."""

import os
from argparse import Namespace

from hermes.cli.main import EXIT_FAILED, load_command
from hermes.cli.parser import CommandParser

_EPILOG = """\
Looks for keys (environment, .env), logins, model servers on this machine and the built-in model,
asks the best one to say hello, and saves what worked in config.yaml. You can run it again at any
time: a model that works stays, and nothing is saved when none answers.

For scripts: --non-interactive asks no questions. With --provider, --model, --base-url, --key-env
or --embedded exactly that is tested; without them the first model that answers is used.
exit status: 0 a model answered, 1 none did, 2 usage or configuration

examples:
  hermes setup
  hermes setup --non-interactive
  hermes setup --non-interactive --provider openrouter --model qwen/qwen3-coder
  hermes setup --base-url http://127.0.0.1:8000/v1 --model my-model --key-env MY_KEY
  hermes setup --embedded
"""


def run(argv: list[str], profile: str) -> int:
    args = _parse_arguments(argv, profile)
    from hermes.cli.model.setup import SetupRequest, set_up_model
    from hermes.cli.startup import locate_home, refuse_agent
    from hermes.config import paths

    refuse_agent("change its model")
    attended = not args.non_interactive and all(os.isatty(number) for number in (0, 1, 2))
    model = args.provider, args.model, args.base_url, args.key_env or ""
    request = SetupRequest(args.profile, *model, args.embedded)
    is_first = not paths.database_file(locate_home(args.profile)).exists()
    if not set_up_model(request, attended=attended):
        return EXIT_FAILED
    if attended:
        _offer_packages(args.profile)
    if attended and is_first:
        code: int = load_command("chat").run(["-p", args.profile], args.profile)
        return code
    return 0


def _offer_packages(profile: str) -> None:
    """Offer to let confined commands reach package registries, unless hosts were chosen before."""
    from hermes.cli.terminal.picker import ask_yes_no
    from hermes.config.load import load_setup
    from hermes.config.update import set_value

    setup = load_setup(profile)
    if setup.config.sandbox.network.allow or setup.config.sandbox.mode == "full-access":
        return
    if ask_yes_no("May package managers (pip, npm, cargo, go) download packages without asking?"):
        set_value(setup.home, "sandbox.network.allow", "[packages]")
        print("Saved. To undo it: hermes config set sandbox.network.allow '[]'")


def _parse_arguments(argv: list[str], profile: str) -> Namespace:
    parser = CommandParser("setup", "Find a model that works and use it.", _EPILOG)
    add = parser.add_argument
    parser.add_flag("--non-interactive", help="ask no questions")
    add("--provider", metavar="P", default="", help="a provider name, or custom")
    add("--model", metavar="M", default="", help="model, or provider:model")
    add("--base-url", metavar="U", default="", help="address of a custom endpoint")
    parser.add_key_option("--key-env", "VAR", "environment variable with the key")
    parser.add_flag("--embedded", help="use the small built-in model")
    args = parser.parse_command(argv, profile)
    if args.embedded and (args.provider or args.base_url or args.key_env):
        parser.error("--embedded goes with --model only")
    return args
