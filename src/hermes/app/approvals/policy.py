"""One session's decisions about calls: yes, no, or a question to somebody who may say so."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, structs

from hermes.app.approvals.needs import downloads_packages, find_need
from hermes.app.approvals.rules import Prefixes, Rulebook
from hermes.config.paths import cache_folder
from hermes.core.escalation import PACKAGES, Access, Escalation, FileAccess
from hermes.core.events import Answer, Approval
from hermes.core.message import ToolCall
from hermes.core.services import ModelAccess
from hermes.core.taint import Taint
from hermes.core.tool import SandboxMode, Tool, Verdict, needs_approval

if TYPE_CHECKING:
    from hermes.exec.backends import CommandBackend
    from hermes.exec.command_policy import CommandRule, CommandRules, Judgement

Asking: TypeAlias = Literal["ask", "smart", "never-ask"]

_UNANSWERED = "it needs the user's approval, and nobody answered"
_DENIED = "the user denied it"
_COMPOSED = (
    "this session has read private files and untrusted text, nobody can be asked, and this URL is "
    "in no message of the user, no search result and no page read before. Use a URL that is"
)
_NEVER_ASK = "approvals.mode is never-ask, so only what the sandbox confines is run"
YES = Verdict(True)
_SMALL_MODEL = "small models must ask before every command"
CHANGES = Verdict(True, changes=True)
ONLINE = Verdict(True, changes=True, network=True)
OFFLINE = Verdict(True, "it ran without network: nobody could approve network access", changes=True)
_PLANNING = "this is plan mode: nothing may be changed until the user has approved a plan"
_NETWORK = "\0network"
"""Among the names of tools that were allowed for the session: the network, for commands."""
_STEERED = "this session has read untrusted text, which may have asked for this"
_UNPARSED = "it could not be parsed, and it mentions {}, so it may do what is never allowed"
_OWN_FILES = "the code names the agent's own files"
_UNCONFINED = "it runs code outside the sandbox"
_OTHER_BACKEND = "escalate is for the local sandbox, and this session uses another backend"
_WALLED = "this agent serves several tenants, and none reaches beyond its own folder"
_ALWAYS_CONFINED = "sandbox.required is true, so no command runs without the sandbox"
_MAX_NAMES = 3
_LONGEST_WHY = 300
_REGISTRIES = Access(network=(PACKAGES,))


class Safety(Struct, frozen=True):
    """What holds for a whole session."""

    mode: SandboxMode = "workspace-write"
    """What commands may change; full-access: they are not confined."""
    yolo: bool = False
    """Nothing is asked; what is denied for everybody stays denied."""
    asking: Asking = "ask"
    """Who answers what the rules ask about."""
    network: tuple[str, ...] = ()
    """Domains that confined commands may reach, once a person has allowed it."""
    packages: bool = False
    """Whether package managers may reach their registries without a question."""
    confirms_all: bool = False
    """Whether everything that does more than read asks: the model is a small one."""
    confirms_edits: bool = False
    """Whether every change to a file asks, also inside the workspace."""
    allowed: tuple[str, ...] = ()
    """Tools that need no approval; `terminal:WORDS`: commands that begin with these words."""
    planning: bool = False
    """Whether nothing may be changed, whoever allows it: the user wants a plan first."""
    required: bool = False
    """Whether nothing runs unconfined, whoever allows it."""
    walled: bool = False
    """Whether nothing outside the folder of the session is opened, whoever allows it."""
    unattended: Literal["seen", "allow", "deny"] = "seen"
    """What may be fetched when nobody can be asked; seen: URLs that the conversation has shown."""
    private_hosts: tuple[str, ...] = ()
    """Hosts off the public internet that may be reached all the same."""


class ApprovalSeams(Struct, frozen=True):
    """Who can be reached."""

    person: Callable[[Approval], Awaitable[Answer | None]]
    """A person's answer; None when nobody is there, or nobody answers in time."""
    attended: Callable[[], bool]
    """Whether somebody is there at all."""
    has_seen: Callable[[str], bool]
    """Whether the conversation has shown this URL."""
    models: ModelAccess
    preview: Callable[[Tool[Any], Any], Awaitable[str]]
    """The change that a call would make to files, as a diff; empty: it makes none."""
    tell: Callable[[str, str], None]
    """Shows the people of this session a notice: its code and its text."""


