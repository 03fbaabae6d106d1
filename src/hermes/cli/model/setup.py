"""From nothing to a model that answers: finds candidates or probes an address, and saves it."""

import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterator
from getpass import getpass
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from hermes.app.control.model_probe import Greeting, greet_model
from hermes.app.control.model_selection import ModelSelection, save_selection
from hermes.cli.auth.secret_input import read_key
from hermes.cli.log_file import start_logging
from hermes.cli.main import print_stderr
from hermes.cli.startup import load_checked_setup, run_async
from hermes.cli.terminal.download import download_model
from hermes.cli.terminal.picker import PickerRow, pick_row
from hermes.cli.terminal.text import one_line
from hermes.config import dotenv
from hermes.config.env import get_environment
from hermes.config.load import Setup, load_setup
from hermes.config.update import apply_changes, edit_config
from hermes.core.errors import ConfigError
from hermes.llm.auth.key_pool import NO_KEY, Credential
from hermes.llm.endpoints.embedded import (
    default_local_model,
    find_missing_model,
    find_model_file,
    is_engine_installed,
)
from hermes.llm.endpoints.endpoint import CUSTOM, ModelChoice
from hermes.llm.endpoints.local_servers import choose_model, find_servers
from hermes.llm.endpoints.match import choose_wire
from hermes.llm.endpoints.probe import Probe, Prober
from hermes.llm.endpoints.resolver import NOTHING, resolve_chain
from hermes.llm.http.transport import Transport
from hermes.llm.providers import find_provider, provider_index

CandidateKind: TypeAlias = Literal["requested", "configured", "key", "login", "server", "embedded"]
_KEY_PREFIXES = (
    ("sk-ant-", "ANTHROPIC_API_KEY"),
    ("sk-or-", "OPENROUTER_API_KEY"),
    ("sk-proj-", "OPENAI_API_KEY"),
    ("sk-svcacct-", "OPENAI_API_KEY"),
    ("xai-", "XAI_API_KEY"),
    ("gsk_", "GROQ_API_KEY"),
    ("csk-", "CEREBRAS_API_KEY"),
    ("AIza", "GEMINI_API_KEY"),
    ("nvapi-", "NVIDIA_API_KEY"),
    ("hf_", "HF_TOKEN"),
    ("fw_", "FIREWORKS_API_KEY"),
    ("tgp_", "TOGETHER_API_KEY"),
    ("vck_", "AI_GATEWAY_API_KEY"),
)
"""The beginning of a key -> the variable it belongs in."""
_ENDPOINT_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}\Z")
_NOTHING_CHOSEN = "No model was chosen; nothing was saved. To try again, run: hermes setup"
_ANSWER_CHARS = 300


class Candidate(Struct, frozen=True):
    kind: CandidateKind
    choice: ModelChoice
    label: str
    """For people: which model it is and where it comes from."""


async def find_candidates(setup: Setup) -> list[Candidate]:
    """The better ones first. Contacts only servers on this machine and OPENAI_BASE_URL."""
    return [
        *_configured_model(setup),
        *await _environment_endpoint(setup),
        *_models_by_key(setup),
        *_models_by_login(setup),
        *await _local_servers(),
        *_embedded_model(setup),
    ]


def _configured_model(setup: Setup) -> Iterator[Candidate]:
    model = setup.config.model
    if model.default or model.provider or model.base_url:
        name = ":".join(filter(None, (model.provider, model.default))) or model.base_url
        yield Candidate("configured", ModelChoice(), f"{name} (from config.yaml)")


async def _environment_endpoint(setup: Setup) -> list[Candidate]:
    """The endpoint of OPENAI_BASE_URL, with a model that it lists."""
    model, url = setup.config.model, setup.secrets.get("OPENAI_BASE_URL")
    if not url or model.default or model.provider or model.base_url:
        return []
    value = setup.secrets.get("OPENAI_API_KEY")
    key = Credential("OPENAI_API_KEY", value) if value else NO_KEY
    async with Transport() as transport:
        models = (await Prober(transport, key).probe_address(url.rstrip("/"), "")).models
    if not models:
        return [Candidate("configured", ModelChoice(), "the endpoint in OPENAI_BASE_URL")]
    more = f" (and {len(models) - 1} more)" if len(models) > 1 else ""
    choice = ModelChoice(models[0], CUSTOM, url, key.source if value else "")
    return [Candidate("key", choice, f"{models[0]} at {url}{more} (OPENAI_BASE_URL)")]


