"""Credentials of a home stay closed to commands and scripts, in every tier."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes.app.agents import Options
from hermes.exec.sandbox import SandboxTier
from tests.flow.test_network_grants import answering, outside_of_homes, results, tier
from tests.kit.credential_files import CANARY, KINDS, fill_home
from tests.kit.replies import call, say
from tests.kit.rig import rig

__all__ = ["outside_of_homes", "tier"]  # fixtures
STEAL = """
import os, sys
for name in {names}:
    for path in (os.path.join({home!r}, name), os.path.join(os.environ['HOME'], name)):
        try:
            with open(path, 'rb') as file:
                sys.stdout.buffer.write(path.encode() + b' ' + file.read())
        except OSError:
            pass
print('tried', len({names}))
"""
ASK_TOOLS = """
from hermes_tools import read_file, search_files
told = 0
for name in {names}:
    for tool, args in ((read_file, dict(path={home!r} + '/' + name)),
                       (search_files, dict(path={home!r} + '/' + name, pattern='word'))):
        try:
            print(tool(**args))
        except Exception as error:
            told += 'Denied' in str(error)
print('refused', told)
"""


@pytest.mark.parametrize("place", ["beside", "inside", "home"])
async def test_no_command_and_no_script_reads_one(
    tmp_path: Path, tier: SandboxTier, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = tmp_path / "user"
    (user / "project").mkdir(parents=True)
    folder = {"beside": tmp_path / "work", "inside": user / "project", "home": user}[place]
    fill_home(user)
    monkeypatch.setenv("HOME", str(user))
    direct = STEAL.format(names=KINDS, home=str(user))
    asking = ASK_TOOLS.format(names=KINDS[::7], home=str(user))
    scripts = [{"name": "execute_code", "arguments": {"code": code}} for code in (direct, asking)]
    steps = [
        call(("c1", "terminal", {"command": "python3 steal.py"})),
        call(("c2", "terminal", {"command": f"grep -r {CANARY[:6]} {user} ~ 2>&1 | head -c 9000"})),
        call(("c3", "tool_search", scripts[0]), ("c4", "tool_search", scripts[1])),
        say("done"),
    ]
    if place != "beside":
        (tmp_path / "work").symlink_to(folder)
    async with rig(tmp_path, steps, options=Options()) as r:
        (folder / "steal.py").write_text(direct)
        await answering(r, "once")
        command, _, script, tools = await results(r)
    sent = json.dumps([request.json for request in r.requests])
    assert f"tried {len(KINDS)}" in command and f"tried {len(KINDS)}" in script
    assert f"refused {2 * len(KINDS[::7])}" in tools
    assert CANARY not in sent, {n for n in KINDS if f"{n} GIF" in sent}
