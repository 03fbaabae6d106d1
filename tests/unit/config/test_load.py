"""Loading config.yaml: its keys, its errors with their lines, old names, the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.schema import Config
from hermes.config.validate import list_keys, validate_config
from hermes.config.yaml_source import parse_yaml
from hermes.core.errors import ConfigError
from tests.unit.config.homes import load_home, mode_of

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


def test_the_documented_example_is_read_key_by_key(tmp_path: Path) -> None:
    config = load_home(tmp_path / "h", EXAMPLE).config
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
    assert load_home(tmp_path / "h", text).config == Config()
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
    assert load_home(tmp_path / "h", text).config.agent.max_turns == 7


BAD = [
    (
        "display:\n  keys:\n    transcrip: f2\n",
        "line 3: unknown key display.keys.transcrip; did you mean display.keys.transcript?",
    ),
    (
        "display:\n  keys:\n    transcript: ctrl-c\n",
        "line 3: display.keys.transcript must be a key such as ctrl-g, alt-g or f2, not 'ctrl-c'",
    ),
    (
        "display:\n  keys:\n    transcript: ctrl-o\n",
        "line 3: display.keys: ctrl-o is the key of both transcript and tool_output",
    ),
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
    (
        "hooks:\n  pre_tool_call:\n    - command: [/bin/true]\n",
        "line 3: hooks.pre_tool_call[0].command must be text, not a list",
    ),
    (
        "hooks: {pre_tool_call: [{matcher: terminal}]}\n",
        "line 1: hooks.pre_tool_call[0] needs command",
    ),
    (
        "hooks: {pre_tool_call: {command: x}}\n",
        "line 1: hooks.pre_tool_call must be a list of mappings, not a mapping",
    ),
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
    (
        "cluster: {roles: [api, root]}\n",
        "cluster.roles must be a list of one or more of api, gateway, worker",
    ),
    ("cluster: {roles: []}\n", "cluster.roles must be a list of one or more of api"),
    ("cluster: {roles: api}\n", "of api, gateway, worker, not 'api'"),
    (
        "cluster: {node: a b}\n",
        "node must be text of the form ^[A-Za-z0-9._-]{0,64}$, not 'a b'",
    ),
    (
        "cluster: {workspaces: shared:x}\n",
        "text of the form ^(none|snapshot|shared:/.+)$",
    ),
    ("cluster: {events_hours: .inf}\n", "must be a number of at least 1 and at most 100000"),
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
        load_home(tmp_path / "h", text)
    message = str(caught.value)
    assert message.startswith("config.yaml ")
    assert expected in message
    assert "\n" not in message
    assert "hunter2" not in message and "sk-abc" not in message
    assert file.read_bytes() == text.encode()


def test_quotes_are_suggested_only_where_text_is_expected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tools\.enabled must be a list of texts, not true$"):
        load_home(tmp_path / "h", "tools: {enabled: yes}\n")


def test_a_list_with_a_wrong_value_is_not_said_to_be_no_list(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one or more of api, gateway, worker$"):
        load_home(tmp_path / "h", "cluster: {roles: [api, root]}\n")


def test_bytes_that_are_no_text_name_their_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.yaml line 2: not UTF-8"):
        load_home(tmp_path / "h", b"model:\n  default: \xff\xfe\n")


def test_aliases_cannot_fill_the_memory(tmp_path: Path) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for name, before in zip("bcdefgh", "abcdefg", strict=True):
        bomb += f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    with pytest.raises(ConfigError, match="too many aliases"):
        load_home(tmp_path / "h", bomb)


def test_merge_keys_work(tmp_path: Path) -> None:
    text = (
        "providers:\n  a: &base {base_url: 'http://a/v1', stale_timeout_seconds: 5}\n"
        "  b:\n    <<: *base\n    base_url: http://b/v1\n"
    )
    providers = load_home(tmp_path / "h", text).config.providers
    assert providers["b"].base_url == "http://b/v1"
    assert providers["b"].stale_timeout_seconds == 5


def test_dates_and_times_of_day_stay_text(tmp_path: Path) -> None:
    text = "platforms: {x: {day: 2026-01-31, at: 12:30, port: 8_0, ok: yes}}\n"
    row = load_home(tmp_path / "h", text).config.platforms["x"]
    assert row == {"day": "2026-01-31", "at": "12:30", "port": 80, "ok": True}


def test_every_problem_is_found_at_once() -> None:
    checked = validate_config(parse_yaml(b"agent: {max_turn: 1}\nbudget: {daily_usd: x}\nfoo: 1\n"))
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
        checked = validate_config(parse_yaml(section.encode()))
        assert checked.config is not None
        found = checked.config.providers["x"] if "providers" in section else checked.config.model
        assert found.api_mode == new
        assert len(checked.notes) == 1 and f"write {new}" in checked.notes[0].text


@pytest.mark.parametrize(
    ("old", "new"), [("manual", "ask"), ("off", "never-ask"), ('"off"', "never-ask")]
)
def test_old_approval_modes_work_and_are_reported(old: str, new: str) -> None:
    checked = validate_config(parse_yaml(f"approvals:\n  mode: {old}\n".encode()))
    assert checked.config is not None
    assert checked.config.approvals.mode == new
    assert checked.notes[0].line == 2 and new in checked.notes[0].text


def test_old_forms_of_model_and_fallbacks() -> None:
    checked = validate_config(
        parse_yaml(b"model: gpt\nfallback_providers: [{provider: lab, model: x}, a:b]\n")
    )
    assert checked.config is not None
    assert checked.config.model.default == "gpt"
    assert checked.config.fallback_providers == ("lab:x", "a:b")
    assert len(checked.notes) == 2


def test_models_of_a_provider_as_a_list_or_with_settings() -> None:
    checked = validate_config(
        parse_yaml(
            b"providers: {a: {models: [m1, m2]}, b: {models: {m: {ttfb_timeout_seconds: 0}}}}"
        )
    )
    assert checked.config is not None
    assert list(checked.config.providers["a"].models) == ["m1", "m2"]
    assert checked.config.providers["b"].models["m"].ttfb_timeout_seconds == 0


def test_the_list_of_keys_covers_the_sections() -> None:
    assert {"model.default", "agent.max_turns", "fallback_providers"} <= set(list_keys())


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_in_one_sentence(data: bytes) -> None:
    try:
        validate_config(parse_yaml(data))
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
    from hermes.config.yaml_source import ParsedYaml

    checked = validate_config(ParsedYaml(data, {}))
    assert (checked.config is None) == bool(checked.problems)


# -- the cache of the parsed file ---------------------------------------------------------------


def imports_yaml(home: Path) -> bool:
    code = (
        "import sys; from hermes.config.load import load_setup; s = load_setup();"
        "print(s.config.agent.max_turns, 'yaml' in sys.modules)"
    )
    env = {"HERMES_HOME": str(home), "PATH": os.defpath}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    turns, loaded = done.stdout.split()
    assert turns == b"7"
    return loaded == b"True"


def test_the_second_start_does_not_parse_yaml(tmp_path: Path) -> None:
    home = tmp_path / "h"
    load_home(home, "agent: {max_turns: 7}\n")
    assert not imports_yaml(home)
    assert mode_of(home / "cache" / "config.json") == 0o600
    (home / "config.yaml").write_text("agent: {max_turns: 7} # changed\n")
    assert imports_yaml(home)
    assert not imports_yaml(home)


@pytest.mark.parametrize("damage", [b"", b"x", b"{}", b"garbage \x00\xff\n{]", None])
def test_a_damaged_cache_is_ignored(tmp_path: Path, damage: bytes | None) -> None:
    home = tmp_path / "h"
    load_home(home, "agent: {max_turns: 7}\n")
    cache = home / "cache" / "config.json"
    whole = cache.read_bytes()
    cache.write_bytes(whole[:-3] if damage is None else damage)
    assert load_home(home).config.agent.max_turns == 7
    head, _, body = whole.partition(b"\n")
    cache.write_bytes(head + b"\n" + body.replace(b"7", b"8"))
    assert load_home(home).config.agent.max_turns == 7


def test_no_secret_is_copied_into_the_cache(tmp_path: Path) -> None:
    home = tmp_path / "h"
    secret = "xyzzy-plugh-1234"
    setup = load_home(home, f"platforms: {{telegram: {{bot_token: {secret}}}}}\n")
    assert setup.config.platforms["telegram"]["bot_token"] == secret
    for file in home.rglob("*"):
        if file.is_file() and file.name != "config.yaml":
            assert secret.encode() not in file.read_bytes()
