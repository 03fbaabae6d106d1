"""The programs, libraries and caches of developers' tools that people keep in their home."""

from __future__ import annotations

from typing import NamedTuple


class Toolchain(NamedTuple):
    name: str
    programs: tuple[str, ...]
    """Readable in a home. Credentials beside them are not."""
    caches: tuple[str, ...]
    """Readable too; what commands write there is theirs alone. Without namespaces they can add to
    a cache, but not to the folders in it."""
    renewable: tuple[str, ...]
    """Caches that no build relies on. Without namespaces a command begins with empty ones: programs
    refuse those that they cannot write to."""


_ROWS = """
uv       | .local/bin .local/share/uv/python .local/share/uv/tools | .local/share/uv/tools | .cache/uv
pip      | .local/lib                                              | | .cache/pip
pipx     | .local/share/pipx .local/pipx                           | |
poetry   | .local/share/pypoetry | .cache/pypoetry/virtualenvs | .cache/pypoetry/cache .cache/pypoetry/artifacts
pyenv    | .pyenv                                                  | |
conda    | .conda .miniconda3 miniconda3 anaconda3 mambaforge miniforge3 micromamba | |
rust     | .rustup .cargo/bin .cargo/env                           | .cargo/registry .cargo/git |
go       | go/bin .go sdk                                          | go/pkg | .cache/go-build
node     | .nvm .config/nvm .fnm .local/share/fnm .nodenv .npm-global .volta | .cache/node/corepack | .npm/_cacache
pnpm     | .local/share/pnpm                                       | | .local/share/pnpm/store .cache/pnpm
yarn     | .yarn/bin .config/yarn/global                           | | .cache/yarn .yarn/berry
bun      | .bun/bin                                                | .bun/install/global | .bun/install/cache
deno     | .deno/bin                                               | .cache/deno |
browsers | .cache/ms-playwright .cache/puppeteer .cache/Cypress    | |
java     | .sdkman .jenv .jbang/bin                                | |
maven    | .m2/wrapper                                             | .m2/repository |
gradle   |                                                         | .gradle/caches .gradle/wrapper |
ruby     | .rbenv .rvm .gem/ruby .local/share/gem/ruby             | | .bundle/cache
php      | .composer/vendor .config/composer/vendor                | | .cache/composer
asdf     | .asdf                                                   | |
mise     | .local/share/mise                                       | | .cache/mise
homebrew | .linuxbrew                                              | |
"""  # noqa: E501 - a table
TOOLCHAINS = tuple(
    Toolchain(name.strip(), *(tuple(cell.split()) for cell in cells))
    for name, *cells in (row.split("|") for row in _ROWS.strip().splitlines())
)
PROGRAMS = tuple(path for toolchain in TOOLCHAINS for path in toolchain.programs)
CACHES = tuple(path for toolchain in TOOLCHAINS for path in toolchain.caches)
RENEWABLE = tuple(path for toolchain in TOOLCHAINS for path in toolchain.renewable)
