"""The hosts that package managers download from: the public registries and this machine's own."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from hermes.config.env import get_environment
from hermes.core.escalation import PACKAGES

_REGISTRIES = """
    pypi.org files.pythonhosted.org registry.npmjs.org registry.yarnpkg.com crates.io
    index.crates.io static.crates.io static.rust-lang.org proxy.golang.org sum.golang.org
    rubygems.org index.rubygems.org repo.maven.apache.org repo1.maven.org plugins.gradle.org
    packagist.org repo.packagist.org api.nuget.org conda.anaconda.org jsr.io
""".split()
_VARIABLES = """
    PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_INDEX_URL UV_DEFAULT_INDEX UV_INDEX UV_EXTRA_INDEX_URL
    NPM_CONFIG_REGISTRY npm_config_registry YARN_NPM_REGISTRY_SERVER GOPROXY GOSUMDB
""".split()
_FILES = """
    .config/pip/pip.conf .pip/pip.conf /etc/pip.conf .npmrc /etc/npmrc .yarnrc.yml
    .cargo/config.toml .cargo/config .config/go/env .config/uv/uv.toml
""".split()
_COMMENT = re.compile(r"^\s*[#;].*", re.MULTILINE)
_HOST = re.compile(r"https?://(?:[^/@\s\"']*@)?([A-Za-z0-9.-]+(?::\d+)?)")


def expand_packages(
    allowed: Iterable[str], environ: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The hosts with `packages` replaced by those it stands for."""
    hosts: dict[str, None] = {}
    for entry in allowed:
        hosts.update(dict.fromkeys(find_package_hosts(environ) if entry == PACKAGES else (entry,)))
    return tuple(hosts)


def find_package_hosts(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The usual registries, and what pip, npm, cargo and go are told to use here."""
    env = get_environment() if environ is None else environ
    home = Path(env.get("HOME") or Path.home())
    texts = [env.get(name, "") for name in _VARIABLES]
    files = [home / name for name in _FILES]
    if named := env.get("PIP_CONFIG_FILE"):
        files.append(Path(named))
    for file in files:
        with suppress(OSError, UnicodeError):
            texts.append(_COMMENT.sub("", file.read_text("utf-8")))
    return tuple(dict.fromkeys((*_REGISTRIES, *_HOST.findall("\n".join(texts)))))
