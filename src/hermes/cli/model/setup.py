"""From nothing to a model that answers: finds candidates, tests them, and saves the one chosen."""

import sys
from getpass import getpass

from msgspec import Struct, structs

from hermes.app.model_probe import Greeting, greet_model
from hermes.cli.log_file import start_logging
from hermes.cli.main import print_stderr
from hermes.cli.model.candidates import Candidate, find_candidates, guess_variable
from hermes.cli.model.custom import pick_listed_model, probe_endpoint
from hermes.cli.startup import load_checked_setup, run_async
from hermes.cli.terminal.download import download_model, find_missing_model
from hermes.cli.terminal.text import one_line
from hermes.config import dotenv, paths
from hermes.config.env import get_environment
from hermes.config.load import Setup, load_setup
from hermes.config.update import edit_config
from hermes.core.errors import ConfigError
from hermes.llm.auth.key_pool import NO_KEY, Credential
from hermes.llm.endpoints.endpoint import CUSTOM, ModelChoice
from hermes.llm.endpoints.local_servers import choose_model, find_servers
from hermes.llm.endpoints.resolver import NOTHING, resolve_chain
from hermes.llm.http.transport import Transport
from hermes.llm.providers import find_provider, provider_index

_NOTHING_CHOSEN = "No model was chosen; nothing was saved. To try again, run: hermes setup"
_ANSWER_CHARS = 300


class SetupRequest(Struct, frozen=True):
    """What the user asks for; everything empty: the best model that is found."""

    profile: str = ""
    provider: str = ""
    model: str = ""
    base_url: str = ""
    key_env: str = ""
    embedded: bool = False

    @property
    def is_specific(self) -> bool:
        named = self.provider or self.model or self.base_url or self.key_env
        return bool(named or self.embedded)


def set_up_model(request: SetupRequest, *, attended: bool) -> bool | None:
    """Finds, tests and saves a model. Whether its hello is the first conversation of this home;
    None when no model answered, which has been reported."""
    setup = load_checked_setup(request.profile, [request.key_env] if request.key_env else [])
    start_logging(setup.home, setup.secrets.redactable_values())
    if (setup.home / "state.db").exists():
        print("This home was created by the original Hermes Agent; its sessions stay unchanged.")
    fresh = not paths.database_file(setup.home).exists()
    if request.is_specific:
        session = _try_request(setup, request, attended=attended)
    else:
        session = _try_candidates(setup, request, attended=attended)
    return fresh if session else None


def _try_request(setup: Setup, request: SetupRequest, *, attended: bool) -> str:
    if request.base_url:
        request = _complete_endpoint(setup, request, attended=attended)
    candidate = _requested_candidate(setup, request)
    # What cannot be called is a usage error.
    resolve_chain(setup.config, setup.secrets, candidate.choice)
    return _try_candidate(setup, candidate, save=True)


def _try_candidates(setup: Setup, request: SetupRequest, *, attended: bool) -> str:
    found = run_async(find_candidates(setup))
    if found:
        print("Found:")
    for number, candidate in enumerate(found, 1):
        print(f"  {number}. {candidate.label}")
    if attended and all(candidate.kind == "embedded" for candidate in found):
        session = _try_pasted_key(request.profile, has_embedded=bool(found))
        if session is not None:
            return session
    order = _order_candidates(found, attended=attended)
    for candidate in order:
        # As the last resort, the embedded model is not saved: a key that comes later replaces it.
        last_resort = candidate.kind == "embedded" and candidate is order[-1]
        save = candidate.kind != "configured" and not last_resort
        if session := _try_candidate(setup, candidate, save=save):
            return session
    print_stderr("None of them answered; nothing was saved." if found else NOTHING)
    return ""


def _requested_candidate(setup: Setup, request: SetupRequest) -> Candidate:
    """The model that was asked for; where only a server on this machine or one of its models was
    named, the server says what it has."""
    provider = "local" if request.embedded else request.provider
    choice = ModelChoice(request.model, provider, request.base_url, request.key_env)
    if not request.base_url and not request.model and provider in provider_index().local_servers:
        servers = run_async(find_servers([provider]))
        choice = servers[0].model_choice if servers else choice
    elif not provider:
        choice = run_async(choose_model(setup.config, setup.secrets, choice))
    label = ":".join(filter(None, (choice.provider, choice.model)))
    return Candidate("requested", choice, label or request.base_url or request.key_env)


