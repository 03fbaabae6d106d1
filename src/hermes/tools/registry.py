"""Finds tools by their file names and imports the selected ones."""

# `tools/NAME.py` defines the tool NAME of the toolset `core`, `tools/SET/NAME.py` one of SET.
# Modules with a leading underscore, and this one, define no tools. `add_modules` names tools that
# other packages define.

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from hermes.config.schema import ToolSelection
from hermes.config.schema import ToolsSection as Settings
from hermes.core.errors import ConfigError
from hermes.core.provider import ToolSpec
from hermes.core.tool import Tool

CORE = "core"
ALL = "all"
NONE = "none"
SEARCH = "tool_search"
_PACKAGE = "hermes.tools"
_REQUIRED_EXTRAS = {"browser": ("playwright", "browser"), "mcp": ("mcp", "mcp")}
"""Toolset or tool -> the module it needs, and the extra that installs it."""
_FILE_TOOLS = ("read_file", "write_file", "patch", "search_files")
_ALIASES = {
    "file": _FILE_TOOLS,
    "files": _FILE_TOOLS,
    "code_execution": ("execute_code",),
}
"""Names from other agents for several tools, or for one with another name here."""
_SMALL_MODEL_TOOLS = frozenset({"terminal", "read_file", "write_file", "patch", "search_files"})
_OPERATOR_TOOLS = frozenset({"cronjob"})
"""Tools that act for the operator; administrators have them in their own chats, too."""
_ADMIN_CHAT_TOOLS = frozenset({"send_message", "discord_server"})
"""Tools that only administrators have, in their own chats."""
_LOCAL_PLATFORMS = frozenset({"", "cli", "library", "acp"})
"""Where only the operator sits."""
_PLATFORM_TOOLS = {"discord_server": "discord"}
"""Tools that sessions of one platform have."""
_UNATTENDED_PLATFORMS = frozenset({"cron", "batch"})
_ATTENDED_TOOLS = frozenset({"clarify", "skill_manage"})
"""Tools that are for a person who is there."""
_READ_ONLY_PLATFORMS = frozenset({"webhook"})
"""Platforms whose messages come from programs: by default they get only tools that read."""


_added_modules: dict[str, dict[str, str]] = {}
"""Toolset -> tool -> module, of other packages."""


def add_modules(toolset: str, modules: Mapping[str, str]) -> None:
    """Offer tools of another package; they are imported when they are first needed."""
    _added_modules.setdefault(toolset, {}).update(modules)
    list_toolsets.cache_clear()


