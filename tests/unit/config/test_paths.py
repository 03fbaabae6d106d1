"""Homes, profiles and working folders: where they are, and that they are private."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes.config.load import load_setup
from hermes.config.paths import find_home, find_working_folder
from hermes.core.errors import ConfigError
from tests.unit.config.homes import mode_of


def test_the_default_home_is_below_HOME_and_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        setup = load_setup(environ={"HOME": str(tmp_path)})
        assert setup.home == tmp_path / ".hermes"
        profile = load_setup("work", environ={"HOME": str(tmp_path)})
    finally:
        os.umask(old)
    assert mode_of(setup.home) == 0o700
    assert profile.home == tmp_path / ".hermes" / "profiles" / "work"
    assert mode_of(profile.home) == mode_of(profile.home.parent) == 0o700


def test_an_open_home_is_closed_with_a_warning(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir()
    home.chmod(0o755)
    setup = load_setup(environ={"HERMES_HOME": str(home)})
    assert mode_of(home) == 0o700
    assert len(setup.warnings) == 1 and "0700" in setup.warnings[0]
    assert load_setup(environ={"HERMES_HOME": str(home)}).warnings == ()


def test_profiles_have_their_own_config_and_secrets(tmp_path: Path) -> None:
    env = {"HERMES_HOME": str(tmp_path / "h")}
    load_setup("a", environ=env)
    (tmp_path / "h/profiles/a/config.yaml").write_text("agent: {max_turns: 5}\n")
    assert load_setup("a", environ=env).config.agent.max_turns == 5
    assert load_setup("b", environ=env).config.agent.max_turns == 90
    assert load_setup("default", environ=env).home == tmp_path / "h"


@pytest.mark.parametrize(
    "name", ["..", ".", "../x", "a/b", "/etc", "a\\b", "a\0b", "-x", "x" * 65, " ", "a b", "ä"]
)
def test_profile_names_cannot_leave_the_home(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="Profile name"):
        load_setup(name, environ={"HERMES_HOME": str(tmp_path / "h")})
    assert not (tmp_path / "h").exists()


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "h"
    file.write_text("x")
    for home in (file, file / "below"):
        with pytest.raises(ConfigError) as caught:
            load_setup(environ={"HERMES_HOME": str(home)})
        assert str(home) in str(caught.value)
    assert file.read_text() == "x"


def test_a_relative_home_and_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_home({"HERMES_HOME": "h"}) == tmp_path / "h"
    assert find_home({"HERMES_HOME": "~/h", "HOME": "/somewhere"}) == Path("/somewhere/h")
    assert find_home({"HERMES_HOME": "", "HOME": "/somewhere"}) == Path("/somewhere/.hermes")


def test_files_found_open_are_closed(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir(mode=0o700)
    (home / ".env").write_text("A_KEY=0123456789\n")
    (home / ".env").chmod(0o644)
    (home / "config.yaml").write_text("agent: {max_turns: 7}\n")
    (home / "config.yaml").chmod(0o666)
    setup = load_setup(environ={"HERMES_HOME": str(home)})
    assert mode_of(home / ".env") == mode_of(home / "config.yaml") == 0o600
    assert ".env was readable by other users" in setup.warnings[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_an_unreadable_home_is_one_sentence(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir(mode=0o000)
    with pytest.raises(ConfigError, match="not readable"):
        load_setup(environ={"HERMES_HOME": str(home)})


def test_the_working_folder_is_where_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is remembered, and yet followed when it is moved, replaced or gone."""
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert find_working_folder(".") == find_working_folder(".") == tmp_path / "a"
    (tmp_path / "a").rename(tmp_path / "b")
    assert find_working_folder(".") == tmp_path / "b"
    link = tmp_path / "link"
    link.symlink_to("b")
    assert find_working_folder(str(link)) == tmp_path / "b"
    link.unlink()
    (tmp_path / "c").mkdir()
    link.symlink_to("c")
    assert find_working_folder(str(link)) == tmp_path / "c"
    (tmp_path / "c").rmdir()
    with pytest.raises(ConfigError, match="does not exist"):
        find_working_folder(str(link))
