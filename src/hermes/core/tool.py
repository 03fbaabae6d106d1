"""What a tool is: a function with typed parameters, its risk, and the context it runs in."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec
from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.escalation import Access
from hermes.core.message import Media, Text, ToolCall
from hermes.core.provider import ToolSpec
from hermes.core.services import Services
from hermes.core.taint import BOTH, Source, Taint
from hermes.core.text import safe_name
from hermes.core.tool_params import convert_params, unknown_names

Risk: TypeAlias = Literal["read", "write", "exec", "network"]
SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "full-access"]
Keys: TypeAlias = str | tuple[str, ...] | None
P = TypeVar("P", bound=Struct)
_BRINGS: dict[Risk, frozenset[Source]] = {
    "read": BOTH,
    "write": frozenset(),
    "exec": BOTH,
    "network": frozenset({"untrusted"}),
}
_SENDS: frozenset[Risk] = frozenset({"exec", "network"})


class ToolResult(Struct, frozen=True):
    """What a call returned: for the model, for people and for programs."""

    content: str | tuple[Text | Media, ...]
    """For the model."""
    display: str = ""
    """For people; empty: the content is shown."""
    data: Any = None
    """For logs, tests and user interfaces."""
    error: bool = False
    unquoted: bool = False
    """Whether the text is the operator's own word rather than data."""


class RecordedResult(ToolResult, frozen=True):
    """A result as an earlier run recorded it: it is neither redacted nor cut again."""


class Verdict(Struct, frozen=True):
    """Whether a call may run. `reason` is for the model: why it may not, or how it runs differently
    from what was asked for."""

    allowed: bool
    reason: str = ""
    changes: bool = False
    """Whether it may change files of the workspace."""
    network: bool = False
    """Whether what it runs may use the network that the operator granted to commands."""
    commits: bool = False
    """Whether the command makes git write to the repository."""
    access: Access | None = None
    """What the user granted to it beyond the sandbox."""


class ApprovalCheck(Protocol):
    async def __call__(
        self, call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...]
    ) -> Verdict: ...


async def nobody_approves(
    call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...]
) -> Verdict:
    """Denies every call: there is no person to approve it."""
    return Verdict(False)


class UserQuestion(Protocol):
    async def __call__(self, question: str, choices: tuple[str, ...]) -> str | None: ...


async def nobody_answers(question: str, choices: tuple[str, ...]) -> str | None:
    """Gives no answer: there is no person to ask."""
    return None


class Confirmation(Protocol):
    async def __call__(self, call: ToolCall, reason: str, diff: str) -> bool | None: ...


async def nobody_confirms(call: ToolCall, reason: str, diff: str) -> bool | None:
    """Gives no answer: there is no person to ask."""
    return None


class Invoker(Protocol):
    async def __call__(self, name: str, arguments: dict[str, Any]) -> ToolResult: ...


async def no_calls(name: str, arguments: dict[str, Any]) -> ToolResult:
    """Refuses: a call made by a tool cannot make further calls."""
    raise ToolError(f"{name} cannot be called from here.")


def ignore_progress(text: str) -> None:
    """Discards progress that nobody watches."""


class EgressOpener(Protocol):
    async def __call__(self, hosts: tuple[str, ...]) -> str:
        """Open a proxy to these hosts (`*`: all) and return its address."""
        ...


class Workspace(Struct, frozen=True):
    """The folder a session works in, and what its commands may do."""

    cwd: Path
    home: Path
    """The agent's own folder with its settings, secrets and history, which no tool may use."""
    outputs: Path
    """Folder (0700) for outputs too large to show; no other conversation can read it."""
    child_env: dict[str, str] = {}
    """The complete environment of child processes, without secrets."""
    sandbox: SandboxMode = "full-access"
    """What commands may change; full-access: they are not confined."""
    sandbox_required: bool = False
    """Whether nothing is run where it cannot be confined."""
    terminal_timeout: float = 180.0
    egress: EgressOpener | None = None
    """Opens the network for confined commands; None: they have none."""
    hosts: tuple[str, ...] = ()
    """The hosts that the operator allows commands to reach."""
    readable: tuple[Path, ...] = ()
    """Real folders that tools may read although the agent's home or the user's holds them."""
    hidden: tuple[Path, ...] = ()
    """Real paths that no tool may read, wherever they are."""
    walled: bool = False
    """Whether nobody can allow more than this folder: what is outside may be another tenant's."""


