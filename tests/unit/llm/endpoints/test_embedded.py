"""Which embedded model is used, where files are looked for, and which index is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.config.packages.index import PUBLIC_INDEX, list_indexes
from hermes.config.schema import Config, ModelSection
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.llm.endpoints import embedded
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.local.models import DEFAULT, MODELS, find_model
from hermes.llm.local.uri import ServedModel, build_uri, parse_uri


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "is_engine_installed", lambda: True)


def chosen(home: Path, choice: ModelChoice = ModelChoice(), **environ: str) -> ModelEndpoint:  # noqa: B008
    env = {"HOME": str(home), "HERMES_HOME": str(home / "h"), **environ}
    return resolve_chain(Config(), Secrets(env), choice)[0]


def test_it_answers_when_nothing_is_connected_and_says_so(tmp_path: Path) -> None:
    found = chosen(tmp_path)
    assert (found.target.provider, found.target.model) == ("local", DEFAULT)
    assert "small local model" in found.note and "OPENROUTER_API_KEY" in found.note
    assert found.quirks.calling == "schema" and found.quirks.small
    assert parse_uri(found.base_url)[0].file == str(tmp_path / "h" / "models" / f"{DEFAULT}.gguf")


def test_a_key_comes_first(tmp_path: Path) -> None:
    found = chosen(tmp_path, OPENAI_API_KEY="sk-1234567890")
    assert found.target.provider == "openai" and not found.note


def test_a_model_somebody_named_is_not_replaced_by_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        chosen(tmp_path, ModelChoice(model="gpt-5"))


def test_without_the_engine_the_command_to_get_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "is_engine_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"hermes-runtime\[local\]"):
        chosen(tmp_path)
    with pytest.raises(ConfigError, match=r"hermes-runtime\[local\]"):
        chosen(tmp_path, ModelChoice(provider="local"))


def test_another_model_that_is_here_is_better_than_a_download(tmp_path: Path) -> None:
    larger = find_model("qwen2.5-coder-1.5b")
    assert larger is not None
    file = tmp_path / ".cache" / "hermes" / "models" / larger.file_name
    file.parent.mkdir(parents=True)
    with file.open("wb") as out:
        out.truncate(larger.size)
    found = chosen(tmp_path)
    assert found.target.model == larger.name
    assert parse_uri(found.base_url)[0].file == str(file), "the shared folder is looked at too"
    assert embedded.find_missing_model(found.base_url) is None


def test_what_is_not_complete_is_still_to_be_downloaded(tmp_path: Path) -> None:
    missing = embedded.find_missing_model(chosen(tmp_path).base_url)
    assert missing is not None and missing.name == DEFAULT


def test_any_file_can_be_named(tmp_path: Path) -> None:
    file = tmp_path / "a model #1.gguf"
    file.write_bytes(b"GGUF")
    found = chosen(tmp_path, ModelChoice(model=f"local:{file}"))
    assert parse_uri(found.base_url + "/chat/completions") == (
        ServedModel(str(file), 8192),
        "/v1/chat/completions",
    )
    assert embedded.find_missing_model(found.base_url) is None
    for wrong in ("local:/no/such.gguf", "local:gpt-5"):
        with pytest.raises(ConfigError, match=r"does not exist|Unknown embedded model"):
            chosen(tmp_path, ModelChoice(model=wrong))


def test_the_context_can_be_set(tmp_path: Path) -> None:
    config = Config(model=ModelSection(provider="local", context_length=16384))
    found = resolve_chain(config, Secrets({"HOME": str(tmp_path)}), ModelChoice())[0]
    assert parse_uri(found.base_url)[0].context == found.context_length == 16384


def test_a_model_that_only_chats_is_offered_no_tools(tmp_path: Path) -> None:
    assert chosen(tmp_path, ModelChoice(model="local:smollm2")).quirks.tools is False


def test_addresses_survive_any_name(tmp_path: Path) -> None:
    for name in ("/a/b.gguf", "/ä b/%2F?#.gguf", "/x@y:z/ü.gguf"):
        assert parse_uri(build_uri(ServedModel(name, 1)) + "/models") == (
            ServedModel(name, 1),
            "/v1/models",
        )


def test_the_catalogue_is_whole() -> None:
    names = [n for m in MODELS for n in (m.name, *m.aliases)]
    assert len(names) == len(set(names)) and find_model(DEFAULT) is not None
    for model in MODELS:
        assert len(model.sha256) == 64 and model.licence and (model.hub or model.wheels)


# -- the index -------------------------------------------------------------------------------


def index(tmp_path: Path, conf: str = "", **environ: str) -> tuple[str, ...]:
    env = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path), **environ}
    if conf:
        (tmp_path / ".config" / "pip").mkdir(parents=True)
        (tmp_path / ".config" / "pip" / "pip.conf").write_text(conf)
    return list_indexes(env)


CONF = (
    "[global]\nindex-url = https://conf.example/simple/\nextra-index-url =\n  https://e.example/s\n"
)


@pytest.mark.parametrize(
    ("conf", "environ", "first"),
    [
        ("", {"PIP_CONFIG_FILE": "/dev/null"}, PUBLIC_INDEX),
        (CONF, {}, "https://conf.example/simple"),
        (CONF, {"PIP_INDEX_URL": "https://pip.example/simple/"}, "https://pip.example/simple"),
        (CONF, {"UV_DEFAULT_INDEX": "lab=https://uv.example/s"}, "https://uv.example/s"),
        (
            "",
            {"UV_INDEX_URL": "https://uv.example/s", "PIP_INDEX_URL": "x"},
            "https://uv.example/s",
        ),
    ],
)
def test_the_index_is_the_one_pip_and_uv_use(
    tmp_path: Path, conf: str, environ: dict[str, str], first: str
) -> None:
    assert index(tmp_path, conf, **environ)[0] == first


def test_more_indexes_follow_and_files_are_none(tmp_path: Path) -> None:
    assert index(tmp_path, CONF)[:2] == ("https://conf.example/simple", "https://e.example/s")
    found = list_indexes(
        {"PIP_CONFIG_FILE": "/dev/null", "PIP_EXTRA_INDEX_URL": "file:///x https://y/s"}
    )
    assert found == (PUBLIC_INDEX, "https://y/s")


def test_no_index_means_none(tmp_path: Path) -> None:
    assert index(tmp_path, PIP_NO_INDEX="1") == ()
    assert index(tmp_path, "[install]\nno-index = true\n") == ()
    assert list_indexes({"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "0"}) == (PUBLIC_INDEX,)