class _Question(Struct, frozen=True):
    """What would have to be answered, and what an answer may be remembered as."""

    call: ToolCall
    reason: str
    command: str = ""
    grants: Prefixes = ()
    tool: str = ""
    """The name that "session" would remember, for tools that run no commands."""
    confined: bool = False
    networked: bool = False
    """Whether a person's yes gives it the network that the operator granted."""
    access: Access | None = None
    """What a person's yes gives it beyond the walls; no model may say it."""
    file: FileAccess | None = None
    """What a file tool asks for itself."""

    @property
    def folder(self) -> str:
        """The folder that "session" would let file tools read."""
        return self.file.folder if self.file else ""


class Approvals:
    """One session's. What a person allowed for the rest of it is kept here, and nowhere else."""

    def __init__(
        self,
        safety: Safety,
        *,
        cwd: Path,
        home: Path,
        book: Rulebook,
        seams: ApprovalSeams,
        backend: CommandBackend | None = None,
    ) -> None:
        self.safety = safety
        self._cwd = cwd
        self._backend = backend
        """Where shell commands run; None: on this machine."""
        self._home = home
        self._book = book
        self._seams = seams
        self.readable: tuple[Path, ...] = ()
        """Parts of the agent's home that commands in the sandbox may name."""
        self._warned = False
        self._tools: set[str] = set()
        self._folders: set[str] = set()
        self._prefixes: dict[tuple[str, ...], None] = {}
        self._escalations: list[CommandRule] = []

    async def check(
        self, call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...], taint: Taint
    ) -> Verdict:
        """The exact call that was judged is what runs: it is a value, and handed on as it is."""
        if tool.asks_itself and tool.risk != "write":
            return YES
        if self.safety.planning and (tool.acts or tool.risk == "write"):
            return Verdict(False, _PLANNING)
        remembered = tool.name
        match tool.risk:
            case "exec":
                return await self._check_command(call, tool, params, taint)
            case "write":
                inside = bool(keys) and all(Path(k).is_relative_to(self._cwd) for k in keys)
                confirms = self.safety.confirms_all or self.safety.confirms_edits
                free = inside and self.safety.mode != "read-only" and not confirms
                leaves = tool.asks_itself and not inside
                if self.safety.yolo or free or leaves:
                    return CHANGES
                remembered = tool.name if inside or not keys else ""
                reason = f"it writes {', '.join(keys)}" if keys else f"{tool.name} makes changes"
                reason = _join_reasons(reason, _STEERED if taint.untrusted and not inside else "")
            case _:
                reason = needs_approval(taint, tool)
                if not reason or (self.safety.yolo and not tool.needs_person):
                    return YES
                if verdict := self._judge_fetch(tool, params):
                    return verdict
                if isinstance(params, FileAccess) and params.writes and taint.untrusted:
                    reason = _join_reasons(reason, _STEERED)
        file = params if isinstance(params, FileAccess) else None
        if tool.risk == "write" and file is None:
            file = FileAccess(diff=await self._seams.preview(tool, params))
        question = _Question(call, reason, tool="" if tool.asks else remembered, file=file)
        return await self._ask_somebody(question, taint)

    @property
    def allowed_for_session(self) -> tuple[str, ...]:
        """What a person has allowed for the rest of the session, in words."""
        commands = [" ".join(prefix) for prefix in self._prefixes]
        commands += [" ".join(map(str, rule.prefix)) for rule in self._escalations]
        folders = [f"reading {folder}" for folder in self._folders]
        tools = [name for name in self._tools if name != _NETWORK]
        network = ["network for commands"] if _NETWORK in self._tools else []
        return tuple(sorted((*tools, *commands, *folders, *network)))

    @property
    def _unattended(self) -> bool:
        return self.safety.asking == "never-ask" or not self._seams.attended()

    def _judge_fetch(self, tool: Tool[Any], params: Any) -> Verdict | None:
        """Where nobody can be asked, where its URL comes from decides about a fetch."""
        policy = self.safety.unattended
        allowed_before = tool.name in self._tools
        if not tool.fetches or policy == "deny" or allowed_before or not self._unattended:
            return None
        url = tool.fetches(params)
        is_known = policy == "allow" or not url or self._seams.has_seen(url)
        return YES if is_known else Verdict(False, _COMPOSED)

    async def _check_command(
        self, call: ToolCall, tool: Tool[Any], params: Any, taint: Taint
    ) -> Verdict:
        confined = bool(getattr(params, "confined", True)) and await self._is_confined(params)
        judged = self._judge(params, self._rules, sandboxed=confined)
        if self.safety.planning and not judged.read_only:
            escalates = getattr(params, "escalate", None) is not None
            types = hasattr(params, "confined")  # into a process that may write
            if escalates or types or judged.commits or not confined:
                return Verdict(False, _PLANNING)
        if confined and judged.decision != "deny":
            escalation = self._find_escalation(params, judged)
            if isinstance(escalation, Verdict):
                return escalation
            if escalation is not None:
                return await self._escalate(call, tool, params, taint, escalation)
        if judged.decision == "deny":
            return Verdict(False, _join_reasons(*judged.reasons))
        if judged.read_only:
            return self._mark_commits(judged, YES)
        if self.safety.yolo:
            return _refuse_unparsed(judged, params) or self._mark_commits(judged, CHANGES)
        networked = confined and bool(self.safety.network) and self._backend_of(params) is None
        # Unconfined, only a rule allows what does more than read: it was made for this.
        ruled = judged.decision == "allow" and not confined
        tainted = ""
        if taint.can_leak and not ruled:
            tainted = needs_approval(taint, tool, sends=not confined)
        if judged.decision == "allow" and not tainted and not self.safety.confirms_all:
            verdict = await self._check_network(call, tool, taint) if networked else CHANGES
            return self._mark_commits(judged, verdict)
        reach = f"it can reach {', '.join(self.safety.network)}" if networked else ""
        question = _Question(
            call,
            _join_reasons(*judged.reasons, tainted, reach) or _SMALL_MODEL,
            command=getattr(params, "command", ""),
            grants=() if tainted else self._list_useful_grants(judged, params, sandboxed=confined),
            confined=confined,
            networked=networked,
        )
        return self._mark_commits(judged, await self._ask_somebody(question, taint))

    def _find_escalation(self, params: Any, judged: Judgement) -> Escalation | Verdict | None:
        """What a command asks for beyond its walls, or is known to need; a refusal when nobody
        could grant it."""
        if not hasattr(params, "escalate"):
            return None  # it does not start a command
        asked: Escalation | None = params.escalate
        elsewhere = self._backend_of(params) is not None
        if asked is None:
            found = find_need(judged.commands, self._read_git_config())
            if found is None or self._explain_refusal(found[1], elsewhere=elsewhere):
                return None  # it fails at the wall, and is told which one
            why, need = found
            granted = bool(need.network and self.safety.network)
            ruled = self._is_ruled(judged, need)
            return (
                None if granted or (self._unattended and not ruled) else Escalation.give(need, why)
            )
        try:
            access = asked.resolve_paths(self._cwd)  # once: a command may be exchanging links
        except ValueError as error:
            return Verdict(False, f"this cannot be granted: a path is not usable ({error})")
        if reason := self._explain_refusal(access, elsewhere=elsewhere):
            return Verdict(False, f"this cannot be granted: {reason}")
        return Escalation.give(access, asked.why) if asked.asks else None

    def _explain_refusal(self, asked: Access, *, elsewhere: bool) -> str:
        """Why nobody can grant this, with real paths; empty when somebody can."""
        from hermes.exec.path_rules import explain_denial
        from hermes.exec.sandbox import explain_ungrantable
        from hermes.net.ssrf import SsrfGuard

        if elsewhere:
            return _OTHER_BACKEND
        if self.safety.walled and (asked.unconfined or asked.read or asked.write):
            return _WALLED
        if asked.unconfined and self.safety.required:
            return _ALWAYS_CONFINED
        if reason := asked.explain_excess():
            return reason
        hosts = asked.network if isinstance(asked.network, tuple) else ()
        reasons = map(SsrfGuard(self.safety.private_hosts).explain_ungrantable, hosts)
        if reason := next(filter(None, reasons), ""):
            return reason
        paths = [(path, True) for path in asked.write or ()]
        paths += [(path, False) for path in asked.read or ()]
        for path, write in paths:
            if Path(path).is_relative_to(self._cwd.resolve()):
                return f"{path} is in the working directory; what is read-only there stays so"
            if reason := explain_ungrantable(Path(path), self._home, Path.home(), write=write):
                return reason
            if reason := explain_denial(Path(path), Path.home(), write=write):
                return f"{path} is closed to every tool: {reason}"
        return ""

    def _read_git_config(self) -> str:
        try:
            return (self._cwd / ".git" / "config").read_text("utf-8", "replace")
        except OSError:
            return ""

    async def _escalate(
        self, call: ToolCall, tool: Tool[Any], params: Any, taint: Taint, escalation: Escalation
    ) -> Verdict:
        """One question about everything a command needs beyond its walls, unless a rule or an
        earlier answer grants it."""
        access = escalation.without_reason()
        judged = self._judge(params, self._rules, sandboxed=not access.unconfined)
        if judged.decision == "deny":
            return Verdict(False, _join_reasons(*judged.reasons))
        prefixes = judged.grants if access.unconfined else grant_prefixes(judged.acting)
        if access.unconfined and any(prefix[0] != "git" for prefix in prefixes):
            prefixes = ()  # most programs obey files that confined commands may change
        known = self._rules.with_grants(judged.grants) if access.unconfined else self._rules
        rest = self._judge(params, known, sandboxed=not access.unconfined)
        ruled = self._is_ruled(judged, access)
        granted = Verdict(True, changes=True, access=access, network=_NETWORK in self._tools)
        if ruled and rest.decision == "allow" and not self.safety.confirms_all:
            return self._mark_commits(judged, granted)
        if self.safety.asking == "never-ask":
            return Verdict(False, _join_reasons(f"it wants to {access.describe()}", _NEVER_ASK))
        why = " ".join(escalation.why.split())[:_LONGEST_WHY]
        wish, quoted = f"it wants to {access.describe()}", why.replace('"', "'")
        if params.escalate is None:
            wish, quoted = f"{wish} because {why}", ""
        steering = describe_steering(access.write or ())
        said = f'the model\'s reason is "{quoted}"' if quoted else ""
        sends = access.leaves_machine
        tainted = needs_approval(taint, tool, sends=sends) if taint.can_leak else ""
        others = rest.reasons if rest.decision == "ask" else ()
        if access.unconfined:  # which the question says already
            others = tuple(reason for reason in others if reason not in rest.unconfined_reasons)
        question = _Question(
            call,
            _join_reasons(wish, steering, said, *others, tainted),
            command=params.command,
            grants=prefixes if rest.decision == "allow" and not steering else (),
            access=access,
        )
        verdict = await self._ask_person(question)
        return self._mark_commits(judged, granted) if verdict.allowed else verdict

    def _is_ruled(self, judged: Judgement, access: Access) -> bool:
        """Whether rules or earlier answers give these commands this access."""
        if self.safety.packages and access == _REGISTRIES and downloads_packages(judged.acting):
            return True
        if access.unconfined and len(judged.acting) < len(judged.commands):
            return False  # what only reads would read outside the walls too
        by_git = any(argv[0] == "git" for argv in judged.acting)
        if access.unconfined and by_git and not (self._cwd / ".git").exists():
            return False  # a repository that a confined command makes here would be obeyed
        rules = self._book.rules.with_rules(self._escalations)
        return bool(judged.acting) and rules.grants_access(judged.acting, access)

    def _mark_commits(self, judged: Judgement, verdict: Verdict) -> Verdict:
        commits = judged.commits and not judged.read_only
        return structs.replace(verdict, commits=True) if commits else verdict

    async def _check_network(self, call: ToolCall, tool: Tool[Any], taint: Taint) -> Verdict:
        """A command that may run as it is; the network it gets only with a person's word, once
        that is needed. Without a person it runs without."""
        reason = needs_approval(taint, tool, sends=True)
        if not reason or _NETWORK in self._tools:
            return ONLINE
        if self._unattended:
            return OFFLINE
        why = _join_reasons(f"it can reach {', '.join(self.safety.network)}", reason)
        verdict = await self._ask_person(_Question(call, why, tool=_NETWORK))
        return ONLINE if verdict.allowed else verdict

    def _list_useful_grants(self, judged: Judgement, params: Any, *, sandboxed: bool) -> Prefixes:
        """The prefixes that, allowed, would have made the question unnecessary: no others are
        offered, so that what a person remembers is what he was asked."""
        if not judged.grants:
            return ()
        then = self._judge(params, self._rules.with_grants(judged.grants), sandboxed=sandboxed)
        return judged.grants if then.decision == "allow" else ()

    @property
    def _rules(self) -> CommandRules:
        rules, allowed = self._book.rules, self.safety.allowed
        given = [name.partition(":")[2].split() for name in allowed if ":" in name]
        prefixes = (*self._prefixes, *map(tuple, given))
        return rules.with_grants(prefixes) if prefixes else rules

    def _judge(self, params: Any, rules: CommandRules, *, sandboxed: bool) -> Judgement:
        from hermes.exec.command_policy import Judgement, judge_command

        if not hasattr(params, "command"):  # not for a shell: what confines it decides
            if not sandboxed and str(self._home) in getattr(params, "code", ""):
                return Judgement("deny", (_OWN_FILES,))
            return Judgement("allow") if sandboxed else Judgement("ask", (_UNCONFINED,))
        workdir = getattr(params, "workdir", None)
        workspace = self._backend.workspace if self._backend else self._cwd
        judged = judge_command(
            params.command,
            workspace=workspace,
            home=self._home,
            rules=rules,
            sandboxed=sandboxed,
            cwd=workspace / workdir if workdir else None,
            readable=self.readable,
        )
        if getattr(params, "shell", True) or (judged.decision == "deny" and not sandboxed):
            return judged
        return Judgement("allow") if sandboxed else Judgement("ask", (_UNCONFINED,))

    def _backend_of(self, params: Any) -> CommandBackend | None:
        return self._backend if hasattr(params, "command") else None

    async def _is_confined(self, params: Any) -> bool:
        if backend := self._backend_of(params):
            return await backend.is_confined()
        if self.safety.mode == "full-access":
            return False
        from hermes.exec.sandbox_probe import probe_tier

        tier = await probe_tier(cache_folder(self._home))
        if tier.lowered and not self._warned:
            self._warned = True
            text = f"{tier.evidence[0].capitalize()}. `hermes doctor` says why."
            self._seams.tell("sandbox_lowered", text)
        return tier.level < 3

    # Who answers

    async def _ask_somebody(self, question: _Question, taint: Taint) -> Verdict:
        if question.tool and (question.tool in self._tools or question.tool in self.safety.allowed):
            return CHANGES
        if question.folder and any(
            Path(question.folder).is_relative_to(folder) for folder in self._folders
        ):
            return YES
        if self.safety.asking == "never-ask":
            refusal = Verdict(False, _join_reasons(question.reason, _NEVER_ASK))
            return CHANGES if question.confined else refusal
        if self.safety.asking == "smart" and await self._model_agrees(question, taint):
            self._seams.tell("smart_approval", f"Allowed by the model: {question.command}")
            return CHANGES
        verdict = await self._ask_person(question)
        return ONLINE if verdict.allowed and question.networked else verdict

    async def _model_agrees(self, question: _Question, taint: Taint) -> bool:
        if not question.command or taint.can_leak:
            return False
        from hermes.app.approvals import model_review as smart

        case = smart.Case(question.command, question.reason, str(self._cwd), question.confined)
        return await smart.agrees_to_run(self._seams.models, case)

    async def _ask_person(self, question: _Question) -> Verdict:
        answer = await self._seams.person(self._build_event(question))
        if answer is None or answer == "deny":
            refusal = _UNANSWERED if answer is None else _DENIED
            return Verdict(False, _join_reasons(question.reason, refusal))
        if answer != "once":
            await self._remember_answer(question, always=answer == "always")
        return CHANGES

    def _build_event(self, question: _Question) -> Approval:
        choices: tuple[Answer, ...] = ("once", "deny")
        if question.tool or question.folder:
            choices = ("once", "session", "deny")
        elif question.grants:
            choices = ("once", "session", "always", "deny")
        call, folder = question.call, question.folder
        return Approval(
            call.id,
            call,
            _join_reasons(question.reason, folder and f"for the session: everything in {folder}"),
            question.command,
            choices,
            self._book.render_rules(question.grants, question.access),
            question.file.diff if question.file else "",
        )

    async def _remember_answer(self, question: _Question, *, always: bool) -> None:
        if question.tool:
            self._tools.add(question.tool)
        elif question.folder:
            self._folders.add(question.folder)
        elif not always and question.access:
            self._escalations += build_grants(question.grants, question.access)
        elif not always:
            self._prefixes.update(dict.fromkeys(question.grants))
        elif why := await self._book.save(question.grants, question.access):
            self._seams.tell(
                "rule_not_saved", f"The rule was not saved: {why} This call was allowed once."
            )


