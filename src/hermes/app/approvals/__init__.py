"""Who decides whether a call may run: hard rules first, then what confines it, then a person."""

from __future__ import annotations

from hermes.app.approvals.deciding import Approvals, Safety, Seams
from hermes.app.approvals.rulebook import Rulebook

__all__ = ["Approvals", "Rulebook", "Safety", "Seams"]
