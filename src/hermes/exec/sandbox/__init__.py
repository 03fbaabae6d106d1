"""Commands run by the model are confined by the operating system, as strongly as it can."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermes.core.errors import ConfigError, ToolError
from hermes.exec.sandbox import bubblewrap, landlock
from hermes.exec.sandbox.limits import box_of
from hermes.exec.sandbox.policy import Launch, Limits, Mode, Policy, Tier, standard

__all__ = [
    "Launch", "Limits", "Mode", "Policy", "Tier",
    "describe", "require", "standard", "wrap",
]  # fmt: skip


def wrap(
    argv: Sequence[str],
    policy: Policy,
    tier: Tier,
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
) -> Launch:
    """How `argv` is started so that it is confined to `policy` as far as `tier` reaches.

    Raises ToolError when the policy cannot be kept.
    """
    if policy.mode == "full-access":
        return Launch(tuple(argv), dict(env))
    if tier.level == 1:
        return bubblewrap.launch(argv, policy, tier.bwrap, env=env, cwd=cwd or policy.workspace)
    if policy.instead:
        raise ToolError("Only a sandbox with namespaces (tier 1) can show one folder for another.")
    if tier.level == 2:
        return landlock.launch(argv, policy, tier.landlock, os.uname().machine, env)
    return Launch(tuple(argv), dict(env), box_of(policy.limits))


def require(tier: Tier) -> None:
    """For `sandbox.required: true`."""
    if tier.level == 3:
        why = "; ".join(tier.evidence) or "nothing was tried"
        raise ConfigError(
            f"sandbox.required is true, but commands cannot be confined here ({why}): install "
            "bubblewrap and allow user namespaces, or use a kernel with Landlock."
        )


def describe(tier: Tier) -> list[str]:
    """For `hermes doctor`: the tier, why it was chosen, and what it does not protect."""
    lines = [f"sandbox tier {tier.level}: {tier.name}"]
    lines += [f"  {fact}" for fact in tier.evidence]
    lines += [f"  lost: {loss}" for loss in tier.lost]
    return lines
