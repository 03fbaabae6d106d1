"""The check of plugins and hooks: whether those that are enabled can be loaded."""

from hermes.app.control.doctor.check import Check
from hermes.config.load import Setup
from hermes.core.text import format_plural


async def check_plugins(setup: Setup) -> Check:
    from hermes.app.extensions.shell_hooks import list_hook_problems

    wrong = list_hook_problems(setup.config.hooks)
    if not setup.config.plugins.enabled:
        return Check("plugins", "failed" if wrong else "ok", "none enabled", tuple(wrong))
    from hermes.app.extensions.plugins import try_loading

    loaded = await try_loading(setup)
    failed = tuple(f"{p.name}: not loaded: {p.problem}" for p in loaded if p.problem)
    text = format_plural(len(loaded), "plugin") + " enabled"
    return Check("plugins", "failed" if failed or wrong else "ok", text, (*failed, *wrong))
