"""Programs that are known to need more than the sandbox gives them: the network, mostly."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TypeAlias

from hermes.core.escalation import MAX_NAMES, PACKAGES, Access

Argv: TypeAlias = tuple[str, ...]
_DOWNLOADS = "it downloads packages"
_FETCHES = "it fetches commits from another machine"
_RUNS_DOWNLOAD = "it downloads a program from there and runs it"
_INTERPRETER = re.compile(r"(?:.*/)?(?:(?:ba|da|k|z|fi)?sh|python[\d.]*|perl|ruby|node|php)")
_PUBLISHES = "it publishes a package"
_SUBCOMMANDS: dict[str, str] = {
    "npm pnpm yarn bun": "install i ci add update upgrade",
    "pip pip3": "install download",
    "uv": "add sync lock",
    "poetry pipenv": "install add update lock",
    "conda mamba": "install create update",
    "cargo": "install add update fetch",
    "go": "get install",
    "gem bundle": "install update",
    "composer": "install require update",
}
_NEEDS: dict[Argv, tuple[str, Access]] = {
    **{
        (name, subcommand): (_DOWNLOADS, Access(network=(PACKAGES,)))
        for names, subcommands in _SUBCOMMANDS.items()
        for name in names.split()
        for subcommand in subcommands.split()
    },
    **{("git", name): (_FETCHES, Access(network=True)) for name in "fetch pull clone".split()},
    # Who publishes has to log in, and the sandbox hides credentials.
    **{
        (name, "publish"): (_PUBLISHES, Access(unconfined=True))
        for name in "npm pnpm yarn cargo uv poetry".split()
    },
    ("git", "push"): ("it publishes commits to another machine", Access(unconfined=True)),
    ("docker", "build"): ("it builds an image with the docker daemon", Access(unconfined=True)),
}
_URL = re.compile(r"https?://(?:[^/@\s]*@)?([\w.-]+)(?::(\d+))?")
_REMOTE = re.compile(r"://|^[\w.-]+@[\w.-]+:|^[./~]")
_SSH = re.compile(r"(?:^|url\s*=\s*)(?:(?:git\+)?ssh://|[\w.-]+@[\w.-]+:)", re.MULTILINE)
_LOCAL = re.compile(r"(?:localhost|127\.[\d.]+|0\.0\.0\.0)(?::\d+)?")


def downloads_packages(commands: Collection[Argv]) -> bool:
    """Whether all of these are package managers that are told to install something."""
    needs = [_NEEDS.get(argv[:2], ("",))[0] for argv in commands]
    return set(needs) == {_DOWNLOADS}


def _runs_its_input(words: Argv) -> bool:
    """Whether an interpreter is given no program but what is piped into it."""
    return any(map(_INTERPRETER.fullmatch, words[:1])) and words[1:2] in ((), ("-",), ("-s",))


def find_need(commands: Iterable[Argv], git_config: str = "") -> tuple[str, Access] | None:
    """What the first of these commands that cannot work inside the walls needs, and why. Git's
    settings say where it fetches from: ssh cannot use the proxy."""
    from hermes.exec.command_policy.wrappers import simplify_command

    simplified = [simplify_command(argv) for argv in commands]
    runs_input = any(map(_runs_its_input, simplified))
    for words in simplified:
        if "--help" in words or "--dry-run" in words or "--offline" in words:
            continue
        need = _NEEDS.get(words[:2])
        if need is None and words[0].endswith("/bin/pip"):  # of a virtual environment
            need = _NEEDS.get(("pip", *words[1:2]))
        if need:
            source = "\n".join(words) if any(map(_REMOTE.search, words)) else git_config
            by_ssh = need[0] == _FETCHES and _SSH.search(source)
            return (_FETCHES, Access(unconfined=True)) if by_ssh else need
        if words[:1] in (("curl",), ("wget",)):
            hosts = [f"{h}:{p}" if p else h for h, p in _URL.findall(" ".join(words))]
            outside = tuple(dict.fromkeys(h for h in hosts if not _LOCAL.fullmatch(h)))
            if 0 < len(outside) <= MAX_NAMES:
                why = _RUNS_DOWNLOAD if runs_input else "it sends requests there"
                return why, Access(network=outside)
    return None
