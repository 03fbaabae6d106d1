"""The endpoints: each module defines a tuple ROUTES."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from hermes.server.route import Route


@cache
def list_routes(*, dashboard: bool = False) -> tuple[Route, ...]:
    """The routes of the API; those of the dashboard are imported only where it is on."""
    names = sorted(module.name for module in iter_modules(__path__) if not module.ispkg)
    if dashboard:
        package = import_module(f"{__name__}.dashboard")
        names += [f"dashboard.{module.name}" for module in iter_modules(package.__path__)]
    found: list[Route] = []
    for name in names:
        found += import_module(f"{__name__}.{name}").ROUTES
    return tuple(found)
