"""Without a sandbox, reading programs run by themselves only when every path is in their words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.app.agents import Options
from hermes.exec import sandbox_probe
from hermes.exec.sandbox import SandboxTier
from tests.flow.test_network_grants import answering, results
from tests.kit.replies import call, say
from tests.kit.rig import rig

CANARY = "canary-4b1e77"
RUN_TIME = r"""
cat "$(echo {user}/.ssh/id_rsa)"
cat $(printf %s {user}/.ssh/id_rsa)
cat `echo {user}/.ssh/id_rsa`
cat "$HOME/.ssh/id_rsa"
cat ${HOME}/.ssh/id_rsa
F={user}/.ssh/id_rsa; cat "$F"
F={user}; cat $F/.ssh/id_rsa
export D={user}/.ssh && cat $D/id_rsa
cat {user}/.s*/id_rsa
cat {user}/.ss[h]/id_rs?
cat {user}/.{ss,x}h/id_rsa
cat {user}/{.ssh,x}/id_rsa
head -n 5 {user}/.ssh/*
cd {user} && cat .ssh/id_rsa
cd {user}/.ssh; cat id_rsa
cd {user}/.ssh && grep -r . .
pushd {user} && cat .ssh/id_rsa
cat {user}/.ssh/id_rsa
cat ~/.ssh/id_rsa
cat link/.ssh/id_rsa
cat ../user/.ssh/id_rsa
cat /proc/self/root{user}/.ssh/id_rsa
cat < {user}/.ssh/id_rsa
cat <<< "$(< {user}/.ssh/id_rsa)"
grep -r canary {user}
grep -r canary ~
rg --hidden canary {user}
find {user} -name id_rsa -exec cat {} +
find {user} -name id_rsa | xargs cat
find {user} -type f -print0 | xargs -0 head
xargs cat < list.txt
xargs -a list.txt cat
sed -n p {user}/.ssh/id_rsa
sed -n 'r {user}/.ssh/id_rsa' notes.txt
awk 1 {user}/.ssh/id_rsa
tail -n +1 -- "$HOME"/.ssh/id_rsa
while read -r f; do cat "$f"; done < list.txt
for f in {user}/.ssh/*; do cat "$f"; done
sort --files0-from=list0.txt
wc --files0-from=list0.txt
grep -f {user}/.ssh/id_rsa /dev/null
diff /dev/null {user}/.ssh/id_rsa
git diff --no-index /dev/null {user}/.ssh/id_rsa
git -C {user} log
tar cf - {user}/.ssh
base64 {user}/.ssh/id_rsa
python3 -c "print(open('{user}/.ssh/id_rsa').read())"
bash -c 'cat {user}/.ssh/id_rsa'
eval "cat {user}/.ssh/id_rsa"
source {user}/.ssh/id_rsa
c=cat; $c {user}/.ssh/id_rsa
env cat {user}/.ssh/id_rsa
command cat {user}/.ssh/id_rsa
cat "{user}/.ssh/"id_rsa
cat {user}/.ss\h/id_rsa
cat {user}/./.ssh//id_rsa
cat $'{user}/.ss\x68/id_rsa'
jq -R . {user}/.ssh/id_rsa
jq --rawfile a {user}/.ssh/id_rsa -n '$a'
less {user}/.ssh/id_rsa
cat /proc/1/environ
cat /proc/self/environ
ps eww
""".strip().splitlines()
MODES: dict[str, dict[str, Any]] = {
    "full access": {"sandbox": {"mode": "full-access"}},
    "no sandbox": {},
}


@pytest.mark.parametrize("mode", MODES)
async def test_what_only_run_time_tells_asks(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "no sandbox":
        monkeypatch.setattr(sandbox_probe, "_known_tier", SandboxTier(3, "none"))
    user = tmp_path / "user"
    (user / ".ssh").mkdir(parents=True)
    (user / ".ssh" / "id_rsa").write_text(f"{CANARY}\n")
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("SECRET_OF_TESTS", CANARY)
    commands = [line.replace("{user}", str(user)) for line in RUN_TIME]
    calls = [(f"c{n}", "terminal", {"command": text}) for n, text in enumerate(commands)]
    steps = [*(call(one) for one in calls), say("done")]
    options = Options(max_turns=len(steps) + 5)
    env = {"HOME": str(user)}
    async with rig(tmp_path, steps, options=options, config=MODES[mode], env=env) as r:
        r.home.file("list.txt", f"{user}/.ssh/id_rsa\n")
        r.home.file("list0.txt", f"{user}/.ssh/id_rsa\0")
        r.home.file("notes.txt", "notes\n")
        (r.home.work / "link").symlink_to(user)
        await r.turn()
        answers = await results(r)
        told = json.dumps([request.json for request in r.requests])
    ran = [c for c, a in zip(commands, answers, strict=True) if not a.startswith("Not run")]
    assert ran == [] and CANARY not in told


async def test_they_ask_when_somebody_is_there_and_plain_reading_does_not(tmp_path: Path) -> None:
    steps = [
        call(("c1", "terminal", {"command": "cat notes.txt | grep -n one && ls -la"})),
        call(("c2", "terminal", {"command": 'cat "$(echo notes.txt)"'})),
        say("done"),
    ]
    config = MODES["full access"]
    async with rig(tmp_path, steps, options=Options(), config=config) as r:
        r.home.file("notes.txt", "one\n")
        (asked,) = await answering(r, "once")
        plain, dynamic = await results(r)
    assert "known only at run time" in asked.summary
    assert "1:one" in plain and dynamic == "one"
