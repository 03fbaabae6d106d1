"""The report of `hermes model test`."""

from __future__ import annotations

import pytest

from hermes.app.control.model_probe import ModelTrial
from hermes.cli.model import show
from hermes.core.message import Target


@pytest.mark.parametrize(
    ("base_url", "place"),
    [
        ("local://local-model/8192/%2Fhome%2Fme%2Fmodel.gguf", "on this machine"),
        ("https://api.acme.example/v1", "at https://api.acme.example/v1"),
    ],
)
def test_where_the_model_is(base_url: str, place: str) -> None:
    trial = ModelTrial(Target("acme", "acme-large", "chat"), base_url, key="")
    assert show._format_trial(trial)[0] == f"acme:acme-large {place} (chat)"
