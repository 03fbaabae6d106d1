"""What the tools of a session may see and change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.core.errors import ConfigError, ToolError
from hermes.core.escalation import Access
from hermes.core.tool import ToolContext, Workspace
from hermes.tools._files.paths import find_user_home

if TYPE_CHECKING:
    from hermes.exec.sandbox import SandboxPolicy


def derive_policy(workspace: Workspace) -> SandboxPolicy:
    """What the tools of a session may read, write and plant, commands and file tools alike."""
    from hermes.exec.sandbox import build_policy

    try:
        found = build_policy(
            workspace.sandbox, workspace.cwd, workspace.home, find_user_home(workspace)
        )
    except ConfigError as error:
        raise ToolError(f"{error} Nothing was run.") from None
    if not (workspace.readable or workspace.hidden):
        return found
    return structs.replace(
        found,
        visible=(*found.visible, *workspace.readable),
        hidden=(*found.hidden, *workspace.hidden),
    )


async def policy(ctx: ToolContext) -> SandboxPolicy | None:
    """None: they are not confined."""
    access = ctx.verdict.access or Access()
    if ctx.workspace.sandbox == "full-access" or access.unconfined:
        return None
    from hermes.config.paths import cache_folder
    from hermes.exec.sandbox import add_grants, require_confinement
    from hermes.exec.sandbox_probe import probe_tier

    tier = await probe_tier(cache_folder(ctx.workspace.home))
    try:
        if ctx.workspace.sandbox_required:
            require_confinement(tier)
        network = await ctx.egress() if ctx.egress and tier.level < 3 else ""
    except ConfigError as error:
        raise ToolError(f"{error} Nothing was run.") from None
    _check_paths(access)
    found = derive_policy(ctx.workspace)
    return add_grants(
        structs.replace(found, network=network),
        find_user_home(ctx.workspace),
        read=map(Path, access.read or ()),
        write=map(Path, access.write or ()),
    )


def _check_paths(access: Access) -> None:
    """Raise ToolError when a path leads elsewhere than when it was approved. The launcher makes
    sure of it; here the path is named."""
    for path in (*(access.read or ()), *(access.write or ())):
        try:
            real = os.path.realpath(path)
        except OSError:  # it was just being exchanged
            real = ""
        if real != path:
            raise ToolError(f"{path} was replaced after it was approved. Nothing was run.")