class UserAccess(Struct, frozen=True):
    """What tools may ask the user."""

    approve: ApprovalCheck = nobody_approves
    ask: UserQuestion = nobody_answers
    """The answer to a question; None when nobody can give one."""
    confirm: Confirmation = nobody_confirms
    """A person's yes or no to exactly the text in `diff`, whatever else was allowed; None when
    nobody answers."""


class Toolbox(Struct, frozen=True):
    """The tools of the session, for tools that list or call others."""

    tools: Mapping[str, Tool[Any]] = {}
    invoke: Invoker = no_calls
    """Calls another tool as the model would, with the same approvals, locks, limits and taint."""


class ToolContext(Struct, frozen=True):
    """Everything a call may use. Narrow on purpose: no agent, no session object."""

    call: ToolCall
    session_id: str
    workspace: Workspace
    services: Services
    user: UserAccess = UserAccess()
    toolbox: Toolbox = Toolbox()
    progress: Callable[[str], None] = ignore_progress
    verdict: Verdict = Verdict(True)
    """What the approval granted."""

    @property
    def output_prefix(self) -> str:
        """The prefix of its file names. Ids may be hostile, such as `../`, so they are made
        safe."""
        return safe_name(self.session_id, "session")

    @property
    def egress(self) -> Callable[[], Awaitable[str]] | None:
        """Opens the network for the commands of this call; None: it has none."""
        hosts = self.workspace.hosts if self.verdict.network else ()
        hosts += self.verdict.access.hosts if self.verdict.access else ()
        return partial(self.workspace.egress, hosts) if self.workspace.egress and hosts else None


class Tool(Struct, Generic[P], frozen=True, dict=True):
    """One tool. `exclusive` tools run alone. `key` names what a call writes to; calls that share a
    key run one after the other."""

    name: str
    description: str
    params: type[P]
    run: Callable[[P, ToolContext], Awaitable[ToolResult | str]]
    toolset: str = "core"
    risk: Risk = "read"
    exclusive: bool = False
    key: Callable[[P, Path], Keys] | None = None
    timeout: float = 600.0
    """Seconds after which a call is stopped and answered with an error."""
    brings: frozenset[Source] = BOTH
    """What its results put into the conversation (see core.taint)."""
    sends: bool = True
    """Whether a call can send data out: over the network or beyond the workspace."""
    acts: bool = False
    """Whether a call may change something elsewhere, as a tool of an MCP server may."""
    starts_work: bool = False
    """Whether a call has something done by others, who are asked themselves."""
    lasting: bool = False
    """Whether its last call holds for the rest of the session, like a plan: compression keeps
    it."""
    forward: Callable[[P], tuple[str, dict[str, Any]] | None] | None = None
    """The name and arguments of the tool that a call forwards to; None: it does not forward."""
    asks: str = ""
    """Why every call needs approval; empty: not every call does."""
    asks_itself: bool = False
    """Whether the tool itself asks `UserAccess.approve` about what is dangerous in a call."""
    needs_person: bool = False
    """Whether only a person can approve what it asks, also where nothing else is asked."""
    flows: Callable[[P], tuple[frozenset[Source], bool]] | None = None
    """What a call brings and whether it sends, if that depends on its parameters."""
    fetches: Callable[[P], str] | None = None
    """The URL that a call fetches, empty if it only asks the configured service; None: it may send
    more than a URL."""
    words: str = ""
    """More words to find it by, besides its description."""
    preview: Callable[[P, Workspace], str] | None = None
    """The change to files that a call would make, as a diff; reads files, so on a thread."""

    @property
    def has_effects(self) -> bool:
        """Whether a call may change something, so that repeating it could do harm."""
        return self.acts or self.risk in ("write", "exec") or self.toolset == "browser"

    @property
    def is_repeatable(self) -> bool:
        """Whether a call whose end is not known can be made again."""
        return not (self.has_effects or self.starts_work)

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, build_schema(self.params))

    def for_call(self, params: P) -> Tool[P]:
        """The tool with what this one call brings and sends."""
        if self.flows is None:
            return self
        brings, sends = self.flows(params)
        return msgspec.structs.replace(self, brings=brings, sends=sends, flows=None)

    def parse_params(self, args: dict[str, Any]) -> P:
        """Typed parameters, or a ToolError that says what to change."""
        try:
            return convert_params(args, self.params)
        except ToolError as error:
            raise ToolError(f"Invalid arguments for {self.name}: {error}") from None

    def describe_ignored(self, args: dict[str, Any]) -> str:
        """A note on arguments that the tool does not have; empty: there are none."""
        left = unknown_names(args, self.params)
        if not left:
            return ""
        takes = ", ".join(build_schema(self.params)["properties"]) or "no arguments"
        # Only letters: a result must not hold a URL that the model put into a name.
        names = ", ".join(re.sub(r"\W+", "_", name) for name in left)[:200]
        return f"ignored: {names}; {self.name} takes {takes}"


