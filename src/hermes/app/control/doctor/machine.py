"""Checks of the machine: its sandbox, programs, browser and optional packages."""

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import apsw

from hermes.app.control.doctor.check import Check, CheckState
from hermes.config.env import get_environment, get_platform_name
from hermes.config.load import Setup
from hermes.config.paths import cache_folder
from hermes.core.errors import ToolError
from hermes.exec.chromium import find_browser
from hermes.exec.sandbox import describe_tier
from hermes.exec.sandbox_probe import BWRAP_PATHS, probe_tier
from hermes.store.connection import MIN_SQLITE_VERSION
from hermes.version import VERSION

_PROGRAMS = {
    "git": ("git", "no checkpoints: changed files cannot be restored"),
    "ripgrep": ("rg", "search_files is slower"),
    "bubblewrap": ("bwrap", "commands are confined less strongly"),
}
_EXTRAS = {
    "trafilatura": "web: web pages are read as plain text",
    "pypdf": "web: no PDFs from the web",
    "playwright": "browser: no browser tools",
    "botocore": "bedrock: Bedrock needs a bearer key",
    "xllamacpp": "local: no embedded model",
}


def check_version() -> Check:
    python = ".".join(map(str, sys.version_info[:3]))
    machine = f"{get_platform_name()} {os.uname().release} {os.uname().machine}"
    return Check("version", "ok", f"hermes {VERSION}, Python {python}, {machine}")


def check_sqlite() -> Check:
    found = apsw.sqlite_lib_version()
    if tuple(map(int, found.split("."))) < MIN_SQLITE_VERSION:
        least = ".".join(map(str, MIN_SQLITE_VERSION))
        text = f"{found} can corrupt databases; {least} or newer is needed"
        return Check("sqlite", "failed", text)
    return Check("sqlite", "ok", f"{found} (apsw {apsw.apsw_version()})")


async def check_sandbox(setup: Setup | None) -> Check:
    cache = cache_folder(setup.home) if setup is not None else None
    tier = await probe_tier(cache, fresh=True)
    head, *details = describe_tier(tier)
    text = head.partition(": ")[2]
    state: CheckState = "ok" if tier.level == 1 else "note"
    if setup is not None and setup.config.sandbox.mode == "full-access":
        state, text = "note", f"{text}; turned off by sandbox.mode"
    elif tier.level == 3 and setup is not None and setup.config.sandbox.required:
        state = "failed"
    return Check(f"sandbox tier {tier.level}", state, text, tuple(map(str.strip, details)))


def check_programs() -> Iterator[Check]:
    path = get_environment().get("PATH", os.defpath)
    for name, (words, loss) in _PROGRAMS.items():
        candidates = BWRAP_PATHS if words == "bwrap" else words.split()
        found = next(filter(None, (shutil.which(word, path=path) for word in candidates)), None)
        yield Check(name, "ok" if found else "note", found or f"not found: {loss}")


async def check_browser(setup: Setup | None) -> Check:
    configured = setup.config.browser.executable if setup is not None else ""
    try:
        found = find_browser(configured, get_environment())
    except ToolError as error:
        return Check("chromium", "failed" if configured else "note", f"no browser tools: {error}")
    if os.geteuid() != 0:
        return Check("chromium", "ok", found)
    if (await probe_tier()).level == 1:
        why = "root cannot use Chromium's own sandbox: it runs with --no-sandbox in bubblewrap"
        return Check("chromium", "ok", found, (why,))
    why = "as root it runs with --no-sandbox and is not confined: use another user"
    return Check("chromium", "note", found, (why,))


def check_extras() -> Iterator[Check]:
    for module, text in _EXTRAS.items():
        extra, _, loss = text.partition(": ")
        missing = f"not installed (extra `{extra}`): {loss}"
        there = find_spec(module) is not None
        yield Check(module, "ok", "installed") if there else Check(module, "note", missing)
