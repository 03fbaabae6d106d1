"""Embedded models as endpoints: which file a name means; nothing is downloaded or started."""

from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from hermes.config.paths import models_folders
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.core.message import Target
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.http.watchdog import Timeouts
from hermes.llm.local.models import DEFAULT, MODELS, LocalModel, find_model
from hermes.llm.local.puller import is_complete
from hermes.llm.local.uri import ServedModel, build_uri, is_embedded_endpoint, parse_uri
from hermes.llm.provider_spec import ProviderSpec, overlay_quirks

MODULE = "xllamacpp"
_OTHER_CONTEXT = 8192
_TIMEOUTS = Timeouts(ttfb=900.0, stale=300.0, total=3600.0)
"""A small machine takes minutes to read a long prompt, and sends nothing meanwhile."""
INSTALL = "pip install 'hermes-runtime[local]'"
NO_ENGINE = (
    f"The embedded model needs the extra `local`: {INSTALL}, then `hermes model pull {DEFAULT}`."
)
FALLBACK_NOTE = (
    "No API key found, so you are talking to a small local model ({title}). It makes mistakes. "
    "For a better one, set a key (e.g. OPENROUTER_API_KEY, ANTHROPIC_API_KEY or OPENAI_API_KEY) in "
    "the environment or in .env, or set model.base_url."
)


class TokenLimits(Struct, frozen=True):
    """Configured limits; None: the model's own."""

    context: int | None = None
    output: int | None = None


def is_engine_installed() -> bool:
    return find_spec(MODULE) is not None


def default_local_model(secrets: Secrets) -> LocalModel:
    """The model to use when none is named: the default, unless only another is downloaded."""
    standard = find_model(DEFAULT)
    assert standard is not None
    downloaded = [m for m in MODELS if m.tools and find_model_file(m, secrets) is not None]
    return standard if standard in downloaded or not downloaded else downloaded[0]


def build_endpoint(
    spec: ProviderSpec, model: str, secrets: Secrets, limits: TokenLimits, note: str = ""
) -> ModelEndpoint:
    """The endpoint of an embedded model. ConfigError says what is missing; the file of a known
    model may be, as it is downloaded before the first call."""
    if not is_engine_installed():
        raise ConfigError(NO_ENGINE)
    known = find_model(model)
    if known is not None:
        file = find_model_file(known, secrets) or models_folders(secrets.get)[0] / known.file_name
    elif "/" in model or model.endswith(".gguf"):
        file = Path(model).expanduser().absolute()
        if not file.is_file():
            raise ConfigError(f"The model file {file} does not exist.")
    else:
        names = ", ".join(m.name for m in MODELS)
        raise ConfigError(f"Unknown embedded model {model!r}: use one of {names}, or a .gguf file.")
    context = limits.context or (known.context if known else _OTHER_CONTEXT)
    quirks = spec.quirks_for(known.name if known else file.name)
    if known is not None and not known.tools:
        quirks = overlay_quirks(quirks, {"tools": False})
    return ModelEndpoint(
        Target(spec.name, known.name if known else str(file), spec.wire),
        build_uri(ServedModel(str(file), context)),
        quirks=quirks,
        auth="none",
        timeouts=_TIMEOUTS,
        context_length=context,
        has_configured_context=bool(limits.context),
        max_output=limits.output,
        note=note.format(title=known.title if known else file.name),
    )


def find_model_file(model: LocalModel, secrets: Secrets) -> Path | None:
    """The downloaded file of a model; None: it is not there."""
    files = [folder / model.file_name for folder in models_folders(secrets.get)]
    return next((file for file in files if is_complete(file, model)), None)


def find_missing_model(base_url: str) -> LocalModel | None:
    """The embedded model behind an endpoint whose file is not downloaded yet."""
    if not is_embedded_endpoint(base_url):
        return None
    served, _ = parse_uri(base_url)
    known = find_model(Path(served.file).name)
    return known if known and not is_complete(Path(served.file), known) else None
