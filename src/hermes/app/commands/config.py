"""/config: show or change a setting."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hermes.app.commands import CommandContext, Reply, command, refuse_agent_tool
from hermes.config import key_path, paths
from hermes.config.load import read_config, read_source
from hermes.config.secrets import mask_secrets
from hermes.config.update import set_value
from hermes.config.yaml_edit import render_value
from hermes.core.errors import ConfigError


@command("config", "show or change a setting", "[KEY [VALUE]]", admin_only=True, needs_model=False)
async def edit_setting(ctx: CommandContext, args: str) -> Reply:
    home = ctx.runtime.setup.home
    key, _, value = args.partition(" ")
    if value.strip():
        refuse_agent_tool("change the configuration")
        change = await asyncio.to_thread(set_value, home, key, value.strip())
        shown = render_value(mask_secrets({change.key: change.new})[change.key])
        return Reply(f"{change.key} = {shown}\nIt counts from the next start of hermes.")
    config = await asyncio.to_thread(read_config, home)
    if key:
        data = mask_secrets(msgspec.to_builtins(config))
        try:
            found = key_path.get_at(data, key_path.parse_key(key, data))
        except KeyError:
            raise ConfigError(f"{key} is not set.") from None
        return Reply(f"{key} = {render_value(found)}")
    rows = list(_list_settings(mask_secrets(await asyncio.to_thread(_read_settings, home))))
    others = "Other settings have their defaults" if rows else "All settings have their defaults"
    rows.append(f"{others} (`hermes config` shows them).")
    rows.append(f"File: {paths.config_file(home)}. /config KEY VALUE changes a setting.")
    return Reply("\n".join(rows))


def _read_settings(home: Path) -> dict[str, Any]:
    """What stands in the file."""
    import yaml

    data = yaml.safe_load(read_source(home) or b"")
    return data if isinstance(data, dict) else {}


def _list_settings(data: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in data.items():
        if isinstance(value, dict) and value:
            yield from _list_settings(value, f"{above}{name}.")
        else:
            yield f"{above}{name} = {render_value(value)}"
