"""`hermes serve`: runs the API server alone."""

from hermes.cli.parser import CommandParser

_EPILOG = """\
Serves the protocols of OpenAI (chat completions, responses) and Anthropic (messages) at
http://HOST:PORT/v1. Settings: platforms.api_server in config.yaml, or API_SERVER_KEY,
API_SERVER_HOST, API_SERVER_PORT. Without a key it serves only your own user on this machine. On
SIGTERM or Ctrl-C it finishes running requests and exits with status 0.

examples:
  hermes serve
  hermes serve --port 0
  API_SERVER_KEY=$(cat key) hermes serve --host 0.0.0.0
"""


def run(argv: list[str], profile: str) -> int:
    from hermes.cli.server_process import add_address_options, run_server

    parser = CommandParser("serve", "Serve the agent over HTTP.", _EPILOG)
    add_address_options(parser)
    return run_server(parser.parse_command(argv, profile))
