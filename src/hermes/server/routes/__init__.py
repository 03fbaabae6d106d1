"""The endpoints: each module defines a tuple ROUTES."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from hermes.server.route import Route


@cache
def list_routes() -> tuple[Route, ...]:
    found: list[Route] = []
    for module in sorted(m.name for m in iter_modules(__path__)):
        found += import_module(f"{__name__}.{module}").ROUTES
    return tuple(found)
