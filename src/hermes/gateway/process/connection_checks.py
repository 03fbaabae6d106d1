"""Checks of the messengers: their settings, their tokens, and the gateway that serves them."""

import asyncio
from pathlib import Path

from hermes.app.control.doctor.check import Check
from hermes.config.load import Setup
from hermes.config.platforms import is_enabled, read_platform
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import PendingStep

_CALL_SECONDS = 15.0


async def check_messengers(setup: Setup) -> list[Check]:
    """One real call with the token of each messenger that is on, and the gateway itself."""
    from hermes.gateway.platforms import list_names, require_known

    try:
        for name in setup.config.platforms:
            require_known(name)
    except ConfigError as error:
        return [Check("messengers", "failed", str(error))]
    found = await asyncio.gather(*(_check_platform(setup, name) for name in list_names()))
    checks = [check for check in found if check is not None]
    return [*checks, _check_gateway(setup.home)] if checks else []


async def _check_platform(setup: Setup, name: str) -> Check | None:
    from hermes.gateway.platforms import find_token, load_platform

    label = f"messenger {name}"
    try:
        spec = load_platform(name)
        settings = read_platform(name, spec.settings, setup.config, setup.secrets)
        if not is_enabled(settings, find_token(spec, settings, setup.secrets)):
            return None
        if spec.check is None:
            spec.open(settings, setup.secrets)
            return Check(label, "ok", "its settings are complete; nothing was called")
        async with asyncio.timeout(_CALL_SECONDS):
            who = await spec.check(settings, setup.secrets)
    except PendingStep as step:
        return Check(label, "failed", f"the token works, but more is needed: {step}")
    except ConfigError as error:
        return Check(label, "failed", str(error).replace(" Nothing was saved.", ""))
    except ImportError as error:
        return Check(label, "failed", f"a package is missing: {error.name}")
    except TimeoutError:
        return Check(label, "failed", f"it did not answer within {_CALL_SECONDS:.0f} s")
    return Check(label, "ok", f"the token works: {who}")


def _check_gateway(home: Path) -> Check:
    from hermes.gateway.process.state_file import read_status

    found = read_status(home)
    if found is None or not found["running"]:
        text = "not running, so messages wait; run: hermes gateway start"
        return Check("gateway", "note", text)
    if found["stalled"]:
        text = f"pid {found['pid']} has not reported for more than 30 s; see its log"
        return Check("gateway", "failed", text)
    troubles = tuple(
        f"{name}: {status['state']} ({status['error_message']})"
        for name, status in found["platforms"].items()
        if status["state"] in ("retrying", "fatal")
    )
    text = f"running (pid {found['pid']})"
    return Check("gateway", "note" if troubles else "ok", text, troubles)
