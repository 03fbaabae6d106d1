"""Judges a shell command before it runs: allow, ask a human, or deny."""

# A command passes through `prescan` (shapes too costly to parse), `parser` (simple commands),
# `wrappers` (what they run), then `analyzer` with `hard_denials`, `lost_work` and `read_only`.

from pathlib import Path

from hermes.exec.command_policy.rules import CommandRules, build_grant, rule_to_data
from hermes.exec.command_policy.types import CommandRule, Decision, Judgement

__all__ = [
    "CommandRule", "CommandRules", "Decision", "Judgement", "build_grant", "judge_command",
    "rule_to_data",
]  # fmt: skip


def judge_command(  # noqa: PLR0913 - one keyword per thing that it depends on
    command: str,
    *,
    workspace: Path,
    home: Path,
    rules: CommandRules,
    sandboxed: bool,
    cwd: Path | None = None,
    readable: tuple[Path, ...] = (),
) -> Judgement:
    """What may be done with `command`, run by bash in `cwd` (else in the workspace). `home` is
    the agent's own folder, of which commands in a sandbox may name the `readable` parts."""
    from hermes.exec.command_policy.analyzer import CommandAnalyzer
    from hermes.exec.command_policy.paths import PathZones

    path_zones = PathZones(workspace, home, readable if sandboxed else ())
    return CommandAnalyzer(path_zones, rules, sandboxed=sandboxed).judge_command(
        command, str(cwd or workspace)
    )
