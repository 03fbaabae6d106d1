"""Variables go into .env and out of it, and nothing else in the file changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.config import dotenv
from hermes.config.secrets import read_dotenv
from hermes.core.errors import ConfigError

_VALUES = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1)


@settings(max_examples=50, deadline=None)
@given(value=_VALUES, other=_VALUES)
def test_any_value_reads_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, value: str, other: str
) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / ".env").write_text("# first\nexport A=1 # one\n\nB='x y'\n# last")
    try:
        dotenv.set_variable(home, "NEW", value)
        dotenv.set_variable(home, "A", other)
    except ConfigError:
        # What the format cannot hold is refused, and the file is as it was before.
        assert "B='x y'" in (home / ".env").read_text()
        return
    assert read_dotenv(home / ".env") == {"A": other, "B": "x y", "NEW": value}
    text = (home / ".env").read_text()
    assert "# first\n" in text and "\nB='x y'\n" in text and "# last" in text
    assert dotenv.remove_variable(home, "NEW") and not dotenv.remove_variable(home, "NEW")
    assert read_dotenv(home / ".env") == {"A": other, "B": "x y"}


def test_a_new_file_is_private(tmp_path: Path) -> None:
    dotenv.set_variable(tmp_path, "K", "sk-x")
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    (tmp_path / ".env").chmod(0o644)
    dotenv.set_variable(tmp_path, "K2", "sk-y")
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("name", "value"), [("1A", "x"), ("A B", "x"), ("A", ""), ("A", "a\nb")])
def test_what_is_no_variable_is_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigError):
        dotenv.set_variable(tmp_path, name, value)
    assert not (tmp_path / ".env").exists()


def test_a_variable_written_twice_is_one_afterwards(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("K=1\nX=2\nK=3\n")
    dotenv.set_variable(tmp_path, "K", "4")
    assert (tmp_path / ".env").read_text() == "K=4\nX=2\n"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.env"
    real.write_text("A=1\n")
    (tmp_path / ".env").symlink_to(real)
    dotenv.set_variable(tmp_path, "B", "2")
    assert (tmp_path / ".env").is_symlink() and real.read_text() == "A=1\nB=2\n"
