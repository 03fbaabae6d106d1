"""Real toolchains in an ordinary user's home: hello worlds are built and tested in the sandbox."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.toolchain_projects import HELLO, PROJECTS, SECRETS, SERVERS, Project
from tests.kit import Home, Provider, call, say
from tests.kit.ordinary_user import OrdinaryUser, ordinary_user

MISSING = "is not to be had here"


class Workplace:
    """A folder in which the user lets Hermes work, confined by one tier."""

    def __init__(self, user: OrdinaryUser, tier: int, name: str) -> None:
        self.user, self.tier = user, tier
        self.folder = user.home / "work" / f"{name}-{tier}"
        user.run(f"mkdir -p {self.folder}")

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.user.give(self.folder)

    async def sh(self, command: str) -> str:
        """What the model is told about a command."""
        arguments = {"command": command, "timeout": 200}
        async with Provider([call(("c1", "terminal", arguments)), say("done")]) as provider:
            home = Home.of(self.user.home, provider)
            ran = await self.user.hermes(
                ["chat", "-q", "go on", "--output", "json"], home, self.folder, tier=self.tier
            )
        if MISSING in ran.stderr:
            pytest.skip(ran.stderr.strip())
        assert ran.rc == 0, ran
        (made,) = ran.json["tool_calls"]
        return str(made["result"])


@pytest.fixture(scope="module")
def user() -> Iterator[OrdinaryUser]:
    with ordinary_user() as found:
        yield found


@pytest.fixture(scope="module")
def installed() -> set[str]:
    """The names of toolchains that are in the user's home already."""
    return set()


@pytest.fixture(params=[1, 2], ids=["tier1", "tier2"])
def tier(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def install(user: OrdinaryUser, project: Project, installed: set[str]) -> None:
    for name in project.needs:
        install(user, next(p for p in PROJECTS if p.name == name), installed)
    if not user.run(f"command -v {project.program} || true"):
        pytest.skip(f"the toolchain {project.name} needs {project.program} for all users")
    if project.name not in installed:
        user.run(project.install)
        installed.add(project.name)


def list_files(user: OrdinaryUser) -> dict[str, tuple[int, int]]:
    """All that is in the home but the workspaces and the agent's own files."""
    found = {}
    for folder, folders, files in os.walk(user.home):
        if folder == str(user.home):
            folders[:] = [n for n in folders if n not in ("work", "home", "sources", "program")]
        for name in files:
            status = os.lstat(f"{folder}/{name}")
            found[f"{folder}/{name}"] = (status.st_size, status.st_mtime_ns)
    return found


@pytest.mark.parametrize("project", PROJECTS, ids=lambda p: p.name)
async def test_hello_world_is_built_and_tested(
    project: Project, user: OrdinaryUser, tier: int, installed: set[str]
) -> None:
    place = Workplace(user, tier, project.name)
    place.write(project.files)
    install(user, project, installed)
    user.run(project.prepare or "true", place.folder)
    before = list_files(user)
    for command in filter(None, (project.command, project.from_cache if tier == 1 else "")):
        said = await place.sh(command)
        assert said.strip().splitlines()[-1] == HELLO, said
    assert list_files(user) == before, "the home is as it was"


async def test_caches_can_be_written_and_nobody_else_sees_it(user: OrdinaryUser, tier: int) -> None:
    caches = ".cache/uv .npm/_cacache .cargo/registry .m2/repository go/pkg .cache/go-build"
    user.run(f"mkdir -p {caches}")
    before = list_files(user)
    tried = f"cd; for f in {caches}; do mkdir -p $f; echo mine > $f/new && cat $f/new; done"
    assert (await Workplace(user, tier, "caches").sh(tried)).split() == ["mine"] * 6
    assert list_files(user) == before


async def test_credentials_beside_toolchains_cannot_be_read(user: OrdinaryUser, tier: int) -> None:
    for name in SECRETS:
        user.run(f"mkdir -p $(dirname {name}) && touch {name} && echo '# TOP-SECRET' >> {name}")
    place = Workplace(user, tier, "secrets")
    names = " ".join(SECRETS)
    tried = f"for f in {names}; do cat ~/$f {user.home}/$f; cp {user.home}/$f .; done; "
    tried += f"grep -rs TOP- ~ {user.home} .; echo tried"
    said = await place.sh(tried)
    assert "TOP-SECRET" not in said and said.rstrip().endswith("tried"), said


@pytest.mark.parametrize("project", SERVERS, ids=lambda p: p.name)
async def test_a_server_in_the_background_is_tested(
    project: Project,
    user: OrdinaryUser,
    tier: int,
    installed: set[str],
) -> None:
    install(user, project, installed)
    place = Workplace(user, tier, project.name)
    place.write(project.files)
    said = await place.sh(project.command)
    assert HELLO in said.splitlines(), said
