"""The check of plugins: whether those that are enabled can be loaded."""

from hermes.app.control.doctor.check import Check
from hermes.config.load import Setup
from hermes.core.hooks import HOOK_KEYWORDS
from hermes.core.text import format_plural


async def check_plugins(setup: Setup) -> Check:
    events = [name for name in setup.config.hooks if name not in HOOK_KEYWORDS]
    unknown = [f"hooks.{name}: there is no such event" for name in events]
    if not setup.config.plugins.enabled:
        return Check("plugins", "failed" if unknown else "ok", "none enabled", tuple(unknown))
    from hermes.app.extensions.plugins import try_loading

    loaded = await try_loading(setup)
    failed = tuple(f"{p.name}: not loaded: {p.problem}" for p in loaded if p.problem)
    text = format_plural(len(loaded), "plugin") + " enabled"
    return Check("plugins", "failed" if failed or unknown else "ok", text, (*failed, *unknown))
