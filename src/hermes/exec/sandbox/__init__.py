"""Confines commands of the model by means of the operating system, as strongly as it can."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermes.core.errors import ConfigError, ToolError
from hermes.exec.sandbox import bubblewrap, landlock, seatbelt
from hermes.exec.sandbox.limits import limit_instructions
from hermes.exec.sandbox.policy import (
    LaunchPlan,
    ResourceLimits,
    SandboxMode,
    SandboxPolicy,
    SandboxTier,
    add_grants,
    build_policy,
    explain_ungrantable,
)

__all__ = [
    "LaunchPlan", "ResourceLimits", "SandboxMode", "SandboxPolicy", "SandboxTier",
    "add_grants", "build_policy", "confine_command", "describe_tier", "explain_ungrantable",
    "require_confinement",
]  # fmt: skip


def confine_command(
    argv: Sequence[str],
    policy: SandboxPolicy,
    tier: SandboxTier,
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
) -> LaunchPlan:
    """How to start `argv` confined to `policy`. Raises ToolError when that cannot be enforced."""
    if policy.mode == "full-access":
        return LaunchPlan(tuple(argv), dict(env))
    if tier.level == 1:
        return bubblewrap.plan_launch(
            argv, policy, tier.bwrap, env=env, cwd=cwd or policy.workspace
        )
    if policy.overlays:
        raise ToolError("Only a sandbox with namespaces (tier 1) can overlay folders.")
    if tier.seatbelt:
        return seatbelt.plan_launch(argv, policy, env)
    if tier.level == 2:
        return landlock.plan_launch(argv, policy, tier.landlock, os.uname().machine, env)
    return LaunchPlan(tuple(argv), dict(env), limit_instructions(policy.limits))


def require_confinement(tier: SandboxTier) -> None:
    """Raise ConfigError when commands cannot be confined: for `sandbox.required: true`."""
    if tier.level == 3:
        why = "; ".join(tier.evidence) or "nothing was tried"
        raise ConfigError(
            f"sandbox.required is true, but commands cannot be confined here ({why}): install "
            "bubblewrap and allow user namespaces, or use a kernel with Landlock."
        )


def describe_tier(tier: SandboxTier) -> list[str]:
    """For `hermes doctor`: the tier, why it was chosen, and what it does not protect."""
    lines = [f"sandbox tier {tier.level}: {tier.name}"]
    lines += [f"  {fact}" for fact in tier.evidence]
    lines += [f"  not protected: {loss}" for loss in tier.lost]
    return lines
