"""`!command` in the prompt: a command of the user's own, whose output is offered to the model."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from hermes.cli.terminal.text import one_line, strip_controls
from hermes.config.env import get_environment
from hermes.core.text import format_plural
from hermes.core.untrusted_text import make_inert
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture

_MAX_BYTES = 40_000
_MAX_SECONDS = 24 * 3600.0
_LABEL_CHARS = 40


class ShellOutput(Struct, frozen=True):
    command: str
    text: str
    status: int | None
    """The exit status; None: it was stopped."""

    @property
    def label(self) -> str:
        """Its name in the prompt."""
        return f"output of !{one_line(self.command, _LABEL_CHARS)}"

    @property
    def ending(self) -> str:
        """How it ended, where that is worth saying."""
        if self.status == 0:
            return "" if self.text else "(no output)"
        return "stopped" if self.status is None else f"exit {self.status}"

    def quote(self, redact: Callable[[str], str]) -> str:
        """The command and its output for the model: data, without known secrets."""
        from hermes.app.live.session_export import fence_text

        lines = format_plural(self.text.count("\n") + 1, "line") if self.text else "no output"
        head = f"[I ran `{one_line(self.command, 500)}`: {self.ending or 'exit 0'}, {lines}]"
        return f"{head}\n{fence_text(make_inert(redact(self.text)))}\n"


async def run_shell_command(
    command: str, folder: Path, outputs: Path, watch: Callable[[bytes], None]
) -> ShellOutput:
    """Runs the command with the user's own rights and environment, without the sandbox."""
    output = OutputCapture(_MAX_BYTES, outputs, name="shell", watch=watch)
    try:
        spec = CommandSpec(command, folder, dict(get_environment()), _MAX_SECONDS)
        result = await run_command(spec, output)
    finally:
        output.close()
    return ShellOutput(command, strip_controls(output.text()).rstrip("\n"), result.status)
