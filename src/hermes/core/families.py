"""What secrets look like: one row per shape, found by a cheap literal, confirmed by a check."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from msgspec import Struct

_UNBROKEN = re.compile(r"[A-Za-z0-9]{16,}")
_ENDLESS = re.compile(r"[A-Za-z0-9]{24,}")
"""No word is that long."""
_PLACEHOLDER = re.compile(
    r"[$%{<\[*(]|\\[{(]|(?:x+|\.+|pass(?:w(?:or)?d)?|pwd|secret|token)$", re.I
)


class Family(Struct, frozen=True):
    """A shape of secret. What `pattern` matches (its group, when it has one) is the secret."""

    name: str
    hints: tuple[str, ...]
    """The text holds a secret of this shape only if it holds one of these. None: try it."""
    pattern: str
    """Bounded wherever more must follow: hostile text may not make the search quadratic."""
    check: Callable[[str], bool] | None = None
    apart: bool = False
    """The hint need not touch the token: it is looked for in the whole text, not only in runs."""


def dense(secret: str) -> bool:
    """Not a word, a placeholder or a name put together of words."""
    if len(set(secret)) < 8:
        return False
    if any(c.isdigit() for c in secret) or _ENDLESS.search(secret):
        return True
    return sum(a.islower() and b.isupper() for a, b in pairwise(secret)) >= 3


def unbroken(secret: str) -> bool:
    """Dense, with a piece too long for a word: class names are made of many short ones."""
    return dense(secret) and _UNBROKEN.search(secret) is not None


def credentials(secret: str) -> bool:
    """Base64 of `user:password`."""
    from base64 import b64decode
    from binascii import Error

    try:
        text = b64decode(secret + "=" * (-len(secret) % 4), validate=True).decode()
    except (Error, ValueError):
        return False
    return ":" in text and text.isprintable()


def bot(secret: str) -> bool:
    """The first part is the base64 of the bot's number."""
    from base64 import urlsafe_b64decode

    head = secret.partition(".")[0]
    number = urlsafe_b64decode(head + "=" * (-len(head) % 4))
    return number.isdigit() and len(number) >= 15


def password(secret: str) -> bool:
    return not _PLACEHOLDER.match(secret)


def value(secret: str) -> bool:
    """Of a variable: no reference, no path, no name."""
    return unbroken(secret) and secret[0] != "/" and "://" not in secret


_W = "[A-Za-z0-9_-]"
_A = "[A-Za-z0-9]"
_HEX = "[0-9a-f]"
_IS = r"[\"']?\s*[=:]\s*[\"']?"
_PEM = (
    r"(?:[A-Za-z0-9+/=\s|\\\"',:]|-(?!----))*+"  # line numbers of read_file and JSON's \n included
    r"(?:-----END {0}PRIVATE KEY(?: BLOCK)?-----)?"
)


def _pem(name: str, label: str) -> Family:
    body = r"(?:PRIVATE KEY(?: BLOCK)?-----)" + _PEM.replace("{0}", label)
    return Family(name, ("PRIVATE KEY",), rf"-----BEGIN {label}{body}", _has_body, apart=True)


def _has_body(secret: str) -> bool:
    return re.search(r"[A-Za-z0-9+/=]{40}", secret) is not None


def _row(
    name: str, hints: str, pattern: str, check: Callable[[str], bool] | None = dense
) -> Family:
    return Family(name, tuple(hints.split()), pattern, check)


def _near(
    name: str, hints: str, pattern: str, check: Callable[[str], bool] | None = dense
) -> Family:
    return Family(name, tuple(hints.split()), pattern, check, apart=True)


