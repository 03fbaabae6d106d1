"""Weighs the files that a command names, reads or writes."""

from __future__ import annotations

from pathlib import Path

from hermes.exec.command_policy.findings import Verdict
from hermes.exec.command_policy.hard_denials import blocked_write
from hermes.exec.command_policy.paths import Places
from hermes.exec.command_policy.programs.builtin_rules import NETWORK
from hermes.exec.command_policy.programs.wrappers import unwrap
from hermes.exec.command_policy.reasons import where
from hermes.exec.command_policy.shell.simple_command import Simple
from hermes.exec.command_policy.shell.words import literal, written

OWN = "touches the agent's own files"


class Files:
    """What is found about files goes into the verdict; what came from the network is marked."""

    def __init__(self, places: Places, verdict: Verdict, *, sandboxed: bool) -> None:
        self._places = places
        self._verdict = verdict
        self._sandboxed = sandboxed

    def written(self, word: str, simple: Simple) -> None:
        zones = self._places.zones(word, simple.folders, follow=True)
        if zones != {"plain"}:
            self._verdict.read_only = False
        if reason := blocked_write(word, simple.folders, self._places):
            self._verdict.deny(reason)
        if "own" in zones:
            self._verdict.deny(f"writes to {written(word)}: {OWN}")
        if bad := zones - {"inside", "plain", "top", "device", "own"}:
            self._verdict.ask(f"writes to {written(word)}{where(bad)}")
        elif not self._sandboxed and zones != {"plain"}:
            self._verdict.ask("writes a file, and there is no sandbox")
        wrapped = simple.argv and unwrap(simple.argv, None) is not None
        programs = (*simple.sources, *(simple.argv if wrapped else simple.argv[:1]))
        if {word.rpartition("/")[2] for word in programs} & NETWORK:
            for path in self._places.paths(word, simple.folders):
                self.downloaded(path)

    def opened(self, word: str, folders: tuple[str | None, ...]) -> None:
        zones = self._places.zones(word, folders, follow=True)
        if "own" in zones:
            self._verdict.deny(f"reads {written(word)}: {OWN}")
        if bad := zones & {"secret", "network", "device"}:
            self._verdict.ask(f"reads {written(word)}{where(bad)}")

    def named(self, word: str, program: str, folders: tuple[str | None, ...]) -> None:
        """Any argument may be a path, also behind `--option=` or `@`."""
        text = word
        if text.startswith("-") or "=" in text:
            text = text.rpartition("=")[2] or text
        text = text.lstrip("@<>")
        if " " in literal(text) or "\n" in text or program in ("echo", "printf"):
            return
        zones = self._places.zones(text, folders, follow=False)
        if "own" in zones:
            self._verdict.deny(f"{written(word)}: {OWN}")
        if bad := zones & {"secret", "network"}:
            self._verdict.ask(f"{written(word)}{where(bad)}")

    def ran(self, word: str, simple: Simple) -> None:
        for path in self._places.paths(word, simple.folders):
            if path is not None and self._places.is_tainted(path):
                self._verdict.ask(f"runs {written(word)}, which came from the network")

    def own(self, value: str) -> bool:
        """A value that names the agent's own files."""
        return value.startswith("/") and "own" in self._places.zones(value, (None,), follow=False)

    def downloaded(self, path: str | None) -> None:
        if path is not None and not self._verdict.only_worst and not path.startswith("/dev/"):
            self._verdict.downloads.append(Path(path))
            self._places.tainted |= {path}
