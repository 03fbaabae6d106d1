"""/config: show or change a setting."""

import asyncio

import msgspec

from hermes.app.commands import CommandContext, Reply, command, refuse_agent_tool
from hermes.config import key_path, paths
from hermes.config.load import read_config
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
    data = mask_secrets(msgspec.to_builtins(await asyncio.to_thread(read_config, home)))
    if key:
        try:
            found = key_path.get_at(data, key_path.parse_key(key, data))
        except KeyError:
            raise ConfigError(f"{key} is not set.") from None
        return Reply(f"{key} = {render_value(found)}")
    rows = [f"{name}: {render_value(section)}" for name, section in data.items() if section]
    rows.append(f"File: {paths.config_file(home)}. /config KEY VALUE changes a setting.")
    return Reply("\n".join(rows))
