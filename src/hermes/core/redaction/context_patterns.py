"""Secrets recognised by their context: the name, header or option before them."""

import re
from collections.abc import Iterator

from hermes.core.redaction.pattern import (
    BEGIN,
    HEX,
    IS,
    LINE,
    QUOTE,
    SecretFamily,
    W,
    context_family,
    is_basic_auth,
    is_password,
    is_quoted_password,
    is_random_value,
    is_setting,
    is_unbroken,
    is_written_out,
    token_family,
)

_WORDS = "password passwd passphrase pass pwd secret token".split()
_KEYS = (
    "api access secret private preshared auth account shared encryption signing master license "
    "admin".split()
)
_VALUE = (
    r"((?<=[\"'`])[^\"'`\s\\]{8,256}(?=\\?[\"'`])"
    r"|[A-Za-z0-9_+/=.~!@#%^&*?|:\-]{8,512}+(?![(\[{$<]))"
)
_TELLING = (
    r"(?<![a-z])(?i:password|passwd|passphrase|client_?secret|app_?secret)|(?<![a-zA-Z])pwd"
    r"|(?<=[A-Z0-9_])(?:SECRET|_PASS|_PWD|_PW|_API_KEY)"
    r"|(?i:secret[_-]?key|api[_-]?key|api[_-]?token)"
)
_LETTER_CASES = (
    "assword ASSWORD asswd ASSWD assphrase ASSPHRASE client ClientSecret CLIENT app pwd "
    "SECRET _PASS _PWD _PW _API_KEY secret pi-key pi_key pikey piKey PI_KEY pi_token pitoken "
    "piToken PI_TOKEN"
)
"""Parts of those names."""
_PAIR = re.compile(r"=([^;\s]+)")


def is_variable_value(secret: str) -> bool:
    """Whether the value of a variable in capitals is a secret: no reference, path or name."""
    return is_random_value(secret) or (
        is_unbroken(secret) and secret[0] != "/" and "://" not in secret
    )


def _has_session_cookie(secret: str) -> bool:
    """Whether a cookie header contains a value that may be a session."""
    return any(is_unbroken(value) or is_random_value(value) for value in _PAIR.findall(secret))


def _assignment_families() -> Iterator[SecretFamily]:
    """A family for each spelling of a name, beginning with letters, which are found fastest."""
    for word in _WORDS:
        first, rest = word[0], word[1:]
        for begin, end in ((f"[{first}{first.upper()}]", rest), (first.upper(), rest.upper())):
            # `pass` also ends other words.
            whole = "(?<![a-z]{0}{1})" if len(word) == 4 else ""
            name = f"{end}(?<={begin}{end}){whole.format(begin, end)}"
            yield context_family("assignment", end, f"{name}{IS}{_VALUE}", is_random_value)
    for end in ("key", "Key", "KEY"):
        names = "|".join(f"(?<={name})" for key in _KEYS for name in _spell_name(key, end))
        yield context_family("assignment", end, f"{end}(?:{names}){IS}{_VALUE}", is_random_value)


def _spell_name(word: str, end: str) -> list[str]:
    if end == "KEY":
        return [f"{word.upper()}{sep}KEY" for sep in ("", "_")]
    if end == "Key":
        return [f"{form}Key" for form in (word, word.title(), word.upper())]
    return [f"{word}{sep}key" for sep in ("", "_", "-")]


def _header_families() -> Iterator[SecretFamily]:
    rest = rf"{QUOTE}\s{{0,8}}[:=]\s{{0,8}}{QUOTE}(?:[A-Za-z][A-Za-z0-9\-]{{1,20}}\s{{1,8}})?"
    for name in "-key -Key -KEY -token -Token -TOKEN uthorization UTHORIZATION".split():
        yield context_family(
            "header", name, rf"{name}{rest}([A-Za-z0-9._~+/=\-]{{16,}})", is_variable_value
        )


