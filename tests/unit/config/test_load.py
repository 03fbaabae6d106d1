"""Reading the configuration: files, errors with their lines, secrets, homes, environments."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.env import argument_text, child_env, colours, proxy_for
from hermes.config.load import Setup, load
from hermes.config.paths import find_home, working_folder
from hermes.config.schema import Config
from hermes.config.secrets import Secrets, read_dotenv, secret_name
from hermes.config.validate import check, valid_keys
from hermes.config.yaml_source import parse
from hermes.core.errors import ConfigError
from hermes.llm.providers import provider_index

EXAMPLE = """\
model:
  default: anthropic/claude-sonnet-4.5     # or provider:model
  provider: custom                          # a provider name, or custom
  base_url: http://127.0.0.1:8000/v1        # custom endpoints
  api_mode: chat                            # chat | responses | anthropic | bedrock | gemini
  api_key_env: MY_KEY                       # name of the variable
  context_length: 131072                    # only when the endpoint does not say
  max_tokens: 8192
providers:                                  # named endpoints
  lab: {base_url: "http://lab.local:8000/v1", api_key_env: LAB_KEY,
        request_timeout_seconds: 600, stale_timeout_seconds: 120, ttfb_timeout_seconds: 45}
fallback_providers: ["openrouter:qwen/qwen3-coder", "lab:llama-3.3-70b"]
agent: {max_turns: 90, reasoning_effort: medium, api_max_retries: 3}
compression: {enabled: true, threshold: 0.5}
auxiliary: {compression: {provider: lab, model: small}}
terminal: {backend: local, cwd: ".", timeout: 180}
approvals: {mode: ask}                      # ask | smart | never-ask (sandboxed only)
sandbox: {mode: workspace-write, required: false}
budget: {daily_usd: 5, session_usd: 1}
platforms: {api_server: {enabled: true, port: 8642}, telegram: {enabled: true}}
mcp_servers: {time: {command: uvx, args: [mcp-server-time]}}
"""


def read(home: Path, text: str | bytes | None = None, **environ: str) -> Setup:
    home.mkdir(mode=0o700, exist_ok=True)
    if text is not None:
        data = text.encode() if isinstance(text, str) else text
        (home / "config.yaml").write_bytes(data)
    return load(environ={"HERMES_HOME": str(home), **environ})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_documented_example_is_read_key_by_key(tmp_path: Path) -> None:
    config = read(tmp_path / "h", EXAMPLE).config
    assert config.model.default == "anthropic/claude-sonnet-4.5"
    assert config.model.context_length == 131072
    assert config.providers["lab"].stale_timeout_seconds == 120
    assert config.providers["lab"].api_key_env == "LAB_KEY"
    assert config.fallback_providers == ("openrouter:qwen/qwen3-coder", "lab:llama-3.3-70b")
    assert config.agent.reasoning_effort == "medium"
    assert config.auxiliary["compression"].model == "small"
    assert config.budget.daily_usd == 5
    assert config.platforms["api_server"]["port"] == 8642
    assert config.mcp_servers["time"]["args"] == ["mcp-server-time"]


@pytest.mark.parametrize(
    "text",
    ["", "\n", "# only a comment\n", "---\n", "\ufeff", "model:\n", "model: {}\nagent:\n", "null"],
)
def test_nothing_written_means_the_defaults(tmp_path: Path, text: str) -> None:
    assert read(tmp_path / "h", text).config == Config()
    assert Config().agent.max_turns == 90
    assert Config().terminal.timeout == 180


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffagent: {max_turns: 7}\n",
        "agent:\r\n  max_turns: 7\r\n",
        "agent: {max_turns: 7}",
        "---\nagent:\n    max_turns: 7 # seven\n...\n",
        "base: &b {max_turns: 7}\n".replace("base: &b", "agent: &b"),
        "agent:\n  max_turns: 0x7\n",
    ],
)
def test_shapes_of_files_people_have(tmp_path: Path, text: str) -> None:
    assert read(tmp_path / "h", text).config.agent.max_turns == 7


BAD = [
    (
        "agent:\n  max_turn: 3\n",
        "line 2: unknown key agent.max_turn; did you mean agent.max_turns?",
    ),
    ("modle: {default: x}\n", "line 1: unknown key modle; did you mean model?"),
    ("max_turns: 3\n", "line 1: unknown key max_turns; did you mean agent.max_turns?"),
    ("model:\n  name: x\n", "line 2: unknown key model.name; did you mean model.default?"),
    (
        "providers:\n  lab:\n    base-url: http://x\n",
        "line 3: unknown key providers.lab.base-url; did you mean providers.lab.base_url?",
    ),
    (
        "model:\n  api_key: hunter2hunter2\n",
        "line 2: unknown key model.api_key; put the secret in .env and name its variable in "
        "model.api_key_env",
    ),
    ("model:\n  api_key_env: sk-abc-def-123\n", "line 2: model.api_key_env must be the name of"),
    ("model:\n  base_url: localhost:1/v1\n", "line 2: model.base_url must begin with http://"),
    ("providers: {lab: {base_url: x}}\n", "line 1: providers.lab.base_url must begin with http://"),
    ("agent:\n  max_turns: many\n", "line 2: agent.max_turns must be a whole number of at least 1"),
    ("agent:\n  max_turns: 0\n", "line 2: agent.max_turns must be a whole number of at least 1"),
    ("agent: {max_turns: 1.5}\n", "line 1: agent.max_turns must be a whole number"),
    ("agent: {max_turns: true}\n", "line 1: agent.max_turns must be a whole number"),
    ("a: 1\nagent: 3\n", "line 1: unknown key a"),
    ("agent: 3\n", "line 1: agent must be a mapping"),
    ("agent: []\n", "line 1: agent must be a mapping"),
    ("fallback_providers: lab:x\n", "line 1: fallback_providers must be a list of texts"),
    ("fallback_providers:\n- a:b\n- 3\n", "line 1: fallback_providers must be a list of texts"),
    ("model:\n  default: yes\n", "line 2: model.default must be text, not true: put it in quotes"),
    (
        "compression: {threshold: 2}\n",
        "compression.threshold must be a number above 0 and at most 1",
    ),
    (
        "approvals: {mode: sometimes}\n",
        "line 1: approvals.mode must be one of ask, smart, never-ask",
    ),
    ("terminal:\n  backend: dockr\n", "line 2: terminal.backend must be one of local, docker, ssh"),
    ("agent:\n  reasoning_effort: huge\n", "line 2: agent.reasoning_effort must be one of none"),
    ("platforms: {telegram: 3}\n", "line 1: platforms must be a mapping"),
    ("agent:\n\tmax_turns: 3\n", "line 2: indented with a tab"),
    (
        "agent:\n  max_turns: 3\n  max_turns: 4\n",
        "line 3: agent.max_turns is given twice (first on line 2)",
    ),
    ("agent: {a: 1\n", "line 2:"),
    ("model:\n default: 'x\n", "line 3:"),
    ("- a\n- b\n", "line 1: expected `key: value` lines"),
    ("just words\n", "line 1: expected `key: value` lines"),
    ("a: 1\nb: 2\n---\nc: 3\n", "line 3:"),
    ("model: !!python/object:os.system {}\n", "line 1:"),
    ("model: *nowhere\n", "line 1:"),
    ("? [a, b]\n: 1\n", "line 1: a key must be plain text"),
    ("x: &x [*x]\n", "line 1:"),
    ("model:\n  default: a\x07b\n", "line 2:"),
]


@pytest.mark.parametrize(("text", "expected"), BAD, ids=[b[1][:40] for b in BAD])
def test_a_bad_file_is_named_with_its_line_and_left_alone(
    tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "h" / "config.yaml"
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / "h", text)
    message = str(caught.value)
    assert message.startswith("config.yaml ")
    assert expected in message
    assert "\n" not in message
    assert "hunter2" not in message and "sk-abc" not in message
    assert file.read_bytes() == text.encode()


def test_bytes_that_are_no_text_name_their_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.yaml line 2: not UTF-8"):
        read(tmp_path / "h", b"model:\n  default: \xff\xfe\n")


def test_aliases_cannot_fill_the_memory(tmp_path: Path) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for name, before in zip("bcdefgh", "abcdefg", strict=True):
        bomb += f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    with pytest.raises(ConfigError, match="too many aliases"):
        read(tmp_path / "h", bomb)


def test_merge_keys_work(tmp_path: Path) -> None:
    text = (
        "providers:\n  a: &base {base_url: 'http://a/v1', stale_timeout_seconds: 5}\n"
        "  b:\n    <<: *base\n    base_url: http://b/v1\n"
    )
    providers = read(tmp_path / "h", text).config.providers
    assert providers["b"].base_url == "http://b/v1"
    assert providers["b"].stale_timeout_seconds == 5


def test_dates_and_times_of_day_stay_text(tmp_path: Path) -> None:
    text = "platforms: {x: {day: 2026-01-31, at: 12:30, port: 8_0, ok: yes}}\n"
    row = read(tmp_path / "h", text).config.platforms["x"]
    assert row == {"day": "2026-01-31", "at": "12:30", "port": 80, "ok": True}


def test_every_problem_is_found_at_once() -> None:
    checked = check(parse(b"agent: {max_turn: 1}\nbudget: {daily_usd: x}\nfoo: 1\n"))
    assert [p.line for p in checked.problems] == [1, 2, 3]
    assert checked.config is None


OLD = [
    ("model: {api_mode: chat_completions}", "chat"),
    ("model: {api_mode: codex_responses}", "responses"),
    ("model: {api_mode: anthropic_messages}", "anthropic"),
    ("model: {api_mode: bedrock_converse}", "bedrock"),
]


@pytest.mark.parametrize(("text", "new"), OLD)
def test_old_protocol_names_work_and_are_reported(text: str, new: str) -> None:
    for section in (text, text.replace("model: {", "providers: {x: {") + "}"):
        checked = check(parse(section.encode()))
        assert checked.config is not None
        found = checked.config.providers["x"] if "providers" in section else checked.config.model
        assert found.api_mode == new
        assert len(checked.notes) == 1 and f"write {new}" in checked.notes[0].text


@pytest.mark.parametrize(
    ("old", "new"), [("manual", "ask"), ("off", "never-ask"), ('"off"', "never-ask")]
)
def test_old_approval_modes_work_and_are_reported(old: str, new: str) -> None:
    checked = check(parse(f"approvals:\n  mode: {old}\n".encode()))
    assert checked.config is not None
    assert checked.config.approvals.mode == new
    assert checked.notes[0].line == 2 and new in checked.notes[0].text


def test_old_forms_of_model_and_fallbacks() -> None:
    checked = check(parse(b"model: gpt\nfallback_providers: [{provider: lab, model: x}, a:b]\n"))
    assert checked.config is not None
    assert checked.config.model.default == "gpt"
    assert checked.config.fallback_providers == ("lab:x", "a:b")
    assert len(checked.notes) == 2


def test_models_of_a_provider_as_a_list_or_with_settings() -> None:
    checked = check(
        parse(b"providers: {a: {models: [m1, m2]}, b: {models: {m: {ttfb_timeout_seconds: 0}}}}")
    )
    assert checked.config is not None
    assert list(checked.config.providers["a"].models) == ["m1", "m2"]
    assert checked.config.providers["b"].models["m"].ttfb_timeout_seconds == 0


def test_the_list_of_keys_covers_the_sections() -> None:
    assert {"model.default", "agent.max_turns", "fallback_providers"} <= set(valid_keys())


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_in_one_sentence(data: bytes) -> None:
    try:
        check(parse(data))
    except ConfigError as error:
        assert str(error).startswith("config.yaml ")
        assert "\n" not in str(error)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["model", "agent", "providers", "default", "max_turns", "mode", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*Config.__struct_fields__, "x"]), _json, max_size=4))
def test_any_data_is_accepted_or_explained(data: dict[str, object]) -> None:
    from hermes.config.yaml_source import Parsed

    checked = check(Parsed(data, {}))
    assert (checked.config is None) == bool(checked.problems)


# -- the cache of the parsed file ---------------------------------------------------------------


def imports_yaml(home: Path) -> bool:
    code = (
        "import sys; from hermes.config.load import load; s = load();"
        "print(s.config.agent.max_turns, 'yaml' in sys.modules)"
    )
    env = {"HERMES_HOME": str(home), "PATH": os.defpath}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    turns, loaded = done.stdout.split()
    assert turns == b"7"
    return loaded == b"True"


def test_the_second_start_does_not_parse_yaml(tmp_path: Path) -> None:
    home = tmp_path / "h"
    read(home, "agent: {max_turns: 7}\n")
    assert not imports_yaml(home)
    assert mode(home / "cache" / "config.json") == 0o600
    (home / "config.yaml").write_text("agent: {max_turns: 7} # changed\n")
    assert imports_yaml(home)
    assert not imports_yaml(home)


@pytest.mark.parametrize("damage", [b"", b"x", b"{}", b"garbage \x00\xff\n{]", None])
def test_a_damaged_cache_is_ignored(tmp_path: Path, damage: bytes | None) -> None:
    home = tmp_path / "h"
    read(home, "agent: {max_turns: 7}\n")
    cache = home / "cache" / "config.json"
    whole = cache.read_bytes()
    cache.write_bytes(whole[:-3] if damage is None else damage)
    assert read(home).config.agent.max_turns == 7
    head, _, body = whole.partition(b"\n")
    cache.write_bytes(head + b"\n" + body.replace(b"7", b"8"))
    assert read(home).config.agent.max_turns == 7


def test_no_secret_is_copied_into_the_cache(tmp_path: Path) -> None:
    home = tmp_path / "h"
    secret = "xyzzy-plugh-1234"
    setup = read(home, f"platforms: {{telegram: {{bot_token: {secret}}}}}\n")
    assert setup.config.platforms["telegram"]["bot_token"] == secret
    for file in home.rglob("*"):
        if file.is_file() and file.name != "config.yaml":
            assert secret.encode() not in file.read_bytes()


# -- homes, profiles, permissions ---------------------------------------------------------------


def test_the_default_home_is_below_HOME_and_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        setup = load(environ={"HOME": str(tmp_path)})
        assert setup.home == tmp_path / ".hermes"
        profile = load("work", environ={"HOME": str(tmp_path)})
    finally:
        os.umask(old)
    assert mode(setup.home) == 0o700
    assert profile.home == tmp_path / ".hermes" / "profiles" / "work"
    assert mode(profile.home) == mode(profile.home.parent) == 0o700


def test_an_open_home_is_closed_with_a_warning(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir()
    home.chmod(0o755)
    setup = load(environ={"HERMES_HOME": str(home)})
    assert mode(home) == 0o700
    assert len(setup.warnings) == 1 and "0700" in setup.warnings[0]
    assert load(environ={"HERMES_HOME": str(home)}).warnings == ()


def test_profiles_have_their_own_config_and_secrets(tmp_path: Path) -> None:
    env = {"HERMES_HOME": str(tmp_path / "h")}
    load("a", environ=env)
    (tmp_path / "h/profiles/a/config.yaml").write_text("agent: {max_turns: 5}\n")
    assert load("a", environ=env).config.agent.max_turns == 5
    assert load("b", environ=env).config.agent.max_turns == 90
    assert load("default", environ=env).home == tmp_path / "h"


@pytest.mark.parametrize(
    "name", ["..", ".", "../x", "a/b", "/etc", "a\\b", "a\0b", "-x", "x" * 65, " ", "a b", "ä"]
)
def test_profile_names_cannot_leave_the_home(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="Profile name"):
        load(name, environ={"HERMES_HOME": str(tmp_path / "h")})
    assert not (tmp_path / "h").exists()


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "h"
    file.write_text("x")
    for home in (file, file / "below"):
        with pytest.raises(ConfigError) as caught:
            load(environ={"HERMES_HOME": str(home)})
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
    setup = load(environ={"HERMES_HOME": str(home)})
    assert mode(home / ".env") == mode(home / "config.yaml") == 0o600
    assert ".env was readable by other users" in setup.warnings[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_an_unreadable_home_is_one_sentence(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir(mode=0o000)
    with pytest.raises(ConfigError, match="not readable"):
        load(environ={"HERMES_HOME": str(home)})


# -- secrets ------------------------------------------------------------------------------------


def test_the_environment_wins_over_the_file_and_nothing_is_exported(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir(mode=0o700)
    (home / ".env").write_text("A_KEY=from-file-1\nB_KEY=from-file-2\nEMPTY_KEY=\n")
    setup = load(environ={"HERMES_HOME": str(home), "A_KEY": "from-env-1", "EMPTY_KEY": " "})
    assert setup.secrets.get("A_KEY") == "from-env-1"
    assert setup.secrets.get("B_KEY") == "from-file-2"
    assert setup.secrets.get("EMPTY_KEY") is None
    assert setup.secrets.get("NOT_THERE") is None
    assert setup.secrets.source("A_KEY") == "environment"
    assert setup.secrets.source("B_KEY") == ".env"
    assert "B_KEY" not in os.environ
    assert "from-file" not in repr(setup)
    assert setup.secrets.known() == {"from-env-1", "from-file-1", "from-file-2"}


def test_a_key_named_by_the_config_is_a_secret_whatever_its_name(tmp_path: Path) -> None:
    setup = read(
        tmp_path / "h",
        "providers: {lab: {api_key_envs: [ODD, OTHER]}}\nmodel: {api_key_env: PLAIN}\n",
        ODD="value-of-odd",
        PLAIN="value-of-plain",
        VISIBLE="value-of-visible",
    )
    assert {"value-of-odd", "value-of-plain"} == setup.secrets.known()
    child = child_env(setup.secrets, {"ODD": "value-of-odd", "PLAIN": "p", "VISIBLE": "v"})
    assert child == {"VISIBLE": "v", "HERMES_CHILD": "1"}


def test_short_values_are_not_worth_redacting() -> None:
    assert Secrets({"A_KEY": "abc", "B_KEY": "abcdefgh"}).known() == {"abcdefgh"}


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
    assert secret_name(name) is secret


def test_the_keys_of_all_providers_are_secrets_by_name() -> None:
    assert [name for name in provider_index().key_variables if not secret_name(name)] == []


def test_a_variable_named_on_the_command_line_is_a_secret_too(tmp_path: Path) -> None:
    env = {"HERMES_HOME": str(tmp_path / "h"), "ODD": "value-of-odd"}
    setup = load(environ=env, keys=["ODD"])
    assert setup.secrets.known() == {"value-of-odd"}
    assert "ODD" not in child_env(setup.secrets, env)


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
    assert child_env(secrets, environ) == {
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
        load(environ={"HERMES_HOME": str(home)})
    assert ".env line 2" in str(caught.value) and "hunter2" not in str(caught.value)


# -- environment --------------------------------------------------------------------------------

PROXY = {"http_proxy": "http://p:1", "HTTPS_PROXY": "q:2", "ALL_PROXY": "socks5://s:3"}


@pytest.mark.parametrize(
    ("url", "extra", "expected"),
    [
        ("http://a.com/x", {}, "http://p:1"),
        ("https://a.com", {}, "http://q:2"),
        ("HTTPS://a.com", {}, "http://q:2"),
        ("wss://a.com", {}, "http://q:2"),
        ("ftp://a.com", {}, "socks5://s:3"),
        ("http://a.com", {"http_proxy": ""}, "socks5://s:3"),
        ("http://a.com", {"http_proxy": "", "HTTP_PROXY": "http://u:4"}, "http://u:4"),
        (
            "http://a.com",
            {"http_proxy": "", "HTTP_PROXY": "http://evil", "REQUEST_METHOD": "GET"},
            "socks5://s:3",
        ),
        ("http://a.com", {"NO_PROXY": "a.com"}, None),
        ("http://x.a.com", {"NO_PROXY": "b.org, a.com"}, None),
        ("http://x.a.com", {"NO_PROXY": ".a.com"}, None),
        ("http://x.a.com", {"NO_PROXY": "*.a.com"}, None),
        ("http://xa.com", {"NO_PROXY": "a.com"}, "http://p:1"),
        ("http://a.com.", {"NO_PROXY": "A.COM"}, None),
        ("http://a.com", {"NO_PROXY": "*"}, None),
        ("http://a.com:8080", {"NO_PROXY": "a.com:8080"}, None),
        ("http://a.com:8081", {"NO_PROXY": "a.com:8080"}, "http://p:1"),
        ("http://a.com", {"NO_PROXY": "a.com:80"}, None),
        ("http://127.0.0.1:5000/v1", {}, "http://p:1"),
        ("http://127.0.0.1:5000/v1", {"NO_PROXY": "127.0.0.1"}, None),
        ("http://10.1.2.3", {"NO_PROXY": "10.0.0.0/8"}, None),
        ("http://11.1.2.3", {"NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
        ("http://a.com", {"NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
        ("http://[::1]:80/", {"NO_PROXY": "::1"}, None),
        ("http://[fd00::1]/", {"NO_PROXY": "fd00::/8"}, None),
        ("http://user:pw@a.com/", {"NO_PROXY": "a.com"}, None),
        ("http://a.com", {"no_proxy": "b.com", "NO_PROXY": "a.com"}, "http://p:1"),
        ("http://a.com", {"NO_PROXY": " , "}, "http://p:1"),
    ],
)
def test_proxies(url: str, extra: dict[str, str], expected: str | None) -> None:
    assert proxy_for(url, {**PROXY, **extra}) == expected
    assert proxy_for(url, {}) is None


def test_colours() -> None:
    assert colours(True, {"TERM": "xterm"})
    assert not colours(False, {"TERM": "xterm"})
    assert not colours(True, {"TERM": "xterm", "NO_COLOR": "1"})
    assert not colours(True, {"TERM": "dumb"})
    assert not colours(True, {})


def test_arguments_are_utf8_whatever_the_locale_made_of_them() -> None:
    assert argument_text("plain") == "plain"
    raw = "grüß 日本".encode()
    assert argument_text(raw.decode(sys.getfilesystemencoding(), "surrogateescape")) == "grüß 日本"
    assert argument_text("\udcff").isprintable()


def test_the_working_folder_is_where_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is remembered, and yet followed when it is moved, replaced or gone."""
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert working_folder(".") == working_folder(".") == tmp_path / "a"
    (tmp_path / "a").rename(tmp_path / "b")
    assert working_folder(".") == tmp_path / "b"
    link = tmp_path / "link"
    link.symlink_to("b")
    assert working_folder(str(link)) == tmp_path / "b"
    link.unlink()
    (tmp_path / "c").mkdir()
    link.symlink_to("c")
    assert working_folder(str(link)) == tmp_path / "c"
    (tmp_path / "c").rmdir()
    with pytest.raises(ConfigError, match="does not exist"):
        working_folder(str(link))
