"""`hermes doctor`: what works here, what does not, and what that costs."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from hermes.cli.arguments import Parser, profile_option
from hermes.cli.display import dump
from hermes.cli.main import EXIT_FAILED
from hermes.config import paths
from hermes.config.env import environment, platform_name
from hermes.config.load import Setup, load
from hermes.core.errors import ConfigError, HermesError, ToolError
from hermes.version import VERSION

State: TypeAlias = Literal["ok", "note", "failed"]
_EPILOG = """\
Nothing is sent anywhere, except that a host named in terminal.ssh is connected to. exit status: 0 nothing failed (notes are fine), 1 something did

examples:
  hermes doctor
  hermes doctor --json | jq '.[] | select(.state != "ok")'
"""
_PROGRAMS = {
    "git": ("git", "no checkpoints: files a turn changed cannot be put back"),
    "ripgrep": ("rg", "search_files is slower"),
    "bubblewrap": ("bwrap", "commands are confined less strongly"),
}
_EXTRAS = {
    "trafilatura": ("web", "web pages are read as simple text"),
    "pypdf": ("web", "no PDFs from the web"),
    "playwright": ("browser", "no browser tools"),
    "botocore": ("bedrock", "Bedrock needs a bearer key"),
}


class Check(Struct, frozen=True):
    name: str
    state: State
    text: str
    details: tuple[str, ...] = ()


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes doctor", "Check this installation.", _EPILOG)
    parser.add_argument("--json", action="store_true", help="as JSON")
    profile_option(parser, profile)
    args = parser.parse_args(argv)
    checks: list[Check] = []
    for check in asyncio.run(_all(args.profile)):
        checks.append(check)
        if not args.json:
            _print(check)
    if args.json:
        print(dump([msgspec.to_builtins(check) for check in checks]))
    return EXIT_FAILED if any(check.state == "failed" for check in checks) else 0


def _print(check: Check) -> None:
    mark = {"ok": "ok    ", "note": "note  ", "failed": "FAILED"}[check.state]
    print(f"{mark}  {check.name}: {check.text}")
    for line in check.details:
        print(f"          {line}")


async def _all(profile: str) -> list[Check]:
    python = ".".join(map(str, sys.version_info[:3]))
    machine = f"{platform_name()} {os.uname().release} {os.uname().machine}"
    checks = [Check("version", "ok", f"hermes {VERSION}, Python {python}, {machine}")]
    try:
        setup = load(profile)
    except ConfigError as error:
        checks.append(Check("configuration", "failed", str(error)))
        setup = None
    if setup is not None:
        checks += [
            _configuration(setup),
            _permissions(setup),
            await _store(setup),
            _model(setup),
        ]
        if setup.config.terminal.backend != "local":
            checks.append(await _backend(setup))
    checks.append(await _sandbox(setup))
    return [*checks, *_programs(), await _browser(setup), *_extras()]


def _configuration(setup: Setup) -> Check:
    from hermes.cli.commands.tools import unknown_words
    from hermes.config.load import read_source
    from hermes.config.parse import parse
    from hermes.config.validate import check
    from hermes.tools.registry import unknown

    file = paths.config_file(setup.home)
    source = read_source(setup.home)
    if source is None:
        return Check("configuration", "ok", f"{file} does not exist; the defaults apply")
    notes = [f"config.yaml {note}" for note in check(parse(source)).notes]
    notes += [f"tools: {unknown(word)}" for word in unknown_words(setup.config.tools)]
    return Check("configuration", "note" if notes else "ok", f"{file} is valid", tuple(notes))


def _permissions(setup: Setup) -> Check:
    open_ = [
        f"{path} is open to other users ({stat.S_IMODE(path.lstat().st_mode):04o})"
        for path in _private(setup.home)
        if stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]
    found = [*setup.warnings, *open_]
    if not os.access(setup.home, os.W_OK):
        return Check("home", "failed", f"{setup.home} is not writable", tuple(found))
    if found:
        return Check("home", "note", f"{setup.home} was not private", tuple(found))
    return Check("home", "ok", f"{setup.home} is yours alone")


def _private(home: Path) -> Iterator[Path]:
    yield home
    yield from (p for p in home.iterdir() if not p.is_symlink())
    yield from (p for p in (home / "logs").glob("*") if not p.is_symlink())


async def _store(setup: Setup) -> Check:
    file = paths.database(setup.home)
    if not file.exists():
        return Check("sessions", "ok", "none yet")
    from hermes.store.sqlite import SqliteStore

    store = SqliteStore(file)
    try:
        told = await store.ready()
        wrong = await store.check()
    except HermesError as error:
        return Check("sessions", "failed", str(error))
    finally:
        await store.close()
    if wrong:
        return Check("sessions", "failed", f"{file} is damaged", tuple(wrong[:20]))
    size = file.stat().st_size
    text = f"{file} is sound ({size / 2**20:.1f} MB)"
    return Check("sessions", "note" if told else "ok", text, told)


def _model(setup: Setup) -> Check:
    from hermes.llm.catalog import Choice, resolve

    try:
        first, *rest = resolve(setup.config, setup.secrets, Choice())
    except ConfigError as error:
        return Check("model", "failed", str(error))
    details = [f"falls back to {e.target.provider}:{e.target.model}" for e in rest]
    keys = ", ".join(key.source for key in first.keys) or "no key"
    target = f"{first.target.provider}:{first.target.model}"
    address = re.sub(r"//[^/@]*@", "//", first.base_url)
    text = f"{target} at {address} ({first.target.wire}, {keys}); not called"
    return Check("model", "ok", text, tuple(details))


async def _backend(setup: Setup) -> Check:
    """Tried for real: a container is made and removed, or a host connected to."""
    from hermes.app.places import Places
    from hermes.config.env import child_env
    from hermes.exec.local import stop_all

    name = f"terminal backend {setup.config.terminal.backend}"
    places = Places(setup, child_env(setup.secrets))
    place = places.place("doctor", Path.cwd(), setup.config.sandbox.mode)
    assert place is not None
    try:
        text = await place.check()
        confined = await place.confined()
    except HermesError as error:
        return Check(name, "failed", str(error).removesuffix(" Nothing was run."))
    finally:
        await places.close()
        await stop_all()
    if confined:
        return Check(name, "ok", f"{text}; commands are confined to it")
    state: State = "failed" if setup.config.sandbox.required else "note"
    return Check(name, state, f"{text}; what does not only read asks")


async def _sandbox(setup: Setup | None) -> Check:
    from hermes.config.paths import cache_folder
    from hermes.exec.sandbox import describe, probe

    cache = cache_folder(setup.home) if setup is not None else None
    tier = await probe(cache, fresh=True)
    head, *details = describe(tier)
    text = head.partition(": ")[2]
    name = f"sandbox tier {tier.level}"
    details = [line.strip() for line in details]
    if setup is not None and setup.config.sandbox.mode == "full-access":
        return Check(name, "note", f"{text}; turned off by sandbox.mode", tuple(details))
    if tier.level == 3:
        required = setup is not None and setup.config.sandbox.required
        return Check(name, "failed" if required else "note", text, tuple(details))
    return Check(name, "ok" if tier.level == 1 else "note", text, tuple(details))


def _programs() -> Iterator[Check]:
    path = environment().get("PATH", os.defpath)
    for name, (words, loss) in _PROGRAMS.items():
        found = next(filter(None, (shutil.which(word, path=path) for word in words.split())), None)
        yield Check(name, "ok" if found else "note", found or f"not found: {loss}")


async def _browser(setup: Setup | None) -> Check:
    from hermes.exec.chromium import find
    from hermes.exec.sandbox import probe

    configured = setup.config.browser.executable if setup is not None else ""
    try:
        found = find(configured, environment())
    except ToolError as error:
        return Check("chromium", "failed" if configured else "note", f"no browser tools: {error}")
    if os.geteuid() != 0:
        return Check("chromium", "ok", found)
    if (await probe()).level == 1:
        why = "root cannot use its own sandbox: runs with --no-sandbox inside bubblewrap"
        return Check("chromium", "ok", found, (why,))
    why = "as root it runs with --no-sandbox, and nothing else confines it: use another user"
    return Check("chromium", "note", found, (why,))


def _extras() -> Iterator[Check]:
    for module, (extra, loss) in _EXTRAS.items():
        if find_spec(module) is None:
            text = f"not installed (extra `{extra}`): {loss}"
            yield Check(module, "note", text)
        else:
            yield Check(module, "ok", "installed")