class Tools(Mapping[str, Tool[Any]]):
    """The tools of a session, sorted by name; each is imported when it is first needed."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = dict(sorted(modules.items()))
        self._loaded: dict[str, Tool[Any]] = {}

    def __getitem__(self, name: str) -> Tool[Any]:
        if name not in self._loaded:
            self._loaded[name] = _import_tool(name, self._modules[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def without(self, names: Collection[str]) -> "Tools":
        return Tools({name: m for name, m in self._modules.items() if name not in names})

    def list_specs(self, *, few: bool = False) -> tuple[ToolSpec, ...]:
        """The specs that requests declare: `core`, and the others only when `tool_search` is not
        selected. `few`: only what a small model needs."""
        if few:
            return tuple(self[name].spec for name in self if name in _SMALL_MODEL_TOOLS)
        core = list_toolsets()[CORE]
        searched = SEARCH in self._modules
        return tuple(self[name].spec for name in self if name in core or not searched)


@cache
def list_toolsets() -> Mapping[str, Mapping[str, str]]:
    """Toolset -> tool -> module; imports none of them."""
    root = Path(__file__).parent
    folders = sorted(p.name for p in root.iterdir() if p.is_dir() and p.name[0] not in "_.")
    found = {name: _list_modules(root / name, f"{_PACKAGE}.{name}") for name in folders}
    found = {CORE: _list_modules(root, _PACKAGE), **found}
    for toolset, modules in _added_modules.items():
        found[toolset] = dict(sorted({**found.get(toolset, {}), **modules}.items()))
    return found


def list_toolset_words() -> frozenset[str]:
    """The words for several tools that `select_tools` understands here."""
    present = (s for s in list_toolsets() if not explain_missing_extra("", s))
    return frozenset({*present, *_ALIASES, "terminal"})


def _list_modules(folder: Path, package: str) -> dict[str, str]:
    names = sorted(p.stem for p in folder.iterdir() if p.suffix == ".py" and p.name[0] != "_")
    return {name: f"{package}.{name}" for name in names if f"{package}.{name}" != __name__}


def select_tools(
    toolsets: Sequence[str] | None,
    *,
    platform: str = "",
    settings: Settings | None = None,
    is_admin: bool = False,
) -> Tools:
    """The tools of these toolsets or with these names; by default everything that is on for the
    platform. What was turned off stays off. Raises ConfigError for a name that gives no tool.
    `is_admin`: an administrator is alone in the chat.

    The order depends only on the selection: it is part of the cached prefix of a request.
    """
    settings = settings or Settings()
    if toolsets is None:
        return Tools(
            {
                n: m
                for n, s, m in _list_rows()
                if not explain_absence(n, s, settings, platform, is_admin=is_admin)
            }
        )
    chosen: dict[str, str] = {}
    for word in toolsets:
        if word == NONE:
            continue
        group = _ALIASES.get(word, ())
        rows = [(n, s, m) for n, s, m in _list_rows() if word in (ALL, n, s) or n in group]
        if not rows:
            raise ConfigError(describe_unknown_name(word))
        reasons = [
            _explain_refusal(n, s, settings, platform, is_admin=is_admin) for n, s, _ in rows
        ]
        if all(reasons):
            raise ConfigError(f"{word} cannot be used: {reasons[0]}.")
        chosen.update({n: m for (n, _, m), why in zip(rows, reasons, strict=True) if not why})
    return Tools(chosen)


def explain_absence(
    name: str, toolset: str, settings: Settings, platform: str, *, is_admin: bool = False
) -> str:
    """Why the platform does not have this tool by default; empty when it has."""
    if why := _explain_refusal(name, toolset, settings, platform, is_admin=is_admin):
        return why
    if (
        platform not in _READ_ONLY_PLATFORMS
        or _find_setting(name, toolset, settings.platforms.get(platform))
        or load_tool(name).risk == "read"
    ):
        return ""
    return f"{platform} only reads, unless it is enabled there"


def load_tool(name: str) -> Tool[Any]:
    """The tool with this name, selected or not."""
    module = next(tools[name] for tools in list_toolsets().values() if name in tools)
    return _import_tool(name, module)


def explain_missing_extra(name: str, toolset: str) -> str:
    """Which extra is missing on this machine; empty when none is."""
    module, extra = _REQUIRED_EXTRAS.get(name) or _REQUIRED_EXTRAS.get(toolset) or ("", "")
    if not module or _is_installed(module):
        return ""
    return f"the extra `{extra}` is not installed"


@cache
def _is_installed(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def describe_unknown_name(name: str) -> str:
    """The error sentence for a name that is neither a toolset nor a tool."""
    from difflib import get_close_matches

    known = [*list_toolsets(), *(row[0] for row in _list_rows()), ALL, NONE]
    valid = [other for other in known if other != name]
    near = get_close_matches(name.casefold(), valid, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Valid: {', '.join(valid)}."
    return f"There is no toolset or tool {name!r}. {hint}"


def list_tool_names() -> frozenset[str]:
    """The names of all tools that there are without plugins; imports none of them."""
    return frozenset().union(*list_toolsets().values())


def list_unknown_names(settings: Settings) -> list[str]:
    """Names in the configuration that are neither a toolset nor a tool."""
    known = {name for toolset, tools in list_toolsets().items() for name in (toolset, *tools)}
    selections: list[ToolSelection] = [settings, *settings.platforms.values()]
    words = {word for s in selections for word in (*s.enabled, *s.disabled)}
    return sorted(words - known)


def _list_rows() -> list[tuple[str, str, str]]:
    """Tool, toolset, module."""
    return [
        (name, s, module) for s, tools in list_toolsets().items() for name, module in tools.items()
    ]


def is_allowed(tool: Tool[Any], settings: Settings, platform: str, *, is_selected: bool) -> bool:
    """Whether a platform may have a tool that was made at run time. `is_selected`: by name."""
    on_platform = _find_setting(tool.name, tool.toolset, settings.platforms.get(platform))
    if on_platform is None and _find_setting(tool.name, tool.toolset, settings) is False:
        return False
    reads = platform not in _READ_ONLY_PLATFORMS or tool.risk == "read"
    return bool(on_platform) or (on_platform is None and (reads or is_selected))


def _explain_refusal(
    name: str, toolset: str, settings: Settings, platform: str, *, is_admin: bool
) -> str:
    """Why the tool cannot be used even when it is selected by name; empty when it can."""
    is_operator = is_admin or platform in _LOCAL_PLATFORMS
    is_foreign = (
        (name in _OPERATOR_TOOLS and not is_operator)
        or (name in _ADMIN_CHAT_TOOLS and not is_admin)
        or _PLATFORM_TOOLS.get(name, platform) != platform
    )
    if is_foreign or (platform in _UNATTENDED_PLATFORMS and name in _ATTENDED_TOOLS):
        return f"{platform} sessions do not have it"
    on_platform = _find_setting(name, toolset, settings.platforms.get(platform))
    if on_platform is False:
        return f"turned off for {platform}"
    if on_platform is None and _find_setting(name, toolset, settings) is False:
        return "turned off; `hermes tools enable` turns it on"
    return explain_missing_extra(name, toolset)


def _find_setting(name: str, toolset: str, selection: ToolSelection | None) -> bool | None:
    """Whether the configuration enables the tool; None: not configured. Its own name counts
    before that of its toolset, and disabled before enabled."""
    if selection is None:
        return None
    for word in (name, toolset):
        if word in selection.disabled:
            return False
        if word in selection.enabled:
            return True
    return None


def _import_tool(name: str, module: str) -> Tool[Any]:
    found = getattr(import_module(module), name)
    if not isinstance(found, Tool) or found.name != name:
        raise TypeError(f"{module} does not define the tool {name}")
    return found
