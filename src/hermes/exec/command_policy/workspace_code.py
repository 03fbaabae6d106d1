"""The code a command would run: what it writes itself, scripts and makefiles of the workspace."""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes.exec.command_policy.findings import Verdict
from hermes.exec.command_policy.paths import Places
from hermes.exec.command_policy.programs.call import Call
from hermes.exec.command_policy.programs.wrappers import SHELLS, STDIN
from hermes.exec.command_policy.shell.simple_command import Simple
from hermes.exec.command_policy.shell.words import literal, vague, written
from hermes.exec.command_policy.staged_files import Staged
from hermes.exec.command_policy.stored_scripts import Stored, is_shell, recipes

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_OTHER_LANGUAGE = re.compile(r"\s*#!(?!.*\b(?:ba|da|z|k)?sh\b)")
_RUNS_COMMANDS = re.compile(r"\b(?:os\.(?:system|popen|exec|spawn)|subprocess|pty\.spawn)")


class Code:
    """Of what the workspace holds, only what is surely bad counts. `run_text` judges the text of a
    shell; `names_worst` tells whether a text of another language holds what is never run."""

    def __init__(
        self,
        places: Places,
        staged: Staged,
        verdict: Verdict,
        run_text: Callable[[str, Simple], None],
        names_worst: Callable[[str, Simple], bool],
    ) -> None:
        self._places = places
        self._staged = staged
        self._stored = Stored(places)
        self._verdict = verdict
        self._run_text = run_text
        self._names_worst = names_worst

    def called(self, call: Call, simple: Simple) -> None:
        """What a call of a shell, of make or of an interpreter runs."""
        if call.name in ("make", "gmake"):
            self._makefile(call, simple)
        elif call.name.startswith(("python", "pypy")):
            self._python(call, simple)
        elif call.name in SHELLS or call.name in ("source", "."):
            self._shell(call, simple)

    def run(self, word: str, simple: Simple, *, given_to_shell: bool = False) -> bool:
        """Judge the text of a file that is run; True when only run time can tell it."""
        written_here, text = self._staged.find(word, simple)
        if written_here and text is None:
            said = f"runs {written(word)}, which this command writes: its text is not known"
            self._verdict.ask(said)
            self._verdict.dynamic = True
            return True
        if text is not None:
            if not _OTHER_LANGUAGE.match(text):
                self._run_text(text, simple)
            return False
        stored = self._stored_text(word, simple)
        if stored is not None and is_shell(stored, given_to_shell=given_to_shell):
            with self._verdict.reading_files():
                self._run_text(stored, simple)
        return False

    def _shell(self, call: Call, simple: Simple) -> None:
        for text in simple.offered:
            self._run_text(text, simple)
        for word in call.rest("-o +o -O +O")[:1]:
            self.run(word, simple, given_to_shell=True)
            if literal(word) in STDIN and simple.feed and not simple.feed.startswith("\x02"):
                self._run_text(simple.feed, simple)

    def _makefile(self, call: Call, simple: Simple) -> None:
        given, folder = call.value("-f", "--file"), call.value("-C", "--directory")
        targets = [literal(word) for word in call.rest("-f --file -C --directory -j -l -o -W -I")]
        for word in [given] if given else _MAKEFILES:
            path = f"{folder}/{word}" if folder else word
            written_here, text = self._staged.find(path, simple)
            if text:
                self._run_text(recipes(text), simple)
            stored = None if written_here else self._stored_text(path, simple)
            if stored is not None:
                with self._verdict.reading_files():
                    self._run_text(recipes(stored, targets), simple)
                return

    def _python(self, call: Call, simple: Simple) -> None:
        script = next((word for word in call.words if not word.startswith("-")), "")
        if not script.endswith(".py") or call.words[0] in ("-c", "-m"):
            return
        text = self._stored_text(script, simple)
        if text and _RUNS_COMMANDS.search(text) and self._names_worst(text, simple):
            self._verdict.ask(f"{call.name} runs {script}, which holds a command of the hard list")

    def _stored_text(self, word: str, simple: Simple) -> str | None:
        if vague(word):
            return None
        for path in self._places.paths(word, simple.folders):
            if (text := self._stored.text(path)) is not None:
                return text
        return None
