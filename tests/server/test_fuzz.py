"""schemathesis tests /openapi.json: no 500, and no status or shape that is not documented."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import Home, say
from tests.kit.home import program
from tests.kit.server import Provider

schemathesis = pytest.importorskip("schemathesis")
requests = pytest.importorskip("requests")

CASES = 2000
KEY = "fuzz-key-0123456789abcdef"
HEADERS = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """The program itself with a model that always says Yes."""
    with Provider(then=say("Yes.")) as provider:
        home = Home.of(folder, provider)
        home.configure(terminal={"cwd": str(home.work)})
        process = subprocess.Popen(
            [*program(), "serve", "--port", "0"],
            env={**home.env, "API_SERVER_KEY": KEY, "PYTHONFAULTHANDLER": "1"},
            cwd=home.work,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert "listening on " in line, line
            yield line.rpartition(" ")[2].strip()
        finally:
            process.terminate()
            assert process.wait(15) == 0
            process.stderr.close()
        log = "".join(p.read_text() for p in home.path.rglob("*.log"))
        assert "crashed" not in log and "Traceback" not in log, log[-3000:]


def _strategies(url: str, half: int) -> list[tuple[Any, int]]:
    """Strategies and how often to use them: most for routes with input, valid and invalid."""
    from schemathesis import GenerationMode

    document = requests.get(f"{url}/openapi.json", headers=HEADERS, timeout=60).json()
    del document["security"]  # keys are the matrix' business: here everybody has one
    schema = schemathesis.openapi.from_dict(document)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 25
    found = []
    for operation in operations[half::HALVES]:
        takes = operation.body or operation.path_parameters or operation.query
        found.append(
            (operation.as_strategy(generation_mode=GenerationMode.POSITIVE), 40 if takes else 4)
        )
        if takes:
            wrong = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
            found.append((wrong, 20))
    return found


HALVES = 2
"""So that two workers share the work."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("half", range(HALVES))
def test_S7_every_response_is_documented(url: str, half: int) -> None:
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    seen: Counter[int] = Counter()
    strategies = _strategies(url, half)
    scale = CASES * 1.05 / HALVES / sum(share for _, share in strategies)
    with requests.Session() as http:
        for strategy, share in strategies:

            @seed(20260101)
            @settings(
                max_examples=max(1, round(share * scale)),
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            )
            @given(case=strategy)
            def ask(case: Any) -> None:
                answer = case.call(base_url=url, headers=HEADERS, session=http, timeout=60)
                seen[answer.status_code] += 1
                case.validate_response(answer, checks=checks)

            ask()
    told = f"{seen.total()} cases: {dict(seen)}"
    assert seen.total() >= CASES / HALVES, told
    assert min(seen[200], seen[400], seen[404]) >= 50, told
