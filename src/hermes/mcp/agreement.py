"""What the operator agreed to about one server, compared with what it offers."""

from hermes.core.errors import ConfigError, ToolError
from hermes.core.text import format_plural
from hermes.mcp.definitions import ToolDefinition
from hermes.mcp.pins import PinStore, ServerPin
from hermes.mcp.server_config import ServerConfig


class Agreement:
    """The first use of a server agrees to its tools; what is new or changes later is off."""

    def __init__(self, config: ServerConfig, pins: PinStore) -> None:
        self.changed: list[ToolDefinition] = []
        """Tools that are off because they are new or changed."""
        self.has_other_source = False
        """Whether its command or address is not the one that was agreed to."""
        self.was_checked = False
        """Whether it was compared with what the server offers."""
        self._config = config
        self._pins = pins
        self._agreed: list[ToolDefinition] | None = None
        self._shown: set[str] = set()

    def read_tools(self) -> list[ToolDefinition]:
        """The tools that may be used; before the server was started, as they were last seen."""
        if self._agreed is None:
            self._agreed = []
            try:
                pin = self._read_pin()
            except ConfigError:  # said when the server is started
                return self._agreed
            if pin is not None and pin.source == self._config.digest:
                known = self._pins.read_definitions(self._config.key, pin)
                self._agreed = self._filter_tools(known)
        return self._agreed

    def count_tools(self) -> int | None:
        """How many tools were agreed to; None: the server was never used."""
        if self.was_checked and self._agreed is not None:
            return len(self._agreed)
        pin = self._read_pin()
        return len(pin.tools) if pin else None

    def check_tools(self, offered: list[ToolDefinition]) -> list[tuple[str, str]]:
        """Compare what the server offers with what was agreed to. Notices that were not given yet:
        code and text."""
        found, notices = self._filter_tools(offered), []
        pin = self._read_pin()
        if pin is None:
            pin = self._pins.save_pin(self._config.key, self._config.digest, found)
            count = format_plural(len(found), "tool")
            text = (
                f"MCP {self._config.name}: {count}. If they change, they are off until you agree."
            )
            notices.append(("mcp_pinned", text))
        self._apply_pin(pin, found)
        if sentence := self.describe_changes():
            notices.append(("mcp_changed", sentence))
        fresh = [notice for notice in notices if notice[1] not in self._shown]
        self._shown.update(text for _, text in fresh)
        return fresh

    def save_tools(self, offered: list[ToolDefinition]) -> None:
        """Agree to everything that is offered now."""
        found = self._filter_tools(offered)
        pin = self._pins.save_pin(self._config.key, self._config.digest, found)
        self._apply_pin(pin, found)

    def read_pinned(self) -> dict[str, ToolDefinition]:
        """The tools as they were agreed to, as far as their definitions are at hand."""
        pin = self._read_pin()
        known = self._pins.read_definitions(self._config.key, pin) if pin else []
        return {tool.name: tool for tool in known}

    def describe_changes(self) -> str:
        """The sentence about tools that are off; empty: all are as agreed."""
        name = self._config.name
        if self.has_other_source:
            return f"MCP {name} is not what you agreed to; it is off: hermes mcp review {name}."
        if not self.changed:
            return ""
        off = "it is" if len(self.changed) == 1 else "they are"
        return (
            f"MCP {name} changed {format_plural(len(self.changed), 'tool')} since you agreed; "
            f"{off} off: hermes mcp review {name}."
        )

    def require_tool(self, tool: ToolDefinition) -> None:
        """ToolError if the tool is off or gone."""
        if any(
            known.name == tool.name and known.digest == tool.digest for known in self.read_tools()
        ):
            return
        if self.has_other_source or any(other.name == tool.name for other in self.changed):
            raise ToolError(f"{tool.name} was not called. {self.describe_changes()}")
        raise ToolError(f"MCP {self._config.name} no longer has the tool {tool.name}.")

    def _apply_pin(self, pin: ServerPin, found: list[ToolDefinition]) -> None:
        self.has_other_source = pin.source != self._config.digest
        agreed, self.changed = pin.sort_tools(found)
        if self.has_other_source:
            agreed, self.changed = [], found
        else:
            names = {tool.name for tool in agreed}
            old = self._pins.read_definitions(
                self._config.key, pin
            )  # shown when changes are reviewed
            kept = [tool for tool in old if tool.name not in names]
            self._pins.save_definitions(self._config.key, [*agreed, *kept])
        if agreed != self._agreed:  # the same object means the same tools
            self._agreed = agreed
        self.was_checked = True

    def _read_pin(self) -> ServerPin | None:
        return self._pins.read_all().get(self._config.key)

    def _filter_tools(self, definitions: list[ToolDefinition]) -> list[ToolDefinition]:
        only = self._config.settings.tools
        return [
            tool
            for tool in definitions
            if (not only.include or tool.name in only.include) and tool.name not in only.exclude
        ]