class RawArguments(Struct, frozen=True):
    """Arguments as the model wrote them; whoever runs the call checks them."""

    values: dict[str, Any]


class SchemaTool(Tool[RawArguments], frozen=True, dict=True):
    """A tool that is made at run time; a JSON Schema describes its parameters."""

    schema: dict[str, Any] = {}

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.schema)

    def parse_params(self, args: dict[str, Any]) -> RawArguments:
        return RawArguments(args)

    def describe_ignored(self, args: dict[str, Any]) -> str:
        return ""


def needs_approval(taint: Taint, tool: Tool[Any], *, sends: bool | None = None) -> str:
    """Why this call needs approval; empty: it does not. `sends` overrides what the tool declares: a
    command without network sends nothing, a write outside the workspace does."""
    if tool.asks:
        return tool.asks
    if not (tool.sends if sends is None else sends):
        return ""
    could = f"{tool.name} could send data out. Allow it only if you know what it sends and where."
    if taint.can_leak:
        return f"This session has read private files and untrusted text; {could}"
    # It reads while it runs, so one call can combine what two would have brought.
    if "private" in tool.brings and (taint | Taint.from_sources(tool.brings)).can_leak:
        return f"One call can read private files and untrusted text; {could}"
    return ""


def build_schema(params: type[Struct]) -> dict[str, Any]:
    """A flat JSON Schema without titles: small on the wire, accepted by every provider."""
    (root,), defs = msgspec.json.schema_components([params])
    flat: dict[str, Any] = _flatten_schema(root, defs)
    return flat


def _flatten_schema(node: Any, defs: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_flatten_schema(item, defs) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _flatten_schema(defs[node["$ref"].rsplit("/", 1)[1]], defs)
    if "anyOf" in node:
        options = [o for o in node["anyOf"] if o != {"type": "null"}]
        rest = {k: v for k, v in node.items() if k not in ("anyOf", "default")}
        if len(options) == 1:
            return _flatten_schema({**options[0], **rest}, defs)
        node = {**rest, "anyOf": options}
    return {
        key: {k: _flatten_schema(v, defs) for k, v in value.items()}
        if key == "properties"
        else _flatten_schema(value, defs)
        for key, value in node.items()
        if key != "title" and not (key == "default" and value is None)
    }


class ToolOptions(TypedDict, total=False):
    """Fields of Tool that a declaration may set."""

    toolset: str
    exclusive: bool
    key: Callable[[Any, Path], Keys] | None
    timeout: float
    starts_work: bool
    lasting: bool
    forward: Callable[[Any], tuple[str, dict[str, Any]] | None]
    asks: str
    asks_itself: bool
    flows: Callable[[Any], tuple[frozenset[Source], bool]]
    fetches: Callable[[Any], str]
    words: str
    preview: Callable[[Any, Workspace], str]


def tool(
    description: str,
    *,
    name: str = "",
    risk: Risk = "read",
    brings: Collection[Source] | None = None,
    sends: bool | None = None,
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[[P, ToolContext], Awaitable[ToolResult | str]]], Tool[P]]:
    """Decorate `async def name(p: Params, ctx: ToolContext)` to make it a Tool. What it brings and
    whether it sends follow from its risk unless given."""

    def wrap(fn: Callable[[P, ToolContext], Awaitable[ToolResult | str]]) -> Tool[P]:
        params = fn.__annotations__["p"]
        if isinstance(params, str):
            params = fn.__globals__[params]
        return Tool(
            name or fn.__name__,
            description,
            params,
            fn,
            risk=risk,
            brings=_BRINGS[risk] if brings is None else frozenset(brings),
            sends=risk in _SENDS if sends is None else sends,
            **options,
        )

    return wrap