def grant_prefixes(acting: Prefixes) -> Prefixes:
    """The prefixes that "session" and "always" would remember for these commands."""
    from hermes.exec.command_policy.analyzer import grant_prefix

    return tuple(dict.fromkeys(map(grant_prefix, acting)))


def build_grants(prefixes: Prefixes, access: Access) -> list[CommandRule]:
    from hermes.exec.command_policy import build_grant

    return [build_grant(prefix, access) for prefix in prefixes]


def describe_steering(paths: Iterable[str]) -> str:
    """What a command that may write to these paths could make other programs do later; empty when
    nothing there steers any."""
    from hermes.exec.path_rules import explain_influence
    from hermes.exec.sandbox.planted_files import find_plantable_paths

    names: list[str] = []
    for path in map(Path, paths):
        names += [path.name] if explain_influence(path, path.parent, Path.home()) else []
        found = find_plantable_paths(path, Path.home(), ()).protected
        names += [str(p.relative_to(path)) for p in found if os.path.lexists(p)]
    if not names:
        return ""
    shown = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
    return f"that includes {shown}: git and other programs run what hooks and settings there name"


def _join_reasons(*reasons: str) -> str:
    """Clauses as sentences; the first begins and the last ends as part of a longer text."""
    first, *others = [reason.rstrip(".") for reason in reasons if reason] or [""]
    return ". ".join((first, *(other[:1].upper() + other[1:] for other in others)))


def _refuse_unparsed(judged: Judgement, params: Any) -> Verdict | None:
    """Where nobody is asked, a command that could not be checked does not run if it may do what
    is never allowed."""
    if judged.understood:
        return None
    from hermes.exec.command_policy.hard_denials import find_hard_program

    name = find_hard_program(params.command)
    return Verdict(False, _UNPARSED.format(name)) if name else None