CONTEXT_FAMILIES: tuple[SecretFamily, ...] = (
    token_family("jwt", "eyJ", rf"eyJ{W}{{8,1500}}\.eyJ{W}{{8,}}(?:\.{W}*)?"),
    context_family("bearer", "earer EARER", r"(?i:bearer)\s+([A-Za-z0-9._~+/=\-]{8,})"),
    context_family("basic", "asic ASIC", r"(?i:basic)\s+([A-Za-z0-9+/]{8,}={0,2})", is_basic_auth),
    context_family("basic", "auth", rf"_?auth{IS}([A-Za-z0-9+/]{{8,512}}={{0,2}})", is_basic_auth),
    *_header_families(),
    context_family("digest", "response=", rf"\bresponse={QUOTE}({HEX}{{32,128}})"),
    context_family(
        "signature",
        "ignature=",
        rf"[Ss]ignature={QUOTE}([A-Fa-f0-9]{{32,}}|[A-Za-z0-9+/%_-]{{40,}}={{0,2}})",
    ),
    context_family(
        "cookie",
        "et-cookie et-Cookie ET-COOKIE",
        rf"(?i:set-cookie){QUOTE}\s*:\s*{QUOTE}[^=\s;\"']{{1,100}}=([^;\s\"'\\]{{8,4096}})",
        is_variable_value,
    ),
    context_family(
        "cookie",
        'ookie: ookie" ookie\\',
        r"ookie(?:(?<![A-Za-z0-9-][Cc]ookie)|(?<=\\[nrt][Cc]ookie))"
        rf"{QUOTE}\s*:\s*{QUOTE}([^\r\n\"'\\]{{16,8192}})",
        _has_session_cookie,
    ),
    context_family(
        "variable",
        "KEY= TOKEN= SECRET= PASSWORD= PASSWD= PASS= PWD= _PAT= PASSPHRASE= CREDENTIALS=",
        r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PWD|_PAT|PASSPHRASE|CREDENTIALS)="
        rf"{QUOTE}([A-Za-z0-9_+/=.~!@#%^&*()\-]{{8,}})",
        is_variable_value,
    ),
    context_family(
        "variable",
        "PASSWORD= PASSWD= PASSPHRASE= SECRET= TOKEN= _KEY= APIKEY= _PASS= _PWD= _PW=",
        rf"(?<![a-z.])(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|_KEY|APIKEY|_PASS|_PWD?)={QUOTE}"
        r"((?<=[\"'])(?=[^\"'\n]{0,99}\d)[^\"'`\\\n]{3,256}(?=[\"'])|[^\s\"'`,;|&\\]{3,256})",
        is_setting,
    ),
    context_family(  # of a container
        "variable",
        "PASSWORD PASSWD SECRET TOKEN _KEY APIKEY _PASS",
        rf"name:\s{{1,4}}{QUOTE}[A-Z0-9_]{{0,60}}(?:PASSWORD|PASSWD|SECRET|TOKEN|_KEY|APIKEY|_PASS)"
        rf"{QUOTE}\s{{0,4}}\n[^\n]{{0,40}}?value:\s{{1,4}}{QUOTE}([^\s\"'`\\]{{3,256}})",
        is_setting,
    ),
    context_family(
        "variable",
        "PASSWORD PASSWD SECRET TOKEN _KEY APIKEY _PASS",
        rf"{LINE}(?:ENV|ARG)\s+[A-Z0-9_]{{0,60}}"
        r"(?:PASSWORD|PASSWD|SECRET|TOKEN|_KEY|APIKEY|_PASS)\s+[\"']?([^\s\"'`\\]{3,256})",
        is_setting,
    ),
    context_family(
        "assignment",
        "password: passwd: passphrase: password= passwd= _secret",
        rf"{LINE}[\w.-]{{0,80}}(?:password|passwd|passphrase|client_secret|app_secret)\s?[:=]\s?"
        r"((?=[^\s]*\d)(?=[^\s]*[A-Za-z])[^\s\"'`,;:\\]{6,256})\s*$",
        is_setting,
    ),
    context_family(  # data: what is in quotation marks is no name in code
        "assignment",
        _LETTER_CASES,
        rf"(?:{_TELLING})(?:[\"']\])?{IS}(?<=[\"'])([^\"'`\s\\]{{6,256}})(?=\\?[\"'])",
        is_quoted_password,
    ),
    context_family(
        "assignment",
        "PASSWORD: SECRET: TOKEN: _KEY: PASSWD: _PASS:",
        rf"{LINE}(?:- )?[A-Z0-9_]{{0,60}}"
        r"(?:PASSWORD|PASSWD|SECRET|TOKEN|_KEY|_PASS):\s"
        r"((?=[^\s]*\d)(?=[^\s]*[A-Za-z])[^\s\"'`,;:\\]{6,256})\s*$",
        is_setting,
    ),
    context_family(
        "assignment",
        _LETTER_CASES,
        rf"(?:{_TELLING}){IS}((?<=[\"'`])[^\"'`\s\\]{{6,256}}(?=\\?[\"'`])"
        r"|(?<![\"'`])[^\s\"'`,;&|\\)]{6,256})",
        is_written_out,
    ),
    context_family(
        "assignment",
        "IDENTIFIED identified",
        r"(?i:identified\s+by\s+(?:password\s+)?)[\"']([^\"'\n\\]{4,256})[\"']",
        is_password,
    ),
    context_family(
        "assignment",
        ".password= .passwd= .secret= .token=",
        rf"{LINE}[\w-]{{1,40}}(?:\.[\w-]{{1,40}}){{0,7}}\.(?:password|passwd|secret|token)="
        r"([^\s\"'`,;\\]{3,256})\s*$",
        is_setting,
    ),
    context_family(
        "option",
        "mysql mariadb",
        r"\b(?:mysql|mysqldump|mysqladmin|mysqlimport|mariadb|mariadb-dump)\s"
        r"(?:[^\n|;]{0,300}?\s)?-p[\"']?([^\s\"'$]{1,256})",
        None,
    ),
    context_family(
        "option",
        "redis-cli",
        r"\bredis-cli\s(?:[^\n|;]{0,300}?\s)?-a\s+[\"']?([^\s\"'$]{1,256})",
        None,
    ),
    *_assignment_families(),
    context_family(
        "query",
        "password= passwd= pwd=",
        r"[?&;](?:password|passwd|pwd)=([^\s\"'`<>&;\\]{3,256})",
        is_quoted_password,
    ),
    context_family("query", "key=", rf"[?&;]key=({W}{{20,256}})", is_unbroken),
    context_family(
        "option",
        "--pass --token --secret --api-key --access-key",
        r"--(?:[a-z]{1,20}-){0,3}(?:password|passwd|pass|token|secret|key)"
        rf"[= ]{QUOTE}([^\s\"'\\]{{8,256}})",
        is_random_value,
    ),
    context_family(
        "option",
        "--password --passwd",
        rf"--(?:[a-z]{{1,20}}-){{0,3}}(?:password|passwd)[= ]{QUOTE}([^\s\"'\\]{{6,256}})",
        is_quoted_password,
    ),
    context_family(
        "option",
        "curl sshpass",
        rf"{BEGIN}(?:curl\s(?:[^\n|;]{{0,400}}\s)?(?:-u|--user)\s{{0,4}}[\"']?[^\s:\"'$]{{1,64}}:"
        r"|sshpass\s+-p\s{0,4}[\"']?)([^\s\"'$]{4,256})",
        is_password,
    ),
    context_family(
        "option",
        "docker podman",
        r"\blogin\s[^\n]{0,200}?\s-p\s+[\"']?([^\s\"'$]{6,256})",
        is_password,
    ),
    context_family(
        "netrc",
        "login",
        r"\blogin\s{1,8}\S{1,200}\s{1,80}password\s{1,8}([^\s\"\\]{4,256})",
        is_password,
    ),
    context_family(
        "pgpass", ":5432:", r":5432:[^:\s]{1,64}:[^:\s]{1,64}:([^\s\"'\\]{6,128})", is_random_value
    ),
    context_family(
        "element",
        "assword> secret> oken> ecret> ey>",
        r"<(?:[\w.:-]{0,60})(?i:password|passphrase|secret|token|key)>([^<\s]{8,256})</",
        is_random_value,
    ),
    context_family(
        "element",
        "assword> assphrase>",
        r"<(?:[\w.:-]{0,60})(?i:password|passphrase)>([^<\s]{6,256})</",
        is_quoted_password,
    ),
    context_family(
        "hash",
        "$6$ $5$ $1$ $y$ $apr1$ $2a$ $2b$ $2y$ $argon2",
        r"\$(?:(?:[156y]|apr1)\$(?:rounds=\d+\$|[./A-Za-z0-9]{3}\$)?[./A-Za-z0-9]{2,32}"
        r"\$[./A-Za-z0-9]{22,86}|2[aby]\$\d\d\$[./A-Za-z0-9]{53}"
        r"|argon2(?:id|i|d)\$v=\d+\$[a-z0-9=,]{5,60}\$[A-Za-z0-9+/]{8,90}\$[A-Za-z0-9+/]{20,})",
    ),
    context_family("url", "://", rf"://({W}{{20,256}})@(?=[\w.-])", is_unbroken),
    context_family(
        "url",
        "://",
        r"://[^/\s:@\"'<>`\[]{0,256}:([^/\s@\"'<>`]{1,256})@(?!sha256:)",
        is_password,
    ),
)
