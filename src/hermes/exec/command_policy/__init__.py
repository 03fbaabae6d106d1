"""Judges a shell command before it runs: allow, ask a human, or deny."""

# A map, in the order a command passes through:
#
# - `scan`, `grammar`: misleading letters, shapes too costly to parse, the parser.
# - `reading` (with `phrases`, `words`, `assigning`, `scope`, `parts`, `shapes`, `outputs`): from
#   the tree to simple commands with their words, folders, redirections and standard input.
# - `judging`: weighs each simple command; `verdict` gathers what is found.
# - `blocks`: the hard list. `embedded`: the same in texts, decoded, and behind unknown names.
# - `wrappers`, `runners`: programs that run others. `code`, `staged`, `stored`: scripts they run.
# - `options` (with `running`, `writing`, `fetching`, `editing`, `versions`, `harmless`,
#   `settings`): what a known program must not be told without asking. `places`, `touching`: files.
# - `rules`, `programs`, `permitting`, `wording`: who is allowed by rule, and what is remembered.

from __future__ import annotations

from pathlib import Path

from hermes.exec.command_policy.rules import Rules, as_data, grant
from hermes.exec.command_policy.types import Decision, Judgement, Rule

__all__ = ["Decision", "Judgement", "Rule", "Rules", "as_data", "grant", "judge"]


def judge(  # noqa: PLR0913 - one keyword per fact the judgement depends on
    command: str,
    *,
    workspace: Path,
    home: Path,
    rules: Rules,
    sandboxed: bool,
    tainted_files: frozenset[Path] = frozenset(),
    cwd: Path | None = None,
) -> Judgement:
    """What may be done with `command`, run by bash in `cwd` (else in the workspace).

    `home` is the agent's own folder. `tainted_files` were written from the network earlier in
    this session. A denied command must not run in any mode; what is asked about runs only as the
    exact bytes that were judged.
    """
    from hermes.exec.command_policy.analyzer import Court
    from hermes.exec.command_policy.paths import Places

    places = Places(workspace, home, tainted_files)
    return Court(places, rules, sandboxed=sandboxed).judge(command, str(cwd or workspace))