def _complete_endpoint(setup: Setup, request: SetupRequest, *, attended: bool) -> SetupRequest:
    """Adds a missing /v1 to the address, and the model where none was named. ConfigError: the
    endpoint does not list its models, or lists several."""
    url = request.base_url.rstrip("/")
    if request.model and url.count("/") > 2:
        return request
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"The address {url!r} must begin with http:// or https://.")
    value = setup.secrets.get(request.key_env) if request.key_env else None
    found = probe_endpoint(url, Credential(request.key_env, value) if value else NO_KEY, "")
    if found.needs_key and value is None:
        raise ConfigError(f"{url} needs a key: name the variable that holds it with --key-env.")
    if not found.wire and not found.models:
        if request.model:
            return request
        problem = f"does not list its models ({found.problem})"
        raise ConfigError(f"{url} {problem}: name one with --model.")
    if found.base_url != url:
        print_stderr(f"/v1 was missing; using {found.base_url}")
    model = request.model or pick_listed_model(found, attended=attended)
    return structs.replace(request, base_url=found.base_url, model=model)


def _order_candidates(found: list[Candidate], *, attended: bool) -> list[Candidate]:
    """The order in which they are tried: the one the user picks first."""
    if not attended or len(found) < 2:
        return found
    while True:
        print(f"Which one? [1-{len(found)}, Enter: 1] ", end="", flush=True)
        line = sys.stdin.readline()
        word = line.strip() or "1"
        if not line or (word.isdecimal() and 1 <= int(word) <= len(found)):
            picked = found[int(word) - 1] if line else found[0]
            return [picked, *(c for c in found if c is not picked)]


def _try_pasted_key(profile: str, *, has_embedded: bool) -> str | None:
    """Asks for a key and tests it: the session it answered in, or "". None: no key was given."""
    otherwise = "for the small built-in model" if has_embedded else "to quit"
    try:
        key = getpass(f"Paste an API key (it is not shown), or press Enter {otherwise}: ").strip()
    except EOFError:
        print()
        raise ConfigError(_NOTHING_CHOSEN) from None
    except KeyboardInterrupt:
        print(f"\n{_NOTHING_CHOSEN}")
        raise
    if not key:
        return None
    variable = guess_variable(key)
    while variable not in provider_index().key_variables:
        question = "Which provider is this key for? (openai, anthropic, openrouter, ...) "
        print(question, end="", flush=True)
        if not (line := sys.stdin.readline()):
            raise ConfigError(_NOTHING_CHOSEN)
        spec = find_provider(line.strip())
        variable = spec.keys[0] if spec and spec.keys else ""
    provider = provider_index().key_variables[variable]
    spec = find_provider(provider)
    assert spec is not None
    setup = load_setup(profile, {**get_environment(), variable: key})
    label = f"{provider}:{spec.default_model}"
    candidate = Candidate("key", ModelChoice(spec.default_model, provider), label)
    session = _try_candidate(setup, candidate, save=True)
    if session:
        dotenv.set_variable(setup.home, variable, key)
        print(f"The key is stored in {setup.home / '.env'} as {variable}, readable only by you.")
    else:
        print("The key was not stored.")
    return session


def _try_candidate(setup: Setup, candidate: Candidate, *, save: bool) -> str:
    """The session in which the model said hello; empty when it did not, which has been reported."""

    async def prepare_endpoint(base_url: str, transport: Transport) -> None:
        if model := find_missing_model(base_url):
            print(f"Downloading {model.name} ...", flush=True)
            await download_model(model, transport)
            print("Testing it ...", flush=True)
        else:
            print(f"Testing {candidate.label} ...", flush=True)

    greeting = run_async(greet_model(setup, candidate.choice, prepare_endpoint))
    if greeting.error:
        print_stderr(greeting.error)
        return ""
    custom = greeting.provider == CUSTOM
    name = greeting.model if custom else f"{greeting.provider}:{greeting.model}"
    text = one_line(greeting.text, _ANSWER_CHARS)
    print(f"{name} says: {text}  ({greeting.seconds:.1f} s)")
    if save:
        _save_model(setup, candidate.choice, greeting)
    elif candidate.kind == "embedded":
        advice = "run `hermes setup` or set an API key"
        print(f"Hermes will use it until you connect a better one: {advice}.")
    print('Ready. `hermes` starts a conversation; `hermes chat -q "…"` asks a single question.')
    return greeting.session


def _save_model(setup: Setup, choice: ModelChoice, greeting: Greeting) -> None:
    """Saves it in config.yaml; settings that belong to another model are removed."""
    old = setup.config.model
    with edit_config(setup.home) as put:
        put("model.provider", greeting.provider)
        put("model.default", greeting.model)
        saved = ["model.provider", "model.default"]
        for name, new in (("base_url", choice.base_url), ("api_key_env", choice.api_key_env)):
            if new or getattr(old, name):
                put(f"model.{name}", new)
                saved.append(f"model.{name}")
        if old.api_mode and old.provider != greeting.provider:
            put("model.api_mode", "null")
    print(f"Saved in {setup.home / 'config.yaml'}: {', '.join(saved)}.")
