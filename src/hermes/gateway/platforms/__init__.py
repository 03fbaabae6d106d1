"""The messengers: `platforms/NAME.py` defines the platform NAME in its PLATFORM."""

from collections.abc import Collection
from functools import cache
from importlib import import_module
from pathlib import Path

from hermes.config.platforms import PlatformSettings
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import PlatformSpec

HOSTED = ("api_server",)
"""Surfaces of their own that the gateway's process can host."""

DEFAULT = "telegram"
"""What `setup` sets up when no platform is named."""


@cache
def list_names() -> tuple[str, ...]:
    """The names of all platforms, without importing any."""
    return tuple(sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py")))


def load_platform(name: str) -> PlatformSpec:
    spec: PlatformSpec = import_module(f"{__name__}.{name}").PLATFORM
    return spec


def find_token(spec: PlatformSpec, settings: PlatformSettings, secrets: Secrets) -> str:
    """What turns a platform on when its settings do not say: its token, or what stands for it."""
    names = (settings.token_env or spec.variable, spec.alternative)
    return next((value for name in names if name and (value := secrets.get(name))), "")


def require_known(name: str, registered: Collection[str] = ()) -> str:
    """The name of a platform; ConfigError with the nearest one if there is none. `registered` are
    those of plugins."""
    known = (*list_names(), *HOSTED, *registered)
    if name in known:
        return name
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1, 0.6)
    advice = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}."
    raise ConfigError(f"Unknown platform {name}; {advice}")
