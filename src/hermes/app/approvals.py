"""Who decides whether a call may run: hard rules first, then what confines it, then a person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from hermes.core.events import Approval
from hermes.core.message import ToolCall
from hermes.core.taint import Taint, needs_approval
from hermes.core.tool import Tool, Verdict

if TYPE_CHECKING:
    from hermes.exec.gate import Judgement, Rules

Answer: TypeAlias = Literal["once", "session", "deny"]
Ask: TypeAlias = Callable[[Approval], Awaitable[Answer]]
"""A person's answer; without a person, or without an answer in time, it is deny."""
Mode: TypeAlias = Literal["read-only", "workspace-write", "full-access"]

_NOBODY = "it needs the user's approval, and nobody gave it"
YES = Verdict(True)
CHANGES = Verdict(True, changes=True)
ONLINE = Verdict(True, changes=True, network=True)
OFFLINE = Verdict(True, "without network: nobody is there who could allow it", changes=True)
_NETWORK = "\0network"
"""Among what was granted, where tools have their names."""
_UNCONFINED = "it runs Python that nothing confines on this machine"


class Safety(Struct, frozen=True):
    """What holds for a whole session."""

    mode: Mode = "workspace-write"
    """What commands may change; full-access: they are not confined."""
    yolo: bool = False
    """Nothing is asked; what is denied for everybody stays denied."""
    rules: Any = None
    """The operator's own; None: only the builtin ones."""
    network: tuple[str, ...] = ()
    """Domains that confined commands may reach, once a person has allowed it."""


class Approvals:
    """One session's. `granted`: what a person allowed for the rest of it."""

    def __init__(
        self,
        safety: Safety,
        *,
        cwd: Path,
        home: Path,
        ask: Ask,
        attended: Callable[[], bool] = lambda: True,
    ) -> None:
        self._safety = safety
        self._attended = attended
        self._cwd = cwd
        self._home = home
        self._ask = ask
        self._rules: Rules | None = safety.rules
        self._granted: set[str] = set()

    async def check(
        self, call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...], taint: Taint
    ) -> Verdict:
        """The exact call that was judged is what runs: it is a value, and handed on as it is."""
        match tool.risk:
            case "exec":
                return await self._command(call, tool, params, taint)
            case "write":
                inside = bool(keys) and all(Path(k).is_relative_to(self._cwd) for k in keys)
                if self._safety.yolo or (inside and self._safety.mode != "read-only"):
                    return CHANGES
                return await self._person(call, tool, f"writes {', '.join(keys) or 'files'}")
            case _:
                reason = needs_approval(taint, tool)
                if self._safety.yolo or not reason:
                    return YES
                return await self._person(call, tool, reason)

    async def _command(self, call: ToolCall, tool: Tool[Any], params: Any, taint: Taint) -> Verdict:
        confined = await self._confined()
        judged = self._judge(params, sandboxed=confined)
        if judged.decision == "deny":
            return Verdict(False, "; ".join(judged.reasons))
        if judged.read_only:
            return YES
        if self._safety.yolo:
            return CHANGES
        networked = confined and bool(self._safety.network)
        reason = needs_approval(taint, tool, sends=not confined)
        if judged.decision == "allow" and not reason:
            return await self._online(call, tool, taint) if networked else CHANGES
        reach = f"it can reach {', '.join(self._safety.network)}" if networked else ""
        why = "; ".join(filter(None, (*judged.reasons, reason, reach)))
        verdict = await self._person(call, tool, why, judged.grants)
        return ONLINE if networked and verdict.allowed else verdict

    async def _online(self, call: ToolCall, tool: Tool[Any], taint: Taint) -> Verdict:
        """A command that may run as it is; the network it gets only with a person's word, once
        that is needed. Without a person it runs without."""
        reason = needs_approval(taint, tool, sends=True)
        if not reason or _NETWORK in self._granted:
            return ONLINE
        if not self._attended():
            return OFFLINE
        why = f"it can reach {', '.join(self._safety.network)}: {reason}"
        answer = await self._ask(Approval(call.id, call, why))
        if answer == "deny":
            return Verdict(False, f"{why}: {_NOBODY}")
        if answer == "session":
            self._granted.add(_NETWORK)
        return ONLINE

    def _judge(self, params: Any, *, sandboxed: bool) -> Judgement:
        from hermes.exec.gate import Judgement, Rules, judge

        if hasattr(params, "code"):  # not for a shell: what confines it decides
            return Judgement("allow") if sandboxed else Judgement("ask", (_UNCONFINED,))
        if self._rules is None:
            self._rules = Rules()
        workdir = getattr(params, "workdir", None)
        return judge(
            params.command,
            workspace=self._cwd,
            home=self._home,
            rules=self._rules,
            sandboxed=sandboxed,
            cwd=self._cwd / workdir if workdir else None,
        )

    async def _confined(self) -> bool:
        if self._safety.mode == "full-access":
            return False
        from hermes.config.paths import cache_folder
        from hermes.exec.sandbox import probe

        return (await probe(cache_folder(self._home))).level < 3

    async def _person(
        self,
        call: ToolCall,
        tool: Tool[Any],
        reason: str,
        grants: tuple[tuple[str, ...], ...] = (),
    ) -> Verdict:
        remembered = tool.name if tool.risk != "exec" else ""
        if remembered in self._granted:
            return CHANGES
        answer = await self._ask(Approval(call.id, call, reason))
        if answer == "deny":
            return Verdict(False, f"{reason}: {_NOBODY}" if reason else _NOBODY)
        if answer == "session" and remembered:
            self._granted.add(remembered)
        elif answer == "session" and grants and self._rules is not None:
            self._rules = self._rules.granting(grants)
        return CHANGES
