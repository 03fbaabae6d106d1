"""Made-up secrets of every family, written after the issuers' descriptions, and ordinary text."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import random
import string
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = string.ascii_letters + DIGITS
WORD = ALNUM + "_-"
HEX = "0123456789abcdef"
B64 = ALNUM + "+/"
BECH32 = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"


class Dice(random.Random):
    def of(self, alphabet: str, size: int) -> str:
        return "".join(self.choices(alphabet, k=size))


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _jwt(d: Dice) -> str:
    head = _url64(json.dumps({"alg": d.choice(["HS256", "RS256"]), "typ": "JWT"}).encode())
    body = _url64(json.dumps({"sub": d.of(DIGITS, 10), "iat": d.randrange(10**9)}).encode())
    return f"{head}.{body}.{d.of(WORD, 43)}"


def _pem(d: Dice, label: str, size: int = 600) -> str:
    text = _b64(d.randbytes(size))
    lines = "\n".join(text[i : i + 64] for i in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----"


def _discord(d: Dice) -> str:
    return f"{_url64(d.of(DIGITS[1:], 18).encode())}.G{d.of(WORD, 5)}.{d.of(WORD, 38)}"


# One entry per family: (text around the secret, what must not be left of it).
Sample = tuple[str, str]


def _alone(secret: str) -> Sample:
    return secret, secret


def _in(before: str, secret: str, after: str = "") -> Sample:
    return before + secret + after, secret


MAKERS: dict[str, Callable[[Dice], Sample]] = {
    "anthropic": lambda d: _alone(f"sk-ant-api03-{d.of(WORD, 93)}AA"),
    "openrouter": lambda d: _alone(f"sk-or-v1-{d.of(HEX, 64)}"),
    "openai": lambda d: _alone(
        d.choice(
            [
                f"sk-{d.of(ALNUM, 20)}T3BlbkFJ{d.of(ALNUM, 20)}",
                f"sk-proj-{d.of(WORD, 74)}T3BlbkFJ{d.of(WORD, 74)}",
                f"sk-svcacct-{d.of(WORD, 58)}T3BlbkFJ{d.of(WORD, 58)}",
                f"sk-{d.of(HEX, 32)}",
            ]
        )
    ),
    "google": lambda d: _alone(f"AIza{d.of(WORD, 35)}"),
    "google-oauth": lambda d: _alone(
        d.choice([f"ya29.a0{d.of(WORD, 180)}", f"GOCSPX-{d.of(WORD, 28)}", f"1//0{d.of(WORD, 60)}"])
    ),
    "huggingface": lambda d: _alone(f"hf_{d.of(string.ascii_letters, 34)}"),
    "groq": lambda d: _alone(f"gsk_{d.of(ALNUM, 52)}"),
    "xai": lambda d: _alone(f"xai-{d.of(ALNUM, 80)}"),
    "replicate": lambda d: _alone(f"r8_{d.of(ALNUM, 37)}"),
    "perplexity": lambda d: _alone(f"pplx-{d.of(ALNUM, 48)}"),
    "nvidia": lambda d: _alone(f"nvapi-{d.of(WORD, 64)}"),
    "tavily": lambda d: _alone(f"tvly-{d.choice(['', 'dev-'])}{d.of(ALNUM, 32)}"),
    "pinecone": lambda d: _alone(f"pcsk_{d.of(ALNUM, 6)}_{d.of(ALNUM, 63)}"),
    "aws": lambda d: _alone(d.choice(["AKIA", "ASIA"]) + d.of(UPPER + "234567", 16)),
    "aws-secret": lambda d: _in(
        d.choice(
            [
                "aws_secret_access_key = ",
                "AWS_SECRET_ACCESS_KEY=",
                '"SecretAccessKey": "',
                "secretAccessKey: '",
            ]
        ),
        d.of(B64, 40),
    ),
    "azure": lambda d: _in(
        "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=",
        _b64(d.randbytes(64)),
        ";EndpointSuffix=core.windows.net",
    ),
    "azure-sas": lambda d: _in(
        "https://acc.blob.core.windows.net/c/f?sv=2022-11-02&se=2026-01-01&sp=r&sig=",
        _b64(d.randbytes(32)).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
    ),
    "gcp": lambda d: _in('{"type":"service_account","private_key_id": "', d.of(HEX, 40), '"}'),
    "digitalocean": lambda d: _alone(f"do{d.choice('opr')}_v1_{d.of(HEX, 64)}"),
    "cloudflare": lambda d: d.choice(
        [
            _in("CLOUDFLARE_API_TOKEN=", d.of(WORD, 40)),
            _in('cloudflare_api_key: "', d.of(HEX, 37), '"'),
            _alone(f"v1.0-{d.of(HEX, 24)}-{d.of(HEX, 146)}"),
        ]
    ),
    "heroku": lambda d: d.choice(
        [
            _alone(f"HRKU-AA{d.of(WORD, 58)}"),
            _in("HEROKU_API_KEY=", str(uuid.UUID(int=d.getrandbits(128)))),
        ]
    ),
    "vercel": lambda d: _alone(
        d.choice([f"vcp_{d.of(ALNUM, 56)}", f"vercel_blob_rw_{d.of(ALNUM, 16)}_{d.of(ALNUM, 30)}"])
    ),
    "supabase": lambda d: _alone(
        d.choice([f"sbp_{d.of(HEX, 40)}", f"sb_secret_{d.of(WORD, 22)}_{d.of(WORD, 8)}"])
    ),
    "databricks": lambda d: _alone(f"dapi{d.of(HEX, 32)}{d.choice(['', '-2'])}"),
    "planetscale": lambda d: _alone(f"pscale_tkn_{d.of(WORD, 43)}"),
    "tailscale": lambda d: _alone(f"tskey-auth-k{d.of(ALNUM, 12)}CNTRL-{d.of(ALNUM, 32)}"),
    "vault": lambda d: _alone(f"hvs.CAES{d.of(WORD, 92)}"),
    "terraform": lambda d: _alone(f"{d.of(ALNUM, 14)}.atlasv1.{d.of(WORD, 67)}"),
    "doppler": lambda d: _alone(f"dp.{d.choice(['pt', 'ct', 'sa'])}.{d.of(ALNUM, 43)}"),
    "github": lambda d: _alone(
        d.choice(
            [
                f"gh{d.choice('pousr')}_{d.of(ALNUM, 36)}",
                f"github_pat_{d.of(ALNUM, 22)}_{d.of(ALNUM, 59)}",
            ]
        )
    ),
    "gitlab": lambda d: _alone(
        d.choice(["glpat-", "glrt-", "gldt-", "glcbt-", "glwt-", "GR1348941"]) + d.of(WORD, 20)
    ),
    "npm": lambda d: _alone(f"npm_{d.of(ALNUM, 36)}"),
    "pypi": lambda d: _alone(f"pypi-AgEIcHlwaS5vcmc{d.of(WORD, 120)}"),
    "rubygems": lambda d: _alone(f"rubygems_{d.of(HEX, 48)}"),
    "docker": lambda d: _alone(f"dckr_pat_{d.of(WORD, 27)}"),
    "atlassian": lambda d: _alone(f"ATATT3xFfGF0{d.of(WORD, 170)}={d.of(HEX.upper(), 8)}"),
    "postman": lambda d: _alone(f"PMAK-{d.of(HEX, 24)}-{d.of(HEX, 34)}"),
    "slack": lambda d: d.choice(
        [
            _alone(f"xoxb-{d.of(DIGITS, 12)}-{d.of(DIGITS, 13)}-{d.of(ALNUM, 24)}"),
            _alone(f"xoxp-{d.of(DIGITS, 12)}-{d.of(DIGITS, 12)}-{d.of(HEX, 32)}"),
            _alone(f"xapp-1-A{d.of(UPPER + DIGITS, 10)}-{d.of(DIGITS, 13)}-{d.of(HEX, 64)}"),
            _in(
                "https://hooks.slack.com/services/",
                f"T{d.of(UPPER + DIGITS, 8)}/B{d.of(UPPER + DIGITS, 8)}/{d.of(ALNUM, 24)}",
            ),
        ]
    ),
    "discord": lambda d: d.choice(
        [
            _alone(_discord(d)),
            _in(f"https://discord.com/api/webhooks/{d.of(DIGITS[1:], 18)}/", d.of(WORD, 68)),
        ]
    ),
    "telegram": lambda d: _alone(f"{d.of(DIGITS[1:], 10)}:AA{d.of(WORD, 33)}"),
    "twilio": lambda d: _alone(f"SK{d.of(HEX, 32)}"),
    "sendgrid": lambda d: _alone(f"SG.{d.of(WORD, 22)}.{d.of(WORD, 43)}"),
    "mailgun": lambda d: _alone(f"key-{d.of(HEX, 32)}"),
    "mailchimp": lambda d: _alone(f"{d.of(HEX, 32)}-us{d.randrange(1, 22)}"),
    "matrix": lambda d: _alone(f"syt_{_b64(b'joe')}_{d.of(ALNUM, 20)}_{d.of(ALNUM, 6)}"),
    "stripe": lambda d: _alone(
        d.choice([f"sk_live_{d.of(ALNUM, 24)}", f"rk_test_{d.of(ALNUM, 99)}"])
    ),
    "square": lambda d: _alone(
        d.choice([f"sq0atp-{d.of(WORD, 22)}", f"EAAAl{d.of(WORD, 59)}", f"sq0csp-{d.of(WORD, 43)}"])
    ),
    "shopify": lambda d: _alone(f"shp{d.choice(['at', 'ca', 'pa', 'ss'])}_{d.of(HEX, 32)}"),
    "linear": lambda d: _alone(f"lin_api_{d.of(ALNUM, 40)}"),
    "notion": lambda d: _alone(
        d.choice([f"secret_{d.of(ALNUM, 43)}", f"ntn_{d.of(DIGITS, 11)}{d.of(ALNUM, 35)}"])
    ),
    "figma": lambda d: _alone(f"figd_{d.of(WORD, 40)}"),
    "airtable": lambda d: _alone(f"pat{d.of(ALNUM, 14)}.{d.of(HEX, 64)}"),
    "sentry": lambda d: d.choice(
        [
            _alone(f"sntryu_{d.of(HEX, 64)}"),
            _in("https://", f"{d.of(HEX, 32)}:{d.of(HEX, 32)}", "@sentry.example.com/42"),
            _in("https://", d.of(HEX, 32), "@o123456.ingest.sentry.io/4505"),
        ]
    ),
    "grafana": lambda d: _alone(f"glsa_{d.of(ALNUM, 32)}_{d.of(HEX, 8)}"),
    "newrelic": lambda d: _alone(f"NRAK-{d.of(UPPER + DIGITS, 27)}"),
    "ssh-key": lambda d: _alone(_pem(d, "OPENSSH PRIVATE KEY")),
    "pgp-key": lambda d: _alone(_pem(d, "PGP PRIVATE KEY BLOCK")),
    "private-key": lambda d: _alone(
        _pem(d, d.choice(["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"]))
    ),
    "age": lambda d: _alone(f"AGE-SECRET-KEY-1{d.of(BECH32, 58)}"),
    "jwt": lambda d: _alone(_jwt(d)),
    "bearer": lambda d: _in("Authorization: Bearer ", d.of(ALNUM + "._", 32)),
    "basic": lambda d: _in(
        "Authorization: Basic ", _b64(f"{d.of(LOWER, 6)}:{d.of(ALNUM, 12)}".encode())
    ),
    "header": lambda d: _in("x-api-key: ", d.of(ALNUM, 32)),
    "variable": lambda d: _in("export SOME_SERVICE_TOKEN=", d.of(ALNUM, 40)),
    "assignment": lambda d: _in(
        d.choice(
            [
                '{"password": "',
                "  api_key: '",
                'client_secret = "',
                '"accessToken":"',
                ":password => '",
                "jdbc:mysql://h/db?user=root&password=",
                "const apiKey = `",
                "SharedKey;Password=",
                "PrivateKey = ",
                "//registry.example.com/:_authToken=",
            ]
        ),
        d.of(ALNUM, 20),
    ),
    "cookie": lambda d: d.choice(
        [
            _in("Cookie: theme=dark; sessionid=", d.of(LOWER + DIGITS, 32)),
            _in("Set-Cookie: sid=", d.of(WORD, 43), "; HttpOnly; Path=/"),
        ]
    ),
    "signature": lambda d: _in("https://b.example.com/k?X-Amz-Signature=", d.of(HEX, 64)),
    "digest": lambda d: _in('Authorization: Digest username="u", response="', d.of(HEX, 32), '"'),
    "query": lambda d: _in("https://api.example.com/v1?key=", d.of(ALNUM, 39)),
    "option": lambda d: d.choice(
        [
            _in("curl -s -u admin:", d.of(ALNUM, 14), " https://api.example.com"),
            _in("tool --api-key ", d.of(ALNUM, 20)),
            _in("sshpass -p ", d.of(ALNUM, 10), " ssh h"),
            _in("docker login -u me -p ", d.of(ALNUM, 16)),
        ]
    ),
    "netrc": lambda d: _in("machine h\n  login me\n  password ", d.of(ALNUM, 14)),
    "element": lambda d: _in("<server><password>", d.of(ALNUM, 16), "</password></server>"),
    "hash": lambda d: d.choice(
        [
            _in("root:", f"$6${d.of(ALNUM, 16)}${d.of(ALNUM, 86)}", ":19000:0:99999:7:::"),
            _in("hash ", f"$2b$12${d.of(ALNUM, 53)}"),
        ]
    ),
    "putty-key": lambda d: _in(
        "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n",
        _b64(d.randbytes(36)),
        "\nPrivate-MAC: 00",
    ),
    "jwk": lambda d: _in('{"kty":"EC","x":"a","y":"b","d":"', d.of(WORD, 43), '"}'),
    "langsmith": lambda d: _alone(f"lsv2_pt_{d.of(HEX, 32)}_{d.of(HEX, 10)}"),
    "elevenlabs": lambda d: _alone(f"sk_{d.of(HEX, 48)}"),
    "firecrawl": lambda d: _alone(f"fc-{d.of(HEX, 32)}"),
    "jina": lambda d: _alone(f"jina_{d.of(WORD, 60)}"),
    "brave": lambda d: _alone(f"BSA{d.of(WORD, 28)}"),
    "netlify": lambda d: _alone(f"nfp_{d.of(ALNUM, 36)}"),
    "pulumi": lambda d: _alone(f"pul-{d.of(HEX, 40)}"),
    "circleci": lambda d: _alone(f"CCIPAT_{d.of(ALNUM, 22)}_{d.of(HEX, 40)}"),
    "buildkite": lambda d: _alone(f"bkua_{d.of(HEX, 40)}"),
    "sonar": lambda d: _alone(f"squ_{d.of(HEX, 40)}"),
    "bitbucket": lambda d: _alone(f"ATBB{d.of(ALNUM, 32)}"),
    "hubspot": lambda d: _alone(f"pat-na1-{uuid.UUID(int=d.getrandbits(128))}"),
    "brevo": lambda d: _alone(f"xkeysib-{d.of(HEX, 64)}-{d.of(ALNUM, 16)}"),
    "resend": lambda d: _alone(f"re_{d.of(ALNUM, 8)}_{d.of(ALNUM, 24)}"),
    "facebook": lambda d: _alone(f"EAA{d.of(ALNUM, 170)}"),
    "dynatrace": lambda d: _alone(f"dt0c01.{d.of(UPPER + DIGITS, 24)}.{d.of(UPPER + DIGITS, 64)}"),
    "contentful": lambda d: _alone(f"CFPAT-{d.of(WORD, 43)}"),
    "mapbox": lambda d: _alone(f"sk.eyJ1Ijoi{d.of(ALNUM, 60)}.{d.of(WORD, 22)}"),
    "alibaba": lambda d: _alone(f"LTAI{d.of(ALNUM, 20)}"),
    "url": lambda d: _in(
        f"postgres://{d.of(LOWER, 6)}:", d.of(ALNUM + "!*-_", 14), "@db.internal:5432/app"
    ),
}

CONTEXTS = (
    "{0}",
    'key = "{0}"',
    "2025-01-02 03:04:05 ERROR call failed ({0}) after 3 tries\n",
    '{"stdout": "first line\\n{0}\\nlast line"}',
    "\x1b[01;31m\x1b[K{0}\x1b[m\x1b[K",
)


def samples(family: str, count: int = 10) -> list[Sample]:
    d = Dice(f"redaction {family}")
    made = []
    for i in range(count):
        text, secret = MAKERS[family](d)
        made.append((CONTEXTS[i % len(CONTEXTS)].replace("{0}", text), secret))
    return made


# -- ordinary text -----------------------------------------------------------------------------


def sources(size: int) -> Iterator[str]:
    """Python sources of the standard library and of installed packages, about `size` characters
    of each."""
    library = Path(json.__file__).parent.parent
    packages = [Path(p) for p in sys.path if p.endswith("site-packages")]
    for root, skip in ((library, "site-packages"), *((p, "\0") for p in packages)):
        taken = 0
        for path in sorted(root.rglob("*.py")):
            # Tests of other programs hold tokens on purpose; large tables say nothing new.
            if taken >= size:
                break
            inside = path.relative_to(root).as_posix()
            if skip in inside or "test" in inside or path.stat().st_size > 400_000:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            taken += len(text)
            yield text


def logs(size: int) -> Iterator[str]:
    """Lines of a service, of git, of a package manager, of a build, with all the long strings
    that are no secrets: hashes, ids, digests, images, traces."""
    d = Dice("logs")
    made = 0
    for n in itertools.count():
        sha = hashlib.sha1(str(n).encode()).hexdigest()
        sha256 = hashlib.sha256(str(n).encode()).hexdigest()
        id = uuid.UUID(int=d.getrandbits(128))
        ip = ".".join(str(d.randrange(256)) for _ in range(4))
        image = _b64(d.randbytes(400))
        integrity = _b64(hashlib.sha512(str(n).encode()).digest())
        lines = [
            f"commit {sha}\nAuthor: Jo Doe <jo.doe{n}@example.com>\nDate: Mon Jan 6 10:0{n % 10}",
            f"    Basic support for bearer authentication of API keys, see PR-{n}",
            f'{ip} - - [06/Jan/2025:10:{n % 60:02}:01 +0000] "GET /v1/items/{id} HTTP/1.1" 200 {n}',
            f"INFO request_id=req_{d.of(ALNUM, 24)} trace={d.of(HEX, 32)} span={d.of(HEX, 16)}",
            f"  resolved https://registry.example.org/p{n}/-/p{n}-1.0.{n}.tgz#{sha}",
            f"  integrity sha512-{integrity}",
            f"Successfully built wheel{n}-1.{n}-py3-none-any.whl (sha256={sha256})",
            f"image: docker://registry.local:5000/team/app:1.{n}@sha256:{sha256}",
            f"![plot](data:image/png;base64,iVBORw0KGgo{image})",
            f'{{"id":"chatcmpl-{d.of(ALNUM, 29)}","object":"chat.completion","created":{n}}}',
            f"call_{d.of(ALNUM, 24)} toolu_{d.of(ALNUM, 24)} msg_{d.of(ALNUM, 24)}",
            f"WARN retrying in {n % 7}.{n % 10} s: connection to {ip}:5432 refused (attempt {n})",
            f"  File \"/usr/lib/python3.11/site-packages/pkg{n}/module_{n}.py\", line {n}, in run",
            f"  0x{d.of(HEX, 16)} <_ZN4core3fmt9Formatter{n}pad_integral17h{d.of(HEX, 16)}E>",
            f"ETag: \"{d.of(HEX, 32)}\"  X-Request-Id: {id}  CF-Ray: {d.of(HEX, 16)}-FRA",
            "export PATH=/usr/local/bin:$PATH API_KEY=$(cat key) TOKEN=${TOKEN:-none} KEY=value",
            f"{n} files changed, {n} insertions(+), task-{n}-runner-for-risk-averse-desk-workers",
            f"class sk-toggleable__label-arrow sk-estimator-doc-link key-value-pair-formatter-{n}",
            f"https://example.com:8443/a/b?c={id}&page={n}#section-{n} user@example.com",
        ]  # fmt: skip
        text = "\n".join(lines) + "\n"
        made += len(text)
        yield text
        if made >= size:
            return
