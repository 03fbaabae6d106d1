"""Who decides whether a call may run: hard rules first, then what confines it, then a person."""

from __future__ import annotations

from hermes.app.approvals.policy import Approvals, ApprovalSeams, Safety
from hermes.app.approvals.rules import Rulebook

__all__ = ["ApprovalSeams", "Approvals", "Rulebook", "Safety"]
