"""Judges a shell command before it runs: allow, ask a human, or deny."""

# A map, in the order a command passes through:
#
# - `shell/prescan`, `shell/grammar`: misleading letters, shapes too costly to parse, the parser.
# - `shell/commands` (with `expansion`, `words`, `assignments`, `scope`, `simple_command`,
#   `obfuscation`, `static_output`): from the tree to simple commands with their words, folders,
#   redirections and standard input.
# - `analyzer`: judges each simple command; `findings` collects what is found.
# - `hard_denials`: what never runs. `embedded_commands`: the same inside texts, decoded texts and
#   behind unknown names.
# - `programs/wrappers`: programs that run others. `file_checks`: the files that are read, written
#   or run.
# - `programs/options` (with the other modules of `programs`): uses of a known program that need
#   approval. `paths`: what a path leads to.
# - `rules`, `programs/builtin_rules`, `rule_lookup`: what is allowed by rule or an earlier answer.

from __future__ import annotations

from pathlib import Path

from hermes.exec.command_policy.rules import CommandRules, build_grant, rule_to_data
from hermes.exec.command_policy.types import CommandRule, Decision, Judgement

__all__ = [
    "CommandRule",
    "CommandRules",
    "Decision",
    "Judgement",
    "build_grant",
    "judge_command",
    "rule_to_data",
]


def judge_command(  # noqa: PLR0913 - one keyword per fact the judgement depends on
    command: str,
    *,
    workspace: Path,
    home: Path,
    rules: CommandRules,
    sandboxed: bool,
    tainted_files: frozenset[Path] = frozenset(),
    cwd: Path | None = None,
) -> Judgement:
    """What may be done with `command`, run by bash in `cwd` (else in the workspace).

    `home` is the agent's own folder. `tainted_files` were written from the network earlier in
    this session. A denied command must not run in any mode; what is asked about runs only as the
    exact bytes that were judged.
    """
    from hermes.exec.command_policy.analyzer import CommandAnalyzer
    from hermes.exec.command_policy.paths import PathZones

    path_zones = PathZones(workspace, home, tainted_files)
    return CommandAnalyzer(path_zones, rules, sandboxed=sandboxed).judge_command(
        command, str(cwd or workspace)
    )
