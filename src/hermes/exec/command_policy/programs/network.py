"""Programs that download: what they send, and where they save the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hermes.exec.command_policy.programs.call import ProgramCall
from hermes.exec.command_policy.programs.file_writers import is_outside
from hermes.exec.command_policy.shell.words import display_word, is_vague, literal_text
from hermes.exec.command_policy.types import Certainty, Finding, ask_finding

_CURL_VALUED = (
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
_SENDING_OPTIONS = (
    "-d --data --data-raw --data-binary --data-urlencode --data-ascii -F --form --form-string -T "
    "--upload-file --json -K --config -x --proxy --preproxy --socks5 --socks5-hostname "
    "--unix-socket --connect-to --resolve -E --cert --key --netrc --netrc-file --engine"
).split()
_METADATA_HOST = re.compile(
    r"(?:https?://)?(?:169\.254\.|metadata\.google|100\.100\.100\.200|\[?fd00:ec2)"
)
_LOCAL_HOST = re.compile(
    r"(?:https?://)?(?:localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[::1\])(?:[:/?]|$)"
)


def _check_curl(call: ProgramCall) -> Iterator[Finding]:
    urls = call.positional_words(_CURL_VALUED)
    if (url := call.option_value("--url")) is not None:
        urls.append(url)
    yield from _check_addresses(call, urls)
    local = all(_LOCAL_HOST.match(literal_text(url)) for url in urls)
    method = call.option_value("-X", "--request")
    if not local and call.has_option(*(o for o in _SENDING_OPTIONS if len(o) > 2)):
        yield ask_finding("curl sends data, or uses another route or configuration")
    if not local and any(re.match(r"-[a-zA-Z]*[dFTKxE]", w) for w in call.words if w[:2] != "--"):
        yield ask_finding("curl sends data, or uses another route or configuration")
    if not local and method is not None and literal_text(method) not in ("GET", "HEAD", "OPTIONS"):
        yield ask_finding("curl changes something on another machine")
    yield from _check_curl_output(call, urls)


def _check_curl_output(call: ProgramCall, urls: list[str]) -> Iterator[Finding]:
    short = next((w for w in call.words if re.fullmatch(r"-[a-zA-Z]*o", w)), "-o")
    targets = [t for o in (short, "--output", "-D", "--dump-header", "-c", "--cookie-jar")
               if (t := call.option_value(o)) is not None]  # fmt: skip
    folder = call.option_value("--output-dir")
    if folder is not None:
        targets = [f"{folder}/{target}" for target in targets] or [folder]
    if call.has_option("-O", "--remote-name", "-J") or any(
        re.fullmatch(r"-[a-zA-Z]*O", w) for w in call.words
    ):
        targets += [f"{folder or '.'}/{_download_name(url)}" for url in urls]
    for target in targets:
        if literal_text(target) != "-":
            yield from _check_download(call, target)


def _check_wget(call: ProgramCall) -> Iterator[Finding]:
    urls = call.positional_words(_WGET_VALUED)
    yield from _check_addresses(call, urls)
    if call.has_option("--post-data", "--post-file", "--body-data", "--body-file", "--method", "-e",
                "--execute", "--use-askpass", "--config", "--input-file"):  # fmt: skip
        yield ask_finding("wget sends data, or reads more options or addresses from elsewhere")
    if any(re.fullmatch(r"-[a-zA-Z]*[ie]", w) for w in call.words):
        yield ask_finding("wget sends data, or reads more options or addresses from elsewhere")
    short = next((w for w in call.words if re.fullmatch(r"-[a-zA-Z]*O", w)), "-O")
    target = call.option_value(short, "--output-document")
    if target is None:
        folder = call.option_value("-P", "--directory-prefix") or "."
        for url in urls:
            yield from _check_download(call, f"{folder}/{_download_name(url)}")
    elif literal_text(target) != "-":
        yield from _check_download(call, target)


def _check_addresses(call: ProgramCall, urls: list[str]) -> Iterator[Finding]:
    for url in urls:
        if is_vague(url):
            head = re.split("[\0\x1e]", url, maxsplit=1)[0]
            if not _LOCAL_HOST.match(head) or "/" not in head[8:]:
                yield ask_finding(
                    f"what {call.name} requests is known only at run time", Certainty.UNCERTAIN
                )
        elif _METADATA_HOST.match(literal_text(url)):
            yield ask_finding(
                f"{call.name} requests {display_word(url)}, which hands out credentials"
            )
        elif re.match(
            r"(?:file|gopher|dict|ldap|smb|scp|sftp|telnet|tftp|ftp)s?:", literal_text(url)
        ):
            yield ask_finding(
                f"{call.name} uses the protocol {literal_text(url).partition(':')[0]}"
            )


def _check_download(call: ProgramCall, target: str) -> Iterator[Finding]:
    call.downloads += call.resolve_paths(target)
    if is_vague(target) or is_outside(call, target):
        yield ask_finding(f"{call.name} writes {display_word(target)}, outside the project folder")


def _download_name(url: str) -> str:
    """The file name under which a download is saved."""
    path = re.sub(r"[?#].*", "", literal_text(url)).rstrip("/")
    name = path.rpartition("/")[2]
    return name if "://" in path and path.count("/") > 2 and name else "index.html"


def _check_httpie(call: ProgramCall) -> Iterator[Finding]:
    urls = call.positional_words("-o --output -a --auth")
    if not all(_LOCAL_HOST.match(literal_text(word)) for word in urls[:1]):
        yield ask_finding(f"{call.name} connects to other machines")


def _check_transfer(call: ProgramCall) -> Iterator[Finding]:
    target = call.option_value("-o", "--out")
    if target is not None:
        call.downloads += call.resolve_paths(target)
    yield ask_finding(f"{call.name} connects to other machines")


NETWORK_CHECKS: dict[str, Callable[[ProgramCall], Iterator[Finding]]] = {
    "curl": _check_curl,
    "wget": _check_wget,
    "http": _check_httpie,
    "https": _check_httpie,
    "xh": _check_httpie,
    "aria2c": _check_transfer,
}
