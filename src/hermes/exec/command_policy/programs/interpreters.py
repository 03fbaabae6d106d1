"""Interpreters: whether they run a file of the workspace, or a text from who knows where."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hermes.exec.command_policy.programs.builtin_rules import TOOLS, everyday
from hermes.exec.command_policy.programs.call import Call
from hermes.exec.command_policy.programs.file_writers import outside
from hermes.exec.command_policy.shell.simple_command import FILE
from hermes.exec.command_policy.shell.words import literal, vague, written
from hermes.exec.command_policy.types import Certainty, Finding, objection

_CODE: dict[str, str] = {
    "perl": r"-[a-zA-Z0-9]*[eEnpi].*",
    "ruby": r"-[a-zA-Z]*[enpir].*",
    "node": r"-[a-z]*[epr]|--eval(=.*)?|--print(=.*)?|--require(=.*)?|--import(=.*)?|--loader.*",
    "nodejs": r"-[a-z]*[epr]|--eval(=.*)?|--print(=.*)?|--require(=.*)?|--import(=.*)?",
    "bun": r"-e|-p|--eval|--print|--preload.*|-r",
    "deno": r"eval|repl",
    "tsx": r"-e|-p|--eval|--print",
    "ts-node": r"-[a-z]*[epr]|--eval|--print",
    "php": r"-[rBREa]|--run|-d.*",
    "lua": r"-e.*|-l.*|-i",
    "luajit": r"-e.*|-l.*|-i",
    "Rscript": r"-e|--eval",
    "R": r"-e|-f|--eval|--file.*",
    "julia": r"-[eEpL].*|--eval.*|--print.*",
    "ocaml": r"-e",
    "runghc": r"-e",
    "ghc": r"-e",
    "elixir": r"-e|--eval|-r",
    "erl": r"-eval|-s|-run",
    "clojure": r"-e|--eval",
    "groovy": r"-e",
    "scala": r"-e",
    "jshell": r".*",
    "tclsh": r"-",
    "racket": r"-e|-f",
    "guile": r"-c|-e",
    "sbcl": r"--eval|--load",
    "swift": r"-e",
    "ipython": r"-c|-i",
    "jupyter": r"console|qtconsole",
}
_SOURCED = ("source", ".")
_MODULES = frozenset("timeit code pdb webbrowser smtpd telnetlib".split())


def _python(call: Call) -> Iterator[Finding]:
    at = 0
    while at < len(call.args) and call.words[at].startswith("-"):
        word = call.words[at]
        if re.fullmatch(r"-[a-zA-Z]*c.*", word):
            code = call.args[at][word.index("c") + 1 :] or "".join(call.args[at + 1 : at + 2])
            if not _harmless(call, code):
                yield objection(f"{call.name} runs a text")
            return
        if re.fullmatch(r"-[a-zA-Z]*m.*", word):
            module = word[word.index("m") + 1 :] or "".join(call.words[at + 1 : at + 2])
            if vague("".join(call.args[at : at + 2])) or module.partition(".")[0] in _MODULES:
                yield objection(f"{call.name} runs a text")
            folder = call.value("-d", "--directory") if module == "http.server" else None
            if folder is not None and outside(call, folder):
                yield objection(f"{call.name} serves {written(folder)}, outside the workspace")
            return
        if word in ("-", "-i") or ("i" in word.lstrip("-")[:4] and not word.startswith("--")):
            break
        at += 2 if word in ("-W", "-X", "--check-hash-based-pycs") else 1
    yield from _file_or_text(call, call.args[at:])


def _harmless(call: Call, code: str) -> bool:
    from hermes.exec.command_policy.programs.python_oneliners import harmless_python

    python = call.name.startswith(("python", "pypy"))
    return python and call.sandboxed and not vague(code) and harmless_python(literal(code))


def _file_or_text(call: Call, args: tuple[str, ...]) -> Iterator[Finding]:
    script = args[0] if args else "-"
    if literal(script) == "-":
        if call.simple.feed == FILE and call.simple.reads:
            yield from runs_file(call, call.simple.reads[-1])
        elif call.simple.feed is not None:
            if not _harmless(call, call.simple.feed):
                yield objection(f"{call.name} runs what it reads")
        elif args:
            yield objection(f"{call.name} runs a text")
        return
    yield from runs_file(call, script)


def runs_file(call: Call, word: str) -> Iterator[Finding]:
    """Why running this file needs a human."""
    if vague(word):
        yield objection(f"what {call.name} runs is only known when it runs", Certainty.UNCERTAIN)
        return
    zones = call.zones(word)
    if zones & {"outside", "vital", "secret", "plain", "network", "unknown", "device"}:
        yield objection(
            f"{call.name} runs {written(word)}, outside the workspace", Certainty.UNCERTAIN
        )
    for path in call.paths(word):
        if path is not None and call.places.is_tainted(path):
            yield objection(f"{call.name} runs {written(word)}, which came from the network")


def _code_options(call: Call) -> Iterator[Finding]:
    pattern = re.compile(_CODE[call.name])
    at = 0
    while at < len(call.words) and call.words[at].startswith("-") and call.words[at] != "-":
        if pattern.fullmatch(call.words[at]):
            yield objection(f"{call.name} runs a text")
            return
        at += 1
    rest = call.args[at:]
    if rest and pattern.fullmatch(call.words[at]):
        yield objection(f"{call.name} runs a text")
    elif call.name in _PLAIN_FILES:
        if rest or call.simple.feed is not None:
            yield from _file_or_text(call, rest)
    elif call.simple.feed is not None and not rest:
        yield objection(f"{call.name} runs what it reads")


_PLAIN_FILES = frozenset("perl ruby node nodejs php lua luajit Rscript julia tsx ts-node".split())


def _shell(call: Call) -> Iterator[Finding]:
    rest = call.rest("-o +o -O +O")
    if not rest:
        yield objection(f"{call.name} runs what it reads")
    for word in rest[:1]:
        if call.simple.feed is not None and literal(word) == "-":
            yield objection(f"{call.name} runs what it reads")
        yield from runs_file(call, word)


def _source(call: Call) -> Iterator[Finding]:
    for word in call.args[:1]:
        yield from runs_file(call, word)


def _npx(call: Call) -> Iterator[Finding]:
    if call.has("-c", "--call", "--shell-auto-fallback"):
        yield objection(f"{call.name} runs a text")
    yield from fetched_program(call, 1 if call.name == "pipx" and call.words[:1] == ["run"] else 0)


def fetched_program(call: Call, at: int) -> Iterator[Finding]:
    """A package by its name, of which all code may come from the network: known ones pass, and
    those that are installed here."""
    packages: list[str] = []
    while at < len(call.words) and call.words[at].startswith("-"):
        option, equals, value = call.args[at].partition("=")
        if option in ("-p", "--package", "--from", "--with", "--spec"):
            packages.append(value if equals else "".join(call.args[at + 1 : at + 2]))
        at += 2 if option in _PACKAGE_OPTIONS and not equals else 1
    if call.name != "pipx" or at:
        packages += call.args[at : at + 1]
    for package in packages:
        if vague(package):
            yield objection(
                f"what {call.name} runs is only known when it runs", Certainty.UNCERTAIN
            )
        elif not _known_package(call, re.sub(r"(?<=.)(?:@[^/]*|[=<>~].*)$", "", literal(package))):
            yield objection(f"{call.name} fetches and runs {written(package)}, which is not known")


_PACKAGE_OPTIONS = ("-p", "--package", "--from", "--with", "--spec", "--python")


def _known_package(call: Call, package: str) -> bool:
    if package in TOOLS or package.startswith(("create-", "@types/")) or package in everyday():
        return True
    installed = (f"node_modules/.bin/{package}", f"node_modules/{package}")
    return any(path and call.places.exists(path) for at in installed for path in call.paths(at))


RUNNING: dict[str, Callable[[Call], Iterator[Finding]]] = {
    **dict.fromkeys("python python2 python3 pypy pypy3".split(), _python),
    **dict.fromkeys(_CODE, _code_options),
    **dict.fromkeys("sh bash dash zsh ksh mksh ash fish rbash csh tcsh".split(), _shell),
    **dict.fromkeys(_SOURCED, _source),
    **dict.fromkeys("npx pnpx bunx uvx pipx".split(), _npx),
}
