"""An ordinary user with a home of their own, and the program as they run it."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.kit.home import Home, Ran, finish

PROJECT = Path(__file__).parents[2]
_REGISTRIES = re.compile(r"(PIP_|UV_|npm_config_|SSL_CERT_|NODE_EXTRA_CA)|.*_proxy$", re.I)
"""Variables that say where packages come from, and how to get there."""
_PIP_SETTINGS = ("index-url", "extra-index-url", "find-links", "cert", "trusted-host")
_WITH_TIER = """
import asyncio, sys
from hermes.exec import sandbox_probe as probe
level = int(sys.argv.pop(1))
found, why = None, "its parts are missing"
for tier in probe.list_candidates():
    if tier.level == level:
        found, why = asyncio.run(probe.try_tier(tier))
if found is None:
    sys.exit(f"tier {level} is not to be had here: {why}")
probe._known_tier = found
from hermes.cli.main import main
sys.exit(main())
"""


class OrdinaryUser:
    """Not root, whoever runs the tests; `env` is all of their environment."""

    def __init__(self, home: Path, account: pwd.struct_passwd | None) -> None:
        self.home, self.account = home, account
        self.program = home / "program"
        """Hermes, in an environment of its own that this user can read."""
        folders = (".local/bin", "go/bin", ".cargo/bin", ".npm-global/bin", ".bun/bin", ".deno/bin")
        path = [f"{home}/{name}" for name in folders] + ["/usr/local/bin", "/usr/bin", "/bin"]
        self.env = {"HOME": str(home), "PATH": ":".join(path), "LANG": "C.UTF-8"}
        if account:
            self.env |= {"USER": account.pw_name, "LOGNAME": account.pw_name}
        else:  # Java asks the system, not HOME
            self.env["JAVA_TOOL_OPTIONS"] = f"-Duser.home={home}"

    @property
    def _identity(self) -> dict[str, Any]:
        if not self.account:
            return {}
        return {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}

    def run(self, text: str, cwd: Path | None = None, timeout: float = 220) -> str:
        """What a script prints that they run themselves, outside any sandbox, with the registries
        this machine is set up for."""
        done = subprocess.run(
            ["/bin/bash", "-euc", text],
            cwd=cwd or self.home,
            env=self.env | _find_registries(),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
            **self._identity,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def give(self, folder: Path) -> None:
        """Make them the owner of a folder and all that is in it."""
        if self.account:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self.account.pw_uid, self.account.pw_gid, follow_symlinks=False)

    async def hermes(self, args: Sequence[str], home: Home, cwd: Path, *, tier: int) -> Ran:
        """Run the program as this user, confined by this tier."""
        self.give(home.path)
        process = await asyncio.create_subprocess_exec(
            *(str(self.program / "bin/python"), "-c", _WITH_TIER, str(tier), *args),
            cwd=cwd,
            env={**home.env, **self.env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            **self._identity,
        )
        return await finish(process, timeout=230)


@contextmanager
def ordinary_user() -> Iterator[OrdinaryUser]:
    """A new account when we are root, otherwise ourselves with an empty home; both with Hermes."""
    if os.geteuid():
        with tempfile.TemporaryDirectory(prefix="hermes-user-", ignore_cleanup_errors=True) as home:
            user = OrdinaryUser(Path(home).resolve(), None)
            _install_hermes(user)
            yield user
        return
    name = f"hermes-test-{os.getpid()}"
    adding = ["useradd", "--create-home", "--shell", "/bin/bash", name]
    if not shutil.which("useradd") or subprocess.run(adding, check=False).returncode:
        pytest.skip("toolchains need an ordinary user, and none could be added")
    account = pwd.getpwnam(name)
    try:
        user = OrdinaryUser(Path(account.pw_dir), account)
        _install_hermes(user)
        yield user
    finally:
        subprocess.run(["userdel", "--force", name], check=False, capture_output=True)
        shutil.rmtree(account.pw_dir, ignore_errors=True)


def _install_hermes(user: OrdinaryUser) -> None:
    """From the lock and a copy of the sources: neither this environment nor its interpreter need
    be readable for others."""
    sources = user.home / "sources"
    shutil.copytree(PROJECT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
    lock = shutil.copy(PROJECT / "requirements/run.txt", sources)
    local = user.home / ".local/bin"
    local.mkdir(parents=True)
    uv = shutil.copy(Path(sys.executable).parent / "uv", local)
    user.give(sources)
    user.give(user.home / ".local")
    python = _find_python(user)
    user.run(f"{python} -m venv {user.program}")
    install = f"install --quiet --require-hashes -r {lock}"
    user.run(
        f"{uv} pip {install} --python {user.program} || {user.program}/bin/python -m pip {install}"
    )
    user.run(f"cd {user.program}/lib/python3.*/site-packages && echo {sources} > hermes.pth")


def _find_python(user: OrdinaryUser) -> str:
    """An interpreter that Hermes runs with and this user may use."""
    check = "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))"
    for python in ("/usr/bin/python3", os.path.realpath(sys.executable)):
        tried = f"{python} -c '{check}' 2>/dev/null && echo usable || true"
        if "usable" in user.run(tried):
            return python
    pytest.skip("toolchains need a Python of the system, 3.11 or newer, with venv")


@cache
def _find_registries() -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if _REGISTRIES.match(name)}
    for name in _PIP_SETTINGS:
        variable = f"PIP_{name.upper().replace('-', '_')}"
        found.setdefault(
            variable, _ask([sys.executable, "-m", "pip", "config", "get", f"global.{name}"])
        )
    if shutil.which("npm"):
        found.setdefault("npm_config_registry", _ask(["npm", "config", "get", "registry"]))
    found.setdefault("UV_DEFAULT_INDEX", found["PIP_INDEX_URL"])
    for variable in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"):  # for uv, and for npm
        found.setdefault(variable, found["PIP_CERT"])
    return {name: value for name, value in found.items() if value}


def _ask(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
