"""/permissions: what runs without a question, what asks, and what is refused."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.config.yaml_edit import render_value

_MODES = {
    "ask": "you are asked",
    "smart": "a model decides, then you",
    "never-ask": "nobody is asked; what the sandbox does not confine is refused",
}
_SANDBOX = {
    "read-only": "commands change nothing",
    "workspace-write": "commands write only in the working folder and /tmp",
    "full-access": "commands are not confined",
}


@command("permissions", "what the agent may do, and your rules", needs_model=False)
async def show_permissions(ctx: CommandContext, args: str) -> Reply:
    config, options = ctx.runtime.setup.config, ctx.session.options
    mode = "read-only" if options.plan else config.sandbox.mode
    lines = [
        f"approvals: {config.approvals.mode} ({_MODES[config.approvals.mode]})",
        f"sandbox: {mode} ({_SANDBOX[mode]})",
        f"network for commands: {', '.join(config.sandbox.network.allow) or 'none'}",
    ]
    if options.yolo:
        lines = ["approvals and sandbox: OFF for this session (/yolo off turns them on)"]
    if options.plan:
        lines.insert(0, "plan mode: nothing is changed (/plan off ends it)")
    allowed = ctx.session.host.approvals.allowed_for_session
    lines += [f"allowed for this session: {text}" for text in allowed]
    rules = ctx.runtime.services.rulebook.rule_data
    lines += [f"rule: {render_value(rule)}" for rule in rules]
    lines.append("To change: hermes config set approvals.mode|sandbox.mode, rules in config.yaml")
    return Reply("\n".join(lines))
