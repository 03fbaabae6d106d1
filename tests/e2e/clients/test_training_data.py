"""What runs write, read by the packages that training and evaluation use."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from tests.e2e.clients.client_run import SCRIPTS, install_python
from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say, think
from tests.kit.bodies import messages
from tests.kit.repositories import make_repository, run_git, write_tasks

PACKAGES = ("datasets==5.2.0", "jinja2==3.1.6", "swebench==5.0.2")


async def read_files(folder: Path, *more: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *map(str, (install_python(PACKAGES), SCRIPTS / "training_data.py", folder, *more)),
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_OFFLINE": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(200):
        out, error = await process.communicate()
    assert process.returncode == 0, error.decode()[-2000:]
    return dict(json.loads(out.splitlines()[-1]))


def answer(request: Received) -> Reply:
    """Every third item is only text, some reason, the others call two tools at once."""
    seen = messages(request)
    number = int(next(m.text for m in seen if m.role == "user").split()[1])
    if seen[-1].results or number % 3 == 0:
        said = say(f"done {number}")
        return think("it is clear") + said if number % 2 else said
    return call(("c1", "read_file", {"path": "a.txt"}), ("c2", "read_file", {"path": "none"}))


async def test_every_format_is_read_with_one_schema(tmp_path: Path) -> None:
    async with Provider([], then=answer) as provider:
        home = Home.of(tmp_path, provider)
        file = home.work / "data.jsonl"
        rows: list[dict[str, Any]] = [
            {
                "prompt": f"prompt {number}",
                "files": {"a.txt": f"text {number}"},
                "metadata": {"level": number} if number % 2 else {"why": "even", "tags": ["a"]},
                **({"toolsets": ["none"]} if number % 6 == 0 else {}),
            }
            for number in range(24)
        ]
        file.write_text("\n".join(map(json.dumps, rows)))
        forms = "hermes,openai,sharegpt,raw,parquet"
        ran = await run_hermes(["batch", "run", str(file), "--format", forms], home)
        assert ran.rc == 0, ran
    found = await read_files(home.path / "batch" / "data")
    assert found["rows"] == 24
    text = found["texts"][1]
    assert "<tools>" in text and '"name": "read_file"' in text
    assert '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.txt"}}\n' in text
    assert text.count("<tool_response>") == 2 and "text 1" in text
    assert "<think>\nit is clear\n</think>\ndone 1<|im_end|>" in text
    assert "<tools>" not in found["texts"][6] and "done 6<|im_end|>" in found["texts"][6]


async def test_predictions_are_read_by_their_evaluation(tmp_path: Path) -> None:
    folder, base = make_repository(tmp_path / "repos" / "acme__calc", "gold")
    fix = call(("c1", "patch", {"path": "calc.py", "old_string": "a - b", "new_string": "a + b"}))
    async with Provider(
        [], then=lambda request: say("fixed") if messages(request)[-1].results else fix
    ) as provider:
        home = Home.of(tmp_path, provider)
        args = ["swe", "run", str(write_tasks(tmp_path, base, "gold")), "--repos", "../repos"]
        forms = "hermes,openai,sharegpt,raw,parquet"
        ran = await run_hermes([*args, "--toolsets", "file", "--format", forms], home)
        assert ran.rc == 0, ran
    run = home.path / "batch" / "tasks"
    found = (await read_files(run, run / "predictions.jsonl"))["predictions"]
    assert [row["instance_id"] for row in found] == ["acme__calc-1", "acme__calc-2"]
    run_git(folder, "checkout", "-q", base)
    run_git(folder, "apply", "-", given=found[0]["model_patch"])
    assert "a + b" in (folder / "calc.py").read_text()
