"""The endpoints: each module defines a tuple ROUTES."""

from functools import cache, partial
from importlib import import_module
from pkgutil import iter_modules

from hermes.server.route import Route

_PACKAGES = ("dashboard", "operator")
"""Of the dashboard; they are imported when a path of theirs is asked for."""


def list_routes(*, dashboard: bool = False) -> tuple[Route, ...]:
    """The routes of the API; those of the dashboard are imported only where it is on."""
    return sum(map(import_routes, ("", *_PACKAGES) if dashboard else ("",)), ())


@cache
def import_routes(package: str) -> tuple[Route, ...]:
    """The routes of one package of this; empty: of the modules in here."""
    name = f"{__name__}.{package}".rstrip(".")
    modules = iter_modules(import_module(name).__path__)
    names = sorted(module.name for module in modules if not module.ispkg)
    return sum((tuple(import_module(f"{name}.{found}").ROUTES) for found in names), ())


IMPORTS = tuple(partial(import_routes, package) for package in _PACKAGES)
"""Import the routes of the dashboard."""
