"""Interpreters: whether they run a file of the workspace or other code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hermes.exec.command_policy.programs.builtin_rules import KNOWN_PACKAGES, known_programs
from hermes.exec.command_policy.programs.call import ProgramCall
from hermes.exec.command_policy.programs.file_writers import is_outside
from hermes.exec.command_policy.shell.simple_command import FILE
from hermes.exec.command_policy.shell.words import display_word, is_vague, literal_text
from hermes.exec.command_policy.types import Certainty, Finding, ask_finding

_CODE_OPTIONS: dict[str, str] = {
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
_SOURCE_COMMANDS = ("source", ".")
_RISKY_MODULES = frozenset("timeit code pdb webbrowser smtpd telnetlib".split())


def _check_python(call: ProgramCall) -> Iterator[Finding]:
    at = 0
    while at < len(call.args) and call.words[at].startswith("-"):
        word = call.words[at]
        if re.fullmatch(r"-[a-zA-Z]*c.*", word):
            code = call.args[at][word.index("c") + 1 :] or "".join(call.args[at + 1 : at + 2])
            if not _is_harmless_code(call, code):
                yield ask_finding(f"{call.name} runs inline code")
            return
        if re.fullmatch(r"-[a-zA-Z]*m.*", word):
            module = word[word.index("m") + 1 :] or "".join(call.words[at + 1 : at + 2])
            if (
                is_vague("".join(call.args[at : at + 2]))
                or module.partition(".")[0] in _RISKY_MODULES
            ):
                yield ask_finding(f"{call.name} runs inline code")
            folder = call.option_value("-d", "--directory") if module == "http.server" else None
            if folder is not None and is_outside(call, folder):
                yield ask_finding(
                    f"{call.name} serves {display_word(folder)}, outside the project folder"
                )
            return
        if word in ("-", "-i") or ("i" in word.lstrip("-")[:4] and not word.startswith("--")):
            break
        at += 2 if word in ("-W", "-X", "--check-hash-based-pycs") else 1
    yield from _check_script(call, call.args[at:])


def _is_harmless_code(call: ProgramCall, code: str) -> bool:
    from hermes.exec.command_policy.programs.python_oneliners import is_harmless_python

    python = call.name.startswith(("python", "pypy"))
    return (
        python and call.sandboxed and not is_vague(code) and is_harmless_python(literal_text(code))
    )


def _check_script(call: ProgramCall, args: tuple[str, ...]) -> Iterator[Finding]:
    script = args[0] if args else "-"
    if literal_text(script) == "-":
        if call.simple.feed == FILE and call.simple.reads:
            yield from check_executed_file(call, call.simple.reads[-1])
        elif call.simple.feed is not None:
            if not _is_harmless_code(call, call.simple.feed):
                yield ask_finding(f"{call.name} runs code from its input")
        elif args:
            yield ask_finding(f"{call.name} runs inline code")
        return
    yield from check_executed_file(call, script)


def check_executed_file(call: ProgramCall, word: str) -> Iterator[Finding]:
    """Why running this file needs approval."""
    if is_vague(word):
        yield ask_finding(f"what {call.name} runs is known only at run time", Certainty.UNCERTAIN)
        return
    zones = call.classify_word(word)
    if zones & {"outside", "vital", "secret", "plain", "network", "unknown", "device"}:
        yield ask_finding(
            f"{call.name} runs {display_word(word)}, outside the project folder",
            Certainty.UNCERTAIN,
        )
    for path in call.resolve_paths(word):
        if path is not None and call.path_zones.is_tainted(path):
            yield ask_finding(f"{call.name} runs {display_word(word)}, which was downloaded")


def _check_interpreter(call: ProgramCall) -> Iterator[Finding]:
    pattern = re.compile(_CODE_OPTIONS[call.name])
    at = 0
    while at < len(call.words) and call.words[at].startswith("-") and call.words[at] != "-":
        if pattern.fullmatch(call.words[at]):
            yield ask_finding(f"{call.name} runs inline code")
            return
        at += 1
    rest = call.args[at:]
    if rest and pattern.fullmatch(call.words[at]):
        yield ask_finding(f"{call.name} runs inline code")
    elif call.name in _FILE_INTERPRETERS:
        if rest or call.simple.feed is not None:
            yield from _check_script(call, rest)
    elif call.simple.feed is not None and not rest:
        yield ask_finding(f"{call.name} runs code from its input")


_FILE_INTERPRETERS = frozenset(
    "perl ruby node nodejs php lua luajit Rscript julia tsx ts-node".split()
)


def _check_shell(call: ProgramCall) -> Iterator[Finding]:
    rest = call.positional_words("-o +o -O +O")
    if not rest:
        yield ask_finding(f"{call.name} runs code from its input")
    for word in rest[:1]:
        if call.simple.feed is not None and literal_text(word) == "-":
            yield ask_finding(f"{call.name} runs code from its input")
        yield from check_executed_file(call, word)


def _check_source(call: ProgramCall) -> Iterator[Finding]:
    for word in call.args[:1]:
        yield from check_executed_file(call, word)


def _check_npx(call: ProgramCall) -> Iterator[Finding]:
    if call.has_option("-c", "--call", "--shell-auto-fallback"):
        yield ask_finding(f"{call.name} runs inline code")
    yield from check_fetched_package(
        call, 1 if call.name == "pipx" and call.words[:1] == ["run"] else 0
    )


def check_fetched_package(call: ProgramCall, at: int) -> Iterator[Finding]:
    """Why running a package that may be downloaded first needs approval; well-known and installed
    ones do not."""
    packages: list[str] = []
    while at < len(call.words) and call.words[at].startswith("-"):
        option, equals, value = call.args[at].partition("=")
        if option in ("-p", "--package", "--from", "--with", "--spec"):
            packages.append(value if equals else "".join(call.args[at + 1 : at + 2]))
        at += 2 if option in _PACKAGE_OPTIONS and not equals else 1
    if call.name != "pipx" or at:
        packages += call.args[at : at + 1]
    for package in packages:
        if is_vague(package):
            yield ask_finding(
                f"what {call.name} runs is known only at run time", Certainty.UNCERTAIN
            )
        elif not _is_known_package(
            call, re.sub(r"(?<=.)(?:@[^/]*|[=<>~].*)$", "", literal_text(package))
        ):
            yield ask_finding(
                f"{call.name} downloads and runs {display_word(package)}, an unknown package"
            )


_PACKAGE_OPTIONS = ("-p", "--package", "--from", "--with", "--spec", "--python")


def _is_known_package(call: ProgramCall, package: str) -> bool:
    if (
        package in KNOWN_PACKAGES
        or package.startswith(("create-", "@types/"))
        or package in known_programs()
    ):
        return True
    installed = (f"node_modules/.bin/{package}", f"node_modules/{package}")
    return any(
        path and call.path_zones.exists(path) for at in installed for path in call.resolve_paths(at)
    )


INTERPRETER_CHECKS: dict[str, Callable[[ProgramCall], Iterator[Finding]]] = {
    **dict.fromkeys("python python2 python3 pypy pypy3".split(), _check_python),
    **dict.fromkeys(_CODE_OPTIONS, _check_interpreter),
    **dict.fromkeys("sh bash dash zsh ksh mksh ash fish rbash csh tcsh".split(), _check_shell),
    **dict.fromkeys(_SOURCE_COMMANDS, _check_source),
    **dict.fromkeys("npx pnpx bunx uvx pipx".split(), _check_npx),
}
