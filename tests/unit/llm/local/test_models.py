"""The data file of the embedded models."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hermes.llm.local import models
from hermes.llm.local.models import DEFAULT, MODELS, LocalModel, find_model
from hermes.llm.local.puller import Puller


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_model_has_a_digest_and_a_source(model: LocalModel) -> None:
    assert len(bytes.fromhex(model.sha256)) == 32 and model.size > 10**7
    assert model.hub.startswith("https://") or model.wheels
    assert model.wheels is None or len(set(model.wheels.packages)) == len(model.wheels.packages)
    assert find_model(model.file_name) is model


def test_the_default_has_both_sources_and_the_hub_comes_first(tmp_path: Path) -> None:
    model = find_model(DEFAULT)
    assert model is not None and model.hub and model.wheels
    puller = Puller(tmp_path, None, ["https://one.example", "https://two.example"], print)  # type: ignore[arg-type]
    labels = [source.label for source in puller._list_sources(model)]
    assert labels == ["hub", "index", "index1"]


def test_the_file_says_where_the_models_come_from() -> None:
    text = Path(models.__file__).with_name("models.toml").read_text(encoding="utf-8")
    intro = text.partition("default =")[0]
    assert intro.index("`hub`") < intro.index("`wheels`") < intro.index("sha256")


def test_a_field_nobody_knows_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"default": "x", "models": [], "mirror": "y"}, models._Catalog)
