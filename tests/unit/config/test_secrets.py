"""Secrets from .env and the environment: found, kept from children, redacted."""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.env import build_child_env
from hermes.config.load import load_setup
from hermes.config.secrets import Secrets, is_secret_name, read_dotenv
from hermes.core.errors import ConfigError
from hermes.llm.providers import provider_index
from tests.unit.config.homes import load_home


def test_the_environment_wins_over_the_file_and_nothing_is_exported(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir(mode=0o700)
    (home / ".env").write_text("A_KEY=from-file-1\nB_KEY=from-file-2\nEMPTY_KEY=\n")
    setup = load_setup(environ={"HERMES_HOME": str(home), "A_KEY": "from-env-1", "EMPTY_KEY": " "})
    assert setup.secrets.get("A_KEY") == "from-env-1"
    assert setup.secrets.get("B_KEY") == "from-file-2"
    assert setup.secrets.get("EMPTY_KEY") is None
    assert setup.secrets.get("NOT_THERE") is None
    assert setup.secrets.find_source("A_KEY") == "environment"
    assert setup.secrets.find_source("B_KEY") == ".env"
    assert "B_KEY" not in os.environ
    assert "from-file" not in repr(setup)
    assert setup.secrets.redactable_values() == {"from-env-1", "from-file-1", "from-file-2"}


def test_a_key_named_by_the_config_is_a_secret_whatever_its_name(tmp_path: Path) -> None:
    setup = load_home(
        tmp_path / "h",
        "providers: {lab: {api_key_envs: [ODD, OTHER]}}\nmodel: {api_key_env: PLAIN}\n",
        ODD="value-of-odd",
        PLAIN="value-of-plain",
        VISIBLE="value-of-visible",
    )
    assert {"value-of-odd", "value-of-plain"} == setup.secrets.redactable_values()
    child = build_child_env(setup.secrets, {"ODD": "value-of-odd", "PLAIN": "p", "VISIBLE": "v"})
    assert child == {"VISIBLE": "v", "HERMES_CHILD": "1"}


def test_short_values_are_not_worth_redacting() -> None:
    assert Secrets({"A_KEY": "abc", "B_KEY": "abcdefgh"}).redactable_values() == {"abcdefgh"}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("ANTHROPIC_TOKEN", True),
        ("GH_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("AWS_BEARER_TOKEN_BEDROCK", True),
        ("DB_PASSWORD", True),
        ("MYSQL_PASSWORD_FILE", True),
        ("CLIENT_SECRET", True),
        ("my_api_key", True),
        ("PATH", False),
        ("PWD", False),
        ("OLDPWD", False),
        ("KEYBOARD", False),
        ("LANG", False),
        ("SSH_AUTH_SOCK", False),
        ("XAUTHORITY", False),
        ("TOKENIZERS_PARALLELISM", False),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


def test_the_keys_of_all_providers_are_secrets_by_name() -> None:
    assert [name for name in provider_index().key_variables if not is_secret_name(name)] == []


def test_a_variable_named_on_the_command_line_is_a_secret_too(tmp_path: Path) -> None:
    env = {"HERMES_HOME": str(tmp_path / "h"), "ODD": "value-of-odd"}
    setup = load_setup(environ=env, keys=["ODD"])
    assert setup.secrets.redactable_values() == {"value-of-odd"}
    assert "ODD" not in build_child_env(setup.secrets, env)


def test_children_get_no_secret_by_name_or_by_value() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "OPENAI_API_KEY": "sk-0123456789abcdef",
        "COPY": "sk-0123456789abcdef",
        "INSIDE": "Bearer sk-0123456789abcdef!",
        "DB_PASSWORD": "x",
        "FROM_FILE": "other",
    }
    secrets = Secrets(environ, {"FROM_FILE": "value-in-dotenv", "PATH": "/evil"})
    assert build_child_env(secrets, environ) == {
        "PATH": "/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "HERMES_CHILD": "1",
    }


_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
_values = st.one_of(
    st.from_regex(r"[A-Za-z0-9_./:@%+=$\{\}-]{0,20}", fullmatch=True),
    st.text(alphabet="abc \"'\\#$=\t", max_size=10),
)
_lines = st.one_of(
    st.builds(
        "{}{}{}{}{}{}".format,
        st.sampled_from(["", "", "export ", "  "]),
        _names,
        st.sampled_from(["=", "=", " = "]),
        st.sampled_from(["", '"', "'"]),
        _values,
        st.sampled_from(["", '"', "'", " # comment"]),
    ),
    st.sampled_from(["", "# comment", "  # x=y", "JUST_A_NAME", "\t", "=x", "1A=b"]),
)


@given(st.lists(_lines, max_size=6), st.sampled_from(["\n", "\r\n"]))
def test_env_files_read_as_python_dotenv_reads_them(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], newline: str
) -> None:
    text = newline.join(lines)
    file = tmp_path_factory.getbasetemp() / "some.env"
    file.write_bytes(text.encode())
    expected = dotenv_values(stream=StringIO(text), interpolate=False)
    try:
        assert read_dotenv(file) == {key: value or "" for key, value in expected.items()}
    except ConfigError as error:
        assert "some.env line" in str(error)


def test_a_broken_env_file_is_named_without_its_content(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir(mode=0o700)
    (home / ".env").write_text("GOOD=1\nBAD='hunter2hunter2\n")
    with pytest.raises(ConfigError) as caught:
        load_setup(environ={"HERMES_HOME": str(home)})
    assert ".env line 2" in str(caught.value) and "hunter2" not in str(caught.value)