FAMILIES: tuple[Family, ...] = (
    # -- models
    _row("anthropic", "sk-ant-", rf"sk-ant-{_W}{{16,}}"),
    _row("openrouter", "sk-or-", rf"sk-or-(?:v\d-)?{_A}{{32,}}"),
    _row("openai", "sk-", rf"sk-{_W}{{16,}}", unbroken),
    _row("google", "AIza", rf"AIza{_W}{{30,}}"),
    _row("google-oauth", "ya29.", rf"ya29\.{_W}{{20,}}"),
    _row("google-oauth", "GOCSPX-", rf"GOCSPX-{_W}{{24,}}"),
    _row("google-oauth", "1//0", rf"1//0{_W}{{40,}}"),
    _row("huggingface", "hf_", rf"hf_{_A}{{30,}}"),
    _row("groq", "gsk_", rf"gsk_{_A}{{30,}}"),
    _row("xai", "xai-", rf"xai-{_A}{{30,}}"),
    _row("replicate", "r8_", rf"r8_{_A}{{30,}}"),
    _row("perplexity", "pplx-", rf"pplx-{_A}{{30,}}"),
    _row("nvidia", "nvapi-", rf"nvapi-{_W}{{30,}}"),
    _row("fireworks", "fw_", rf"fw_{_A}{{20,}}"),
    _row("cerebras", "csk-", rf"csk-{_A}{{30,}}"),
    _row("together", "tgp_v1_", rf"tgp_v1_{_W}{{30,}}"),
    _row("tavily", "tvly-", rf"tvly-{_W}{{20,}}", unbroken),
    _row("pinecone", "pcsk_", rf"pcsk_{_W}{{30,}}"),
    # -- clouds
    _row("aws", "AKIA ASIA ABIA ACCA", r"A(?:KI|SI|BI|CC)A[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _row("aws", "ABSK", r"ABSK[A-Za-z0-9+/]{40,}={0,2}"),
    _near(
        "aws-secret",
        "secret SECRET Secret",
        r"(?i:secret_?-?(?:access)?_?-?key)[\"']?\s*[=:,]\s*[\"']?([A-Za-z0-9/+]{40})(?![\w/+=])",
    ),
    _row("azure", "AccountKey= AccessKey=", r"Acc(?:ount|ess)Key=([A-Za-z0-9+/]{40,}={0,2})"),
    _near("azure-sas", "sig=", r"[?&;]sig=([A-Za-z0-9%+/]{40,}(?:%3[Dd]|=)*)"),
    _row("azure", "8Q~", r"[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.\-]{34}"),
    _near("gcp", "private_key_id", rf"private_key_id[\\\"'\s:=]+({_HEX}{{40}})"),
    _row("digitalocean", "_v1_", rf"do[opr]_v1_{_HEX}{{64}}"),
    _row("cloudflare", "v1.0-", rf"v1\.0-{_HEX}{{24}}-{_HEX}{{64,}}"),
    _near(
        "cloudflare",
        "loudflare LOUDFLARE CF_API CF_TOKEN",
        rf"(?:(?i:cloudflare)|CF_)[A-Za-z_. -]{{0,30}}{_IS}({_W}{{37,45}})(?!{_W})",
    ),
    _row("heroku", "HRKU-", rf"HRKU-{_W}{{30,}}"),
    _near(
        "heroku",
        "eroku EROKU",
        rf"(?i:heroku)[A-Za-z_. -]{{0,30}}{_IS}({_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}})",
    ),
    _row("vercel", "vcp_ vci_ vca_ vcr_ vck_", rf"vc[piark]_{_A}{{24,}}"),
    _row("vercel", "vercel_blob_rw_", rf"vercel_blob_rw_{_A}{{8,}}_{_A}{{20,}}"),
    _row("supabase", "sbp_", rf"sbp_(?:v\d_)?{_HEX}{{40}}"),
    _row("supabase", "sb_secret_", rf"sb_secret_{_W}{{20,}}"),
    _row("databricks", "dapi", rf"dapi{_HEX}{{32}}(?:-\d)?"),
    _row("planetscale", "pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_=.\-]{30,}"),
    _row("fly", "fm1_ fm2_ fo1_", r"f(?:m[12]|o1)_[A-Za-z0-9_+/=\-]{40,}"),
    _row("tailscale", "tskey-", rf"tskey-(?:[a-z]{{1,20}}-)?{_A}{{1,40}}-{_A}{{20,}}"),
    _row("vault", "hvs. hvb. hvr.", rf"hv[sbr]\.{_W}{{24,}}"),
    _row("terraform", ".atlasv1.", rf"{_A}{{14}}\.atlasv1\.[A-Za-z0-9_=\-]{{60,}}"),
    _row(
        "doppler", "dp.", rf"dp\.(?:pt|st|sa|ct|scim|audit)\.(?:[a-z0-9_-]{{1,60}}\.)?{_A}{{40,}}"
    ),
    # -- code and packages
    _row("github", "ghp_ gho_ ghu_ ghs_ ghr_", rf"gh[pousr]_{_A}{{20,}}"),
    _row("github", "github_pat_", r"github_pat_[A-Za-z0-9_]{20,}"),
    _row("gitlab", "gl", rf"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct|oas)-{_W}{{16,}}"),
    _row("npm", "npm_", rf"npm_{_A}{{30,}}"),
    _row("pypi", "pypi-AgE", rf"pypi-AgE{_W}{{50,}}"),
    _row("rubygems", "rubygems_", rf"rubygems_{_HEX}{{48}}"),
    _row("docker", "dckr_", rf"dckr_[po]at_{_W}{{20,}}"),
    _row("atlassian", "ATATT3 ATCTT3", r"AT[AC]TT3[A-Za-z0-9_\-=]{60,}"),
    _row("postman", "PMAK-", rf"PMAK-{_HEX}{{24}}-{_HEX}{{34}}"),
    # -- messages and mail
    _row("slack", "xox", r"xox[abceoprs]-[A-Za-z0-9\-.]{10,}"),
    _row("slack", "xapp-", r"xapp-[A-Za-z0-9\-]{10,}"),
    _row("slack", "hooks.slack.com/", r"hooks\.slack\.com/[a-z]+/([A-Za-z0-9/_\-]{20,})"),
    Family("discord", (), rf"[MNO]{_W}{{22,28}}\.{_W}{{6,7}}\.{_W}{{27,45}}", bot),
    _row("discord", "/webhooks/", rf"webhooks/\d{{15,21}}/({_W}{{50,}})"),
    _near("telegram", ":A", rf"(\d{{8,12}}:A{_W}{{33,35}})(?!{_W})"),
    _row("twilio", "SK", rf"SK{_HEX}{{32}}(?![A-Za-z0-9])"),
    _row("sendgrid", "SG.", rf"SG\.{_W}{{16,32}}\.{_W}{{30,64}}"),
    _row("mailgun", "key-", rf"key-{_HEX}{{32}}(?![A-Za-z0-9])"),
    _row("mailchimp", "-us", rf"{_HEX}{{32}}-us\d{{1,2}}(?![A-Za-z0-9])"),
    _row("matrix", "syt_", rf"syt_[A-Za-z0-9+/=]{{1,200}}_{_A}{{20}}_{_A}{{6}}"),
    # -- work and money
    _row("stripe", "_live_ _test_", rf"[srp]k_(?:live|test)_{_A}{{16,}}"),
    _row("stripe", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,}"),
    _row("square", "sq0", rf"sq0[a-z]{{3}}-{_W}{{22,}}"),
    _row("square", "EAAA", rf"EAAA[A-Za-z]{_W}{{56,}}"),
    _row("shopify", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _row("linear", "lin_", rf"lin_(?:api|oauth)_{_A}{{32,}}"),
    _row("notion", "ntn_", rf"ntn_{_A}{{40,}}"),
    _row("notion", "secret_", rf"secret_{_A}{{43}}(?![A-Za-z0-9])"),
    _row("figma", "figd_ figo_ figu_", rf"fig[dou]_{_W}{{32,}}"),
    _row("airtable", "pat", rf"pat{_A}{{14}}\.{_HEX}{{64}}"),
    _row("sentry", "sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9_+/=\-]{40,}"),
    _near("sentry", "@o @sentry", rf"://({_HEX}{{32}}(?::{_HEX}{{32}})?)@[\w.\-]+/\d+"),
    _row("grafana", "glsa_", rf"glsa_{_A}{{32}}_{_HEX}{{8}}"),
    _row("newrelic", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    _row("dropbox", "sl.", rf"sl\.(?:u\.)?{_W}{{100,}}"),
    _row("1password", "ops_eyJ", r"ops_eyJ[A-Za-z0-9_=\-]{60,}"),
    # -- keys
    _pem("ssh-key", "OPENSSH "),
    _pem("pgp-key", "PGP "),
    _pem("private-key", r"(?:(?:RSA|EC|DSA|ENCRYPTED|ANY) )?"),
    _row("age", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    # -- in any text
    _row("jwt", "eyJ", rf"eyJ{_W}{{8,1500}}\.eyJ{_W}{{8,}}(?:\.{_W}*)?"),
    _near("bearer", "earer EARER", r"(?i:bearer)\s+([A-Za-z0-9._~+/=\-]{8,})"),
    _near("basic", "asic ASIC", r"(?i:basic)\s+([A-Za-z0-9+/]{8,}={0,2})", credentials),
    _near(
        "header",
        "pi-key pi-Key PI-KEY -token -Token -TOKEN uthorization UTHORIZATION",
        r"(?:-(?:[Kk]ey|KEY|[Tt]oken|TOKEN)|\b(?i:authorization))[\"']?\s*:\s*[\"']?"
        r"(?:(?i:token)\s+)?([A-Za-z0-9._~+/=\-]{16,})",
        unbroken,
    ),
    _near(
        "variable",
        "KEY= TOKEN= SECRET= PASSWORD= PASSWD=",
        r"[A-Z0-9_]{0,40}(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)=[\"']?([A-Za-z0-9_+/=.~!@#%^&*\-]{16,})",
        value,
    ),
    _near(
        "url",
        "://",
        r"://[^/\s:@\"'<>`\[]{0,256}:([^/\s@\"'<>`]{1,256})@(?!sha256:)",
        password,
    ),
)
