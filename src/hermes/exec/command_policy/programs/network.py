"""Programs that fetch: what they send, where they put what they get."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hermes.exec.command_policy.programs.call import Call
from hermes.exec.command_policy.programs.file_writers import outside
from hermes.exec.command_policy.shell.words import literal, vague, written
from hermes.exec.command_policy.types import Certainty, Finding, objection

_VALUED = (
    "-H --header -A --user-agent -e --referer -o --output -w --write-out -m --max-time "
    "--connect-timeout --retry --retry-delay -b --cookie -c --cookie-jar -x --proxy -K --config "
    "-u --user -X --request -d --data -F --form -T --upload-file --data-raw --data-binary "
    "--data-urlencode --json -E --cert --key --cacert --resolve --output-dir -r --range -D "
    "--dump-header --limit-rate --max-redirs --url --unix-socket --interface --connect-to"
)
_WGET_VALUED = (
    "-O --output-document -P --directory-prefix -o --output-file -t -T -U -e -i --header --user "
    "--password --post-data --post-file --tries --timeout"
)
_SENDS = (
    "-d --data --data-raw --data-binary --data-urlencode --data-ascii -F --form --form-string -T "
    "--upload-file --json -K --config -x --proxy --preproxy --socks5 --socks5-hostname "
    "--unix-socket --connect-to --resolve -E --cert --key --netrc --netrc-file --engine"
).split()
_PRIVATE = re.compile(
    r"(?:https?://)?(?:169\.254\.|metadata\.google|100\.100\.100\.200|\[?fd00:ec2)"
)
_LOCAL = re.compile(r"(?:https?://)?(?:localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[::1\])(?:[:/?]|$)")


def _curl(call: Call) -> Iterator[Finding]:
    urls = call.rest(_VALUED)
    if (url := call.value("--url")) is not None:
        urls.append(url)
    yield from _addresses(call, urls)
    local = all(_LOCAL.match(literal(url)) for url in urls)
    method = call.value("-X", "--request")
    if not local and call.has(*(o for o in _SENDS if len(o) > 2)):
        yield objection("curl sends data or goes another way")
    if not local and any(re.match(r"-[a-zA-Z]*[dFTKxE]", w) for w in call.words if w[:2] != "--"):
        yield objection("curl sends data or goes another way")
    if not local and method is not None and literal(method) not in ("GET", "HEAD", "OPTIONS"):
        yield objection("curl changes something on another machine")
    yield from _saved(call, urls)


def _saved(call: Call, urls: list[str]) -> Iterator[Finding]:
    short = next((w for w in call.words if re.fullmatch(r"-[a-zA-Z]*o", w)), "-o")
    targets = [t for o in (short, "--output", "-D", "--dump-header", "-c", "--cookie-jar")
               if (t := call.value(o)) is not None]  # fmt: skip
    folder = call.value("--output-dir")
    if folder is not None:
        targets = [f"{folder}/{target}" for target in targets] or [folder]
    if call.has("-O", "--remote-name", "-J") or any(
        re.fullmatch(r"-[a-zA-Z]*O", w) for w in call.words
    ):
        targets += [f"{folder or '.'}/{_last(url)}" for url in urls]
    for target in targets:
        if literal(target) != "-":
            yield from _kept(call, target)


def _wget(call: Call) -> Iterator[Finding]:
    urls = call.rest(_WGET_VALUED)
    yield from _addresses(call, urls)
    if call.has("--post-data", "--post-file", "--body-data", "--body-file", "--method", "-e",
                "--execute", "--use-askpass", "--config", "--input-file"):  # fmt: skip
        yield objection("wget sends data or follows other orders")
    if any(re.fullmatch(r"-[a-zA-Z]*[ie]", w) for w in call.words):
        yield objection("wget sends data or follows other orders")
    short = next((w for w in call.words if re.fullmatch(r"-[a-zA-Z]*O", w)), "-O")
    target = call.value(short, "--output-document")
    if target is None:
        folder = call.value("-P", "--directory-prefix") or "."
        for url in urls:
            yield from _kept(call, f"{folder}/{_last(url)}")
    elif literal(target) != "-":
        yield from _kept(call, target)


def _addresses(call: Call, urls: list[str]) -> Iterator[Finding]:
    for url in urls:
        if vague(url):
            head = re.split("[\0\x1e]", url, maxsplit=1)[0]
            if not _LOCAL.match(head) or "/" not in head[8:]:
                yield objection(
                    f"what {call.name} asks for is only known when it runs", Certainty.UNCERTAIN
                )
        elif _PRIVATE.match(literal(url)):
            yield objection(f"{call.name} asks for {written(url)}, which hands out credentials")
        elif re.match(r"(?:file|gopher|dict|ldap|smb|scp|sftp|telnet|tftp|ftp)s?:", literal(url)):
            yield objection(f"{call.name} uses {literal(url).partition(':')[0]}")


def _kept(call: Call, target: str) -> Iterator[Finding]:
    call.downloads += call.paths(target)
    if vague(target) or outside(call, target):
        yield objection(f"{call.name} writes {written(target)}, outside the workspace")


def _last(url: str) -> str:
    """The name under which a download is saved."""
    path = re.sub(r"[?#].*", "", literal(url)).rstrip("/")
    name = path.rpartition("/")[2]
    return name if "://" in path and path.count("/") > 2 and name else "index.html"


def _httpie(call: Call) -> Iterator[Finding]:
    urls = call.rest("-o --output -a --auth")
    if not all(_LOCAL.match(literal(word)) for word in urls[:1]):
        yield objection(f"{call.name} reaches other machines")


def _other(call: Call) -> Iterator[Finding]:
    target = call.value("-o", "--out")
    if target is not None:
        call.downloads += call.paths(target)
    yield objection(f"{call.name} reaches other machines")


FETCHING: dict[str, Callable[[Call], Iterator[Finding]]] = {
    "curl": _curl,
    "wget": _wget,
    "http": _httpie,
    "https": _httpie,
    "xh": _httpie,
    "aria2c": _other,
}
