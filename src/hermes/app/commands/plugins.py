"""/plugins: the plugins of this installation and their state."""

import asyncio

from hermes.app.commands import CommandContext, Reply, command


@command("plugins", "list plugins and their state", admin_only=True, needs_model=False)
async def show_plugins(ctx: CommandContext, args: str) -> Reply:
    from hermes.app.extensions.plugin_sources import list_local_plugins
    from hermes.app.extensions.plugins import describe_rows

    setup, plugins = ctx.runtime.setup, ctx.runtime.plugins
    loaded = plugins.loaded if plugins is not None else []
    found = await asyncio.to_thread(list_local_plugins, setup.home)
    found |= {plugin.name: plugin.source for plugin in loaded if plugin.source}
    rows = describe_rows(setup, loaded, found)
    lines = [f"{row['name']} ({row['state']}) {row['description']}".rstrip() for row in rows]
    return Reply("\n".join(lines) or "There are no plugins. See docs/plugins.md.")