def _models_by_key(setup: Setup) -> Iterator[Candidate]:
    seen = {setup.config.model.provider}
    for variable, provider in provider_index().key_variables.items():
        spec = find_provider(provider)
        if provider in seen or spec is None or not setup.secrets.get(variable):
            continue
        seen.add(provider)
        if spec.default_model:
            where = setup.secrets.find_source(variable)
            label = f"{provider}:{spec.default_model}, with {variable} ({where})"
            yield Candidate("key", ModelChoice(spec.default_model, provider), label)


def _models_by_login(setup: Setup) -> Iterator[Candidate]:
    with_key = {c.choice.provider for c in _models_by_key(setup)}
    for provider in dict.fromkeys((*provider_index().key_variables.values(), "openai-codex")):
        spec = find_provider(provider)
        if provider in with_key or spec is None or not spec.default_model:
            continue
        if setup.secrets.find_login(spec.name) is not None:
            label = f"{provider}:{spec.default_model}, logged in"
            yield Candidate("login", ModelChoice(spec.default_model, provider), label)


async def _local_servers() -> list[Candidate]:
    found = []
    for server in await find_servers():
        more = f" (and {len(server.models) - 1} more)" if len(server.models) > 1 else ""
        label = f"{server.models[0]} from {server.provider} on this machine{more}"
        found.append(Candidate("server", server.model_choice, label))
    return found


def _embedded_model(setup: Setup) -> Iterator[Candidate]:
    if not is_engine_installed():
        return
    model = default_local_model(setup.secrets)
    downloaded = find_model_file(model, setup.secrets) is not None
    size = "" if downloaded else f" ({model.size // 10**6} MB download)"
    label = f"{model.name}: small built-in model{size}"
    yield Candidate("embedded", ModelChoice(model.name, "local"), label)


def guess_variable(key: str) -> str:
    """The variable that a pasted key belongs in, by its beginning; empty when that is unknown."""
    key = key.strip()
    return next((variable for prefix, variable in _KEY_PREFIXES if key.startswith(prefix)), "")


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


def set_up_model(request: SetupRequest, *, attended: bool) -> bool:
    """Finds, tests and saves a model. False when none answered, which has been reported."""
    setup = load_checked_setup(request.profile, [request.key_env] if request.key_env else [])
    start_logging(setup.home, setup.secrets.redactable_values())
    if (setup.home / "state.db").exists():
        print("This home was created by the original Hermes Agent; its sessions stay unchanged.")
    if request.is_specific:
        return _try_request(setup, request, attended=attended)
    return _try_candidates(setup, request, attended=attended)


def _try_request(setup: Setup, request: SetupRequest, *, attended: bool) -> bool:
    if request.base_url:
        request = _complete_endpoint(setup, request, attended=attended)
    candidate = _requested_candidate(setup, request)
    # What cannot be called is a usage error.
    resolve_chain(setup.config, setup.secrets, candidate.choice)
    return _try_candidate(setup, candidate, save=True)


def _try_candidates(setup: Setup, request: SetupRequest, *, attended: bool) -> bool:
    found = run_async(find_candidates(setup))
    if found:
        print("Found:")
    for number, candidate in enumerate(found, 1):
        print(f"  {number}. {candidate.label}")
    if attended and all(candidate.kind == "embedded" for candidate in found):
        answered = _try_pasted_key(request.profile, has_embedded=bool(found))
        if answered is not None:
            return answered
    order = _order_candidates(found, attended=attended)
    for candidate in order:
        # As the last resort, the embedded model is not saved: a key that comes later replaces it.
        last_resort = candidate.kind == "embedded" and candidate is order[-1]
        save = candidate.kind != "configured" and not last_resort
        if _try_candidate(setup, candidate, save=save):
            return True
    print_stderr("None of them answered; nothing was saved." if found else NOTHING)
    return False


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


def _try_pasted_key(profile: str, *, has_embedded: bool) -> bool | None:
    """Asks for a key and tests it: whether a model answered. None: no key was given."""
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
    answered = _try_candidate(setup, candidate, save=True)
    if answered:
        dotenv.set_variable(setup.home, variable, key)
        print(f"The key is stored in {setup.home / '.env'} as {variable}, readable only by you.")
    else:
        print("The key was not stored.")
    return answered


