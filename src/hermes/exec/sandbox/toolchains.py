"""The programs, libraries and caches of developers' tools that people keep in their home."""

from __future__ import annotations

from typing import NamedTuple


class Toolchain(NamedTuple):
    name: str
    programs: tuple[str, ...]
    """Readable in a home. Credentials beside them are not."""
    caches: tuple[str, ...]
    """Readable too; what commands write there is theirs alone, where namespaces allow it."""


_ROWS = """
uv       | .local/bin .local/share/uv/python .local/share/uv/tools | .cache/uv
pip      | .local/lib                                              | .cache/pip
pipx     | .local/share/pipx .local/pipx                           |
poetry   | .local/share/pypoetry                                   | .cache/pypoetry
pyenv    | .pyenv                                                  |
conda    | .conda .miniconda3 miniconda3 anaconda3 mambaforge miniforge3 |
rust     | .rustup .cargo/bin .cargo/env                           | .cargo/registry .cargo/git
go       | go/bin .go sdk                                          | go/pkg .cache/go-build
node     | .nvm .nodenv .npm-global .volta/bin .volta/tools        | .npm/_cacache
pnpm     | .local/share/pnpm                                       | .cache/pnpm
yarn     | .yarn/bin .config/yarn/global                           | .cache/yarn
bun      | .bun/bin                                                | .bun/install
deno     | .deno/bin                                               | .cache/deno
java     | .sdkman .jenv .jbang/bin                                |
maven    | .m2/wrapper                                             | .m2/repository
gradle   |                                              | .gradle/caches .gradle/wrapper
ruby     | .rbenv .rvm .gem/ruby .local/share/gem/ruby             | .bundle/cache
php      | .composer/vendor .config/composer/vendor                | .cache/composer
asdf     | .asdf                                                   |
mise     | .local/share/mise                                       | .cache/mise
homebrew | .linuxbrew                                              |
"""
TOOLCHAINS = tuple(
    Toolchain(cells[0].strip(), tuple(cells[1].split()), tuple(cells[2].split()))
    for cells in (row.split("|") for row in _ROWS.strip().splitlines())
)
PROGRAMS = tuple(path for toolchain in TOOLCHAINS for path in toolchain.programs)
CACHES = tuple(path for toolchain in TOOLCHAINS for path in toolchain.caches)
