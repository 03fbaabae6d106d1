"""Leaving the walls: one question, exactly what it says, for as long as the answer says."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes.app.agents import Options
from hermes.core.events import Answer, Approval
from hermes.exec.sandbox import SandboxTier
from tests.flow.test_network_grants import (
    HOST,
    answering,
    outside_of_homes,
    results,
    session,
    site,
    tier,
)
from tests.kit.replies import call, say
from tests.kit.rig import Rig, rig

__all__ = ["outside_of_homes", "tier"]  # fixtures
ASK = Options()


def run(command: str, name: str = "c1", **escalate: Any) -> Any:
    arguments: dict[str, Any] = {"command": command}
    if escalate:
        arguments["escalate"] = {"why": "the task needs it", **escalate}
    return call((name, "terminal", arguments))


def open_to(port: int) -> dict[str, Any]:
    """The server of the test is on this machine, which the web settings must allow."""
    return {"web": {"allow_hosts": [f"{HOST}:{port}"]}}


async def test_the_network_for_one_command(tmp_path: Path, tier: SandboxTier) -> None:
    async with site() as (port, seen), site() as (other, foreign):
        get = f"touch sub/x; python3 fetch.py http://{HOST}:"
        steps = [
            run(f"{get}{port}/", "c1", network=[f"{HOST}:{port}"]),
            run(f"{get}{other}/", "c2", network=[f"{HOST}:{port}"]),
            run(f"{get}{port}/ || true", "c3"),
            say("done"),
        ]
        async with session(tmp_path, steps, open_to(port)) as r:
            asked = await answering(r, "once")
            reached, refused, without = await results(r)
        assert [a.choices for a in asked] == [("once", "deny")] * 2
        assert (
            f'it wants to reach {HOST}:{port}. The model\'s reason is "the task needs it"'
            in asked[0].summary
        )
        assert reached == "hello" and len(seen) == 1
        assert refused.startswith("403 ") and foreign == []
        assert "Error" in without


async def test_the_whole_internet_is_said_so(tmp_path: Path, tier: SandboxTier) -> None:
    async with site() as (port, seen):
        steps = [run(f"python3 fetch.py http://{HOST}:{port}/", network=True), say("done")]
        async with session(tmp_path, steps, open_to(port)) as r:
            (asked,) = await answering(r, "once")
            assert await results(r) == ["hello"]
        assert "it wants to reach the internet" in asked.summary and len(seen) == 1


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/", "http://printer.lan/x", "https://example.org:22"], ids=str
)
async def test_a_yes_that_cannot_work_is_not_asked_for(tmp_path: Path, url: str) -> None:
    """Neither when a command names the host itself."""
    async with rig(tmp_path, [run(f"curl -sS {url}"), say("done")], options=ASK) as r:
        assert await answering(r, "once") == []
        (text,) = await results(r)
    assert "the sandbox has no network" in text


@pytest.mark.parametrize(
    "text", ["mytool up < README", "mytool up > x", "mytool $X", "mytool *", "mytool ?e?r?t"]
)
async def test_a_yes_to_what_only_run_time_tells_counts_once(tmp_path: Path, text: str) -> None:
    hosts = ["example.invalid"]
    steps = [run(text, "c1", network=hosts), run(text, "c2", network=hosts), say("done")]
    async with rig(tmp_path, steps, options=ASK) as r:
        asked = await answering(r, "once")
    assert [a.choices for a in asked] == [("once", "deny")] * 2


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
@pytest.mark.parametrize("answer", ["session", "always"])
async def test_the_yes_is_remembered_for_that_program_and_that_access(
    tmp_path: Path, tier: SandboxTier, answer: str
) -> None:
    async with site() as (port, _):
        at = [f"{HOST}:{port}"]
        steps = [
            run("make get", "c1", network=at),
            run("make get", "c2", network=at),
            run("make other", "c3", network=at),
            run("make get", "c4", network=True),
            run("make get; touch x", "c5", network=at),
            say("done"),
        ]
        makefile = f"get other:\n\t@python3 fetch.py http://{HOST}:{port}/\n"
        async with session(tmp_path, steps, open_to(port)) as r:
            r.home.file("Makefile", makefile)
            asked = await answering(r, answer)
            assert (await results(r))[:2] == ["hello"] * 2
            config = yaml.safe_load((r.home.path / "config.yaml").read_text())
        assert [a.call.id for a in asked] == ["c1", "c3", "c4", "c5"]
        assert asked[0].choices == ("once", "session", "always", "deny")
        rule = {"decision": "allow", "prefix": ["make", "get"], "exact": True}
        rule["escalate"] = {"network": at}
        assert yaml.safe_load(asked[0].rules[0]) == rule
        saved = config.get("approvals", {}).get("rules", [])
        assert (rule in saved) is (answer == "always")


async def test_a_saved_rule_holds_without_anybody(tmp_path: Path, tier: SandboxTier) -> None:
    async with site() as (port, seen):
        at = [f"{HOST}:{port}"]
        rules = [{"decision": "allow", "prefix": "make get", "escalate": {"network": at}}]
        config = {**open_to(port), "approvals": {"rules": rules}}
        steps = [run("make get", network=at), run("make other", "c2", network=at), say("done")]
        async with session(tmp_path, steps, config) as r:
            r.home.file("Makefile", f"get other:\n\t@python3 fetch.py http://{HOST}:{port}/\n")
            await r.turn()
            reached, refused = await results(r)
        assert reached == "hello" and "Not run" in refused and len(seen) == 1


async def test_paths_outside_the_workspace(tmp_path: Path, tier: SandboxTier) -> None:
    for name in ("one", "two"):
        (tmp_path / "there" / name).mkdir(parents=True)
    there = tmp_path / "there"
    steps = [
        run(f"echo x > {there}/one/made; echo y > {there}/two/made", write=[f"{there}/one"]),
        say("done"),
    ]
    async with rig(tmp_path, steps, options=ASK) as r:
        (asked,) = await answering(r, "once")
        assert f"it wants to write to {there}/one" in asked.summary
        assert (there / "one" / "made").read_text() == "x\n"
        assert not (there / "two" / "made").exists()


async def test_a_folder_around_the_workspace_does_not_open_what_is_closed_in_it(
    tmp_path: Path, tier: SandboxTier
) -> None:
    around = tmp_path / "around"
    work = around / "work"
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    (work / "AGENTS.md").write_text("Be kind.\n")
    tries = ("> .git/hooks/pre-commit", ">> .git/config", ">> AGENTS.md", ">> ../work/AGENTS.md")
    evil = "; ".join(f"echo evil {where}" for where in tries)
    (tmp_path / "work").symlink_to(work)
    command = f"{evil}; mv .git a; mkdir .hermes; mv ../work ../b; echo x > ../new && ls .."
    steps = [run(command, write=[str(around)]), say("done")]
    async with rig(tmp_path, steps, options=ASK) as r:
        (asked,) = await answering(r, "once")
        (text,) = await results(r)
    assert f"it wants to write to {around}" in asked.summary
    assert "\nnew\nwork" in text
    assert (work / "AGENTS.md").read_text() == "Be kind.\n"
    assert "evil" not in (work / ".git" / "config").read_text()
    assert not (work / ".git" / "hooks" / "pre-commit").exists()
    assert not (work / ".hermes").exists()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (".git/hooks/x", ".git"),
        ("deep/.git/config", "deep/.git/config"),
        (".envrc", ".envrc"),
        (".vscode/x", ".vscode"),
        ("HEAD", "HEAD, config, hooks"),
    ],
)
async def test_the_question_says_that_a_folder_has_files_which_others_obey(
    tmp_path: Path, name: str, shown: str
) -> None:
    """A hook that is written there would run with all rights; so the yes counts once only."""
    there = tmp_path / "there"
    (there / name).parent.mkdir(parents=True)
    (there / name).touch()
    if name == "HEAD":  # a bare repository
        subprocess.run(["git", "init", "-q", "--bare", str(there)], check=True)
    (tmp_path / "plain").mkdir()
    steps = [
        run("make docs", write=[str(there)]),
        run("make docs", "c2", write=[str(tmp_path / "plain")]),
        say("done"),
    ]
    async with rig(tmp_path, steps, options=ASK) as r:
        steering, plain = await answering(r, "deny")
    assert "run what hooks and settings there name" in steering.summary
    assert f"That includes {shown}: git and other programs " in steering.summary
    assert steering.choices == ("once", "deny")
    assert "That includes" not in plain.summary and "always" in plain.choices


async def test_the_question_says_that_a_file_itself_is_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name in ("user/.local/bin", "other/.vscode"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "user" / ".vimrc").touch()
    names = ["user/.local/bin", "other/.vscode", "user/.vimrc"]
    steps = [run("make", f"c{n}", write=[str(tmp_path / name)]) for n, name in enumerate(names)]
    async with rig(tmp_path, [*steps, say("done")], options=ASK) as r:
        asked = await answering(r, "deny")
    assert ["That includes" in question.summary for question in asked] == [True] * 3


async def test_a_hidden_file_is_shown(tmp_path: Path, tier: SandboxTier) -> None:
    user = tmp_path / "user"
    (user / "data").mkdir(parents=True)
    (user / "data" / "a.txt").write_text("shown")
    (user / "b.txt").write_text("private")
    command = f"cat {user}/data/a.txt; cat {user}/b.txt || true"
    steps = [run(command, read=[f"{user}/data"]), say("done")]
    async with rig(tmp_path, steps, options=ASK, env={"HOME": str(user)}) as r:
        await answering(r, "once")
        (text,) = await results(r)
    assert "shown" in text and "private" not in text


async def test_without_the_sandbox(tmp_path: Path, tier: SandboxTier) -> None:
    outside = tmp_path / "outside"
    steps = [run(f"echo x > {outside}", unconfined=True), run(f"rm {outside}", "c2"), say("done")]
    async with rig(tmp_path, steps, options=ASK) as r:
        (asked,) = await answering(r, "once")
        assert "it wants to run without the sandbox" in asked.summary
        assert outside.read_text() == "x\n", "the second call was confined again"


@pytest.mark.parametrize(
    "escalate",
    [
        {"read": ["~/.ssh"]},
        {"read": ["~"]},
        {"write": ["{home}/config.yaml"]},
        {"write": ["{home}"]},
        {"read": ["/"]},
        {"write": ["/etc"]},
        {"write": ["/proc/sys"]},
        {"write": ["../missing"]},
        {"write": [".git/hooks"]},
        {"write": ["."]},
        {"write": ["../other/.git"]},
        {"write": ["../other/.git/hooks"]},
        {"write": ["~/.bashrc"]},
        {"read": ["../backup"]},
        {"read": ["../backup/alice"]},
        {"write": ["../backup"]},
        {"write": ["~/.config/systemd"]},
        {"write": ["~nobody-of-that-name/x"]},
        {"read": ["../loop"]},
        {"read": ["a\0b"]},
        {"read": ["x" * 5000]},
        {"write": ["../*"]},
        {"write": [""]},
        {"network": ["127.0.0.1:8765"]},
        {"network": ["localhost"]},
        {"network": ["10.0.0.1"]},
        {"network": [""]},
        {"network": ["*.com"]},
        {"network": ["*.co.uk"]},
        {"network": ["*.com.au"]},
        {"network": ["0x7f.1"]},
        {"network": ["2130706433"]},
        {"network": ["168.63.129.16"]},
        {"network": ["printer.lan"]},
        {"network": ["example.org:0"]},
        {"network": ["example.org:99999"]},
        {"network": ["example.org:22"]},
        {"network": ["-x.org"]},
        {"network": ["*"]},
        {"network": ["http://a/b"]},
        {"network": ["ｅxample.org"]},
        {"network": [f"h{n}.example.org" for n in range(21)]},
        {"read": [f"../other/{n}" for n in range(21)]},
    ],
    ids=str,
)
async def test_what_nobody_can_grant_is_not_asked(
    tmp_path: Path, escalate: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "user" / ".ssh").mkdir(parents=True)
    (tmp_path / "other" / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "user" / ".config" / "systemd").mkdir(parents=True)
    (tmp_path / "user" / ".bashrc").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "backup" / "alice").mkdir(parents=True)
    (tmp_path / "backup" / "alice" / ".netrc").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    async with rig(tmp_path, [], options=ASK) as r:
        home = str(r.home.path)
        named = {k: [p.replace("{home}", home) for p in v] for k, v in escalate.items()}
        r.provider.steps[:] = [run("echo ran", **named), say("done")]
        assert await answering(r, "once") == []
        (text,) = await results(r)
    assert "Not run: this cannot be granted" in text


async def test_hosts_that_only_look_familiar_are_marked(tmp_path: Path) -> None:
    hosts = ["еxample.org", "a.xn--p1ai:81", "b.bücher:81", "example.org"]
    steps = [run("make", network=hosts), run("curl https://еxample.org/x", "c2"), say("done")]
    async with rig(tmp_path, steps, options=ASK) as r:
        named, found = await answering(r, "deny")
    assert (
        "reach еxample.org (in ASCII: xn--xample-2of.org), a.xn--p1ai:81 (shown as a.рф), "
        "b.bücher:81 (in ASCII: b.xn--bcher-kva), example.org."
    ) in named.summary
    assert "xn--xample-2of.org" in found.summary


async def test_without_the_sandbox_is_said_once(tmp_path: Path) -> None:
    """However long the reason is that holds without it."""
    steps = [run(f"echo x > {'long/' * 60}name", unconfined=True), say("done")]
    async with rig(tmp_path, steps, options=ASK) as r:
        (asked,) = await answering(r, "deny")
    assert "without the sandbox" in asked.summary and "long" not in asked.summary


async def test_a_rule_of_the_user_holds_without_a_sandbox(tmp_path: Path) -> None:
    rules = [{"decision": "allow", "prefix": "touch"}]
    config = {"sandbox": {"mode": "full-access"}, "approvals": {"rules": rules}}
    async with rig(tmp_path, [run("touch a"), say("done")], options=ASK, config=config) as r:
        assert await answering(r, "deny") == []
        assert (r.home.work / "a").exists()


async def test_a_rule_may_give_a_program_all_rights(tmp_path: Path, tier: SandboxTier) -> None:
    """Also where there is no repository, which matters to git alone."""
    rule = {"decision": "allow", "prefix": "touch", "escalate": {"unconfined": True}}
    config = {"approvals": {"rules": [rule, {"decision": "allow", "prefix": "touch"}]}}
    outside = tmp_path / "outside"
    steps = [run(f"touch {outside}", unconfined=True), say("done")]
    async with rig(tmp_path, steps, options=ASK, config=config) as r:
        assert await answering(r, "deny") == []
    assert outside.exists()


async def test_a_question_says_nothing_false_about_a_new_session(tmp_path: Path) -> None:
    config = {"sandbox": {"mode": "full-access"}}
    async with rig(tmp_path, [run("make"), say("done")], options=ASK, config=config) as r:
        (asked,) = await answering(r, "deny")
    assert "has read" not in asked.summary


async def test_no_approver_means_no(tmp_path: Path) -> None:
    for mode in ("ask", "never-ask", "smart"):
        config = {"approvals": {"mode": mode}}
        steps = [run("echo ran", network=True), say("done")]
        (tmp_path / mode).mkdir()
        async with rig(tmp_path / mode, steps, options=ASK, config=config) as r:
            await r.turn()
            (text,) = await results(r)
            assert "Not run" in text and len(r.requests) == 2, "no model was asked either"


async def test_unknown_keys_are_an_error_that_names_the_right_ones(tmp_path: Path) -> None:
    steps = [
        run("echo ran", internet=True),
        call(("c2", "terminal", {"command": "echo ran", "escalate": {"network": True}})),
        say("done"),
    ]
    async with rig(tmp_path, steps, options=ASK) as r:
        await r.turn()
        unknown, reasonless = await results(r)
    assert "internet" in unknown and "unconfined" in unknown and "network" in unknown
    assert "why" in reasonless


async def test_a_path_that_was_replaced_meanwhile_is_not_given(
    tmp_path: Path, tier: SandboxTier
) -> None:
    there, other = tmp_path / "there", tmp_path / "other"
    there.mkdir()
    other.mkdir()
    steps = [run(f"echo x > {there}/made", write=[str(there)]), say("done")]
    async with rig(tmp_path, steps, options=ASK) as r:
        r.session.interactions.user_present = True
        turn = r.begin("go")
        event = await r.until(lambda e: isinstance(e, Approval))
        assert isinstance(event, Approval)
        there.rmdir()
        there.symlink_to(other)
        r.session.interactions.answer_approval(event.id, "once")
        await turn
        (text,) = await results(r)
    assert "was replaced" in text and not (other / "made").exists()


async def test_typing_into_a_process_cannot_escalate_it(tmp_path: Path) -> None:
    steps = [
        call(("c1", "terminal", {"command": "bash", "background": True})),
        call(("c2", "process", {"action": "write", "id": "p1", "data": "git push"})),
        say("done"),
    ]
    async with rig(tmp_path, steps, options=ASK) as r:
        assert await answering(r, "once") == []


# What is known to need more than the walls give


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("git push origin main", "run without the sandbox"),
        ("npm install", "reach the package registries"),
        ("pip install requests", "reach the package registries"),
        (".venv/bin/pip install requests", "reach the package registries"),
        ("cd sub && git fetch", "reach the internet"),
        ("curl -s https://example.invalid/x", "reach example.invalid"),
    ],
)
async def test_it_asks_by_itself_when_somebody_is_there(
    tmp_path: Path, command: str, said: str
) -> None:
    async with rig(tmp_path, [run(command), say("done")], options=ASK) as r:
        (asked,) = await answering(r, "deny")
        (text,) = await results(r)
    assert f"it wants to {said}" in asked.summary
    assert "Not run" in text


async def test_git_push_works_after_one_yes(tmp_path: Path, tier: SandboxTier) -> None:
    async with rig(tmp_path, [], options=ASK) as r:
        work = r.home.work
        subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "r")], check=True)
        subprocess.run(["git", "init", "-q", "-b", "main", str(work)], check=True)
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        git = ["git", "-C", str(work), *identity]
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        subprocess.run([*git, "remote", "add", "origin", str(tmp_path / "r")], check=True)
        r.provider.steps[:] = [run("git push -q origin main"), say("done")]
        (asked,) = await answering(r, "once")
        assert "publishes commits to another machine" in asked.summary
        heads = subprocess.run(
            ["git", "-C", str(tmp_path / "r"), "branch"], check=True, capture_output=True, text=True
        )
        assert "main" in heads.stdout


async def answering_in_turn(r: Rig, answers: Iterable[Answer]) -> list[Approval]:
    r.session.interactions.user_present = True
    turn = r.begin("go")
    asked: list[Approval] = []
    for answer in answers:
        event = await r.until(lambda e: isinstance(e, Approval) and e not in asked)
        assert isinstance(event, Approval)
        asked.append(event)
        r.session.interactions.answer_approval(event.id, answer)
    await turn
    return asked


async def test_a_remembered_push_runs_no_hooks_of_other_repositories(
    tmp_path: Path, tier: SandboxTier
) -> None:
    """Commands in the sandbox can make repositories, and their hooks would run outside it."""
    proof = tmp_path / "proof"
    make = (
        "mkdir evil && cd evil && git init -q . && git init -q --bare r && "
        "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && "
        f"printf '#!/bin/sh\\ntouch {proof}\\n' > .git/hooks/pre-push; "
        "chmod +x .git/hooks/pre-push; git remote add o ./r"
    )
    plant = f"printf '#!/bin/sh\\ntouch {proof}\\n' > .git/hooks/pre-push || true"
    steps = [
        run("git push -q origin main", "c1"),
        run(make, "c2"),
        run(plant, "c3"),
        run("cd evil && git push o HEAD:main", "c4"),
        run("git -C evil push o HEAD:main", "c5"),
        run("git push -q origin main", "c6"),
        run("git push -q origin main; cat /etc/hostname", "c7"),
        say("done"),
    ]
    async with rig(tmp_path, steps, options=ASK) as r:
        git = ["git", "-C", str(r.home.work), "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "r")], check=True)
        subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        subprocess.run([*git, "remote", "add", "origin", str(tmp_path / "r")], check=True)
        asked = await answering_in_turn(r, ("session", "deny", "deny", "deny"))
        assert [a.call.id for a in asked] == ["c1", "c4", "c5", "c7"]
        assert not (r.home.work / ".git" / "hooks" / "pre-push").exists()
    assert not proof.exists()


async def test_a_remembered_push_runs_nothing_that_commands_can_change(
    tmp_path: Path, tier: SandboxTier
) -> None:
    """Neither the hooks of a repository they made, nor what the project's own hook runs."""
    proof, work = tmp_path / "proof", tmp_path / "work"
    evil = f"printf '#!/bin/sh\ntouch {proof}\n' > {{0}}; chmod +x {{0}}"
    steps = [
        run("git push -q origin main", "c1"),
        run(f"git init -q --bare x; {evil.format('x/hooks/post-receive')}", "c2"),
        run("git push x main", "c3"),
        run("git push --repo=x", "c4"),
        run(evil.format("check"), "c5"),
        say("done"),
    ]
    async with rig(tmp_path, steps, options=ASK) as r:
        git = ["git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "r")], check=True)
        subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        subprocess.run([*git, "remote", "add", "origin", str(tmp_path / "r")], check=True)
        asked = await answering_in_turn(r, ("session", "deny", "deny"))
        assert [a.call.id for a in asked] == ["c1", "c3", "c4"]
        assert [a.choices for a in asked[1:]] == [("once", "deny")] * 2
        hook = work / ".git" / "hooks" / "pre-push"
        hook.write_text("#!/bin/sh\nexec ./check\n")
        hook.chmod(0o755)
        r.provider.steps[:] = [run("git push -q origin main:z", "c6"), say("done")]
        (last,) = await answering(r, "deny")
        assert "the hook pre-push" in last.summary and last.choices == ("once", "deny")
    assert not proof.exists()


async def test_packages_is_a_ready_made_grant(
    tmp_path: Path, tier: SandboxTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For package managers, and for nothing else."""
    async with site() as (port, seen):
        monkeypatch.setenv("PIP_INDEX_URL", f"http://{HOST}:{port}/simple")
        config = {**open_to(port), "sandbox": {"network": {"allow": ["packages"]}}}
        monkeypatch.setenv("PATH", f"{tmp_path / 'work' / 'sub'}:{os.environ['PATH']}")
        get = f"python3 fetch.py http://{HOST}:{port}/"
        steps = [
            run("cd . && pip install x", "c1"),
            run(f"touch x; {get} || true", "c2"),
            run(get, "c3", network=["packages"]),
            run(f"pip install x; {get}", "c4"),
            run("pip() { ls; }; pip install x", "c5"),
            say("done"),
        ]
        async with session(tmp_path, steps, config) as r:
            program = r.home.file("sub/pip", f"#!/bin/sh\nexec {get}\n")
            program.chmod(0o755)
            asked = await answering(r, "deny")
            installed, other, *refused = await results(r)
        assert installed == "hello" and len(seen) == 1
        assert "Error" in other and all("Not run" in text for text in refused)
        assert [a.call.id for a in asked] == ["c3", "c4", "c5"]