def _try_candidate(setup: Setup, candidate: Candidate, *, save: bool) -> bool:
    """Whether the model said hello; if it did not, that has been reported."""

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
        return False
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
    return True


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


def add_endpoint(setup: Setup, args: Namespace) -> ModelSelection:
    """Probes the endpoint and saves it. ConfigError: nothing was changed."""
    url = args.name.rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ConfigError("Give the address of the endpoint, such as http://127.0.0.1:8000/v1.")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigError("The address must not contain a user name or password; use --key-env.")
    usable = _ENDPOINT_NAME.match(args.called) and find_provider(args.called) is None
    if args.called and not usable:
        raise ConfigError(f"{args.called!r} cannot be used as a name; choose another one.")
    attended = os.isatty(0) and os.isatty(2)
    variable, key = _read_credential(setup, args.key_env or "", attended=attended)
    found = probe_endpoint(url, key, args.api_mode)
    if found.needs_key and not variable and attended:
        variable, key = _ask_credential(setup, args.called)
        found = probe_endpoint(url, key, args.api_mode)
    if not found.wire:
        raise ConfigError(f"{url} is not a model endpoint: {found.problem}. Nothing was changed.")
    if found.base_url != url:
        _confirm_version(found, attended=attended)
    model = args.model or pick_listed_model(found, attended=attended)
    if variable and setup.secrets.get(variable) is None:
        dotenv.set_variable(setup.home, variable, key.value)
    return _save_endpoint(setup, args, found, variable, model)


def _read_credential(setup: Setup, variable: str, *, attended: bool) -> tuple[str, Credential]:
    if not variable:
        return "", NO_KEY
    value = setup.secrets.get(variable)
    if value is None and not attended:
        raise ConfigError(f"{variable} is set neither in the environment nor in .env.")
    if value is None:
        value = read_key(f"Key for {variable}", "")
    return variable, Credential(variable, value)


def _ask_credential(setup: Setup, name: str) -> tuple[str, Credential]:
    default = f"{(name or CUSTOM).upper().replace('-', '_')}_API_KEY"
    question = f"The endpoint needs a key. Store it as [{default}]: "
    print(question, end="", file=sys.stderr, flush=True)
    variable = sys.stdin.readline().strip() or default
    if not variable.isidentifier() or not variable.isascii():
        raise ConfigError("That is not a variable name; nothing was changed.")
    return _read_credential(setup, variable, attended=True)


def probe_endpoint(url: str, key: Credential, api_mode: str) -> Probe:
    async def probe_url() -> Probe:
        async with Transport() as transport:
            return await Prober(transport, key).probe_address(url, api_mode)

    return run_async(probe_url())


def _confirm_version(found: Probe, *, attended: bool) -> None:
    """Confirms the address with the /v1 that the user left out."""
    if attended:
        text = f"/v1 is missing: the endpoint is {found.base_url}. Use that? [Y/n] "
        print(text, end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("n", "no"):
            raise ConfigError("Nothing was changed.")
    else:
        print_stderr(f"/v1 was missing; using {found.base_url}")


def pick_listed_model(found: Probe, *, attended: bool) -> str:
    """The only model, or the one the user picks."""
    if len(found.models) == 1:
        return found.models[0]
    if found.models and attended:
        chosen = pick_row("Model", [PickerRow(name) for name in found.models])
        if chosen is None:
            raise ConfigError("Nothing was changed.")
        return chosen
    if not found.models:
        raise ConfigError(f"{found.base_url} lists no models; name one with --model.")
    more = f" and {len(found.models) - 10} more" if len(found.models) > 10 else ""
    listed = ", ".join(found.models[:10])
    raise ConfigError(f"Which model? Name one with --model: {listed}{more}.")


def _save_endpoint(
    setup: Setup, args: Namespace, found: Probe, variable: str, model: str
) -> ModelSelection:
    """Under its own name, or as the custom endpoint."""
    default = choose_wire(found.base_url, "", CUSTOM)
    mode = found.wire if found.wire != default else ""
    if not args.called:
        selection = ModelSelection(CUSTOM, model, found.base_url, mode, variable)
        save_selection(setup, selection)
        return selection
    row = {"base_url": found.base_url, "api_mode": mode or None, "api_key_env": variable or None}
    apply_changes(setup.home, {f"providers.{args.called}.{key}": row[key] for key in row})
    selection = ModelSelection(args.called, model)
    save_selection(load_setup(setup.profile), selection)
    return selection
