"""What the secrets of issuers look like: one row per shape, found by a literal, then checked."""

from __future__ import annotations

import re

from hermes.core.redaction.pattern import (
    BEGIN,
    HEX,
    IS,
    QUOTE,
    UUID,
    A,
    Family,
    W,
    bot,
    mixed,
    near,
    row,
    unbroken,
)

_PEM = (
    r"(?:[A-Za-z0-9+/=\s|\\\"',:]|-(?!---))*+"  # line numbers of read_file and JSON's \n included
    r"(?:-{4,5} ?END {0}PRIVATE KEY(?: BLOCK)? ?-{4,5})?"
)
_LINE = r"[ \t]*(?:\d+\|)?[ \t]*"
_LAST = (  # the end of a key whose beginning was not asked for
    rf"(?m)((?:(?:^|(?<=\\n)){_LINE}[A-Za-z0-9+/=]{{8,76}}+(?:\r|\n|\\[rn])++){{1,100}})"
    rf"{_LINE}-----END [A-Z0-9 ]{{0,20}}PRIVATE KEY"
)
_GITLAB = (
    rf"gl(?:pat|dt|rtr?|cbt|ptt|ft|imt|agent|soat|ffct|oas|wt)-{W}{{16,}}"
    r"(?:\.[a-z0-9]{2}\.[a-z0-9]{7,9})?"
)


def _pem(name: str, label: str) -> Family:
    body = r"(?:PRIVATE KEY(?: BLOCK)? ?-{4,5})" + _PEM.replace("{0}", label)
    return Family(name, ("PRIVATE KEY",), rf"-{{4,5}} ?BEGIN {label}{body}", _has_body, apart=True)


def _has_body(secret: str) -> bool:
    return re.search(r"[A-Za-z0-9+/=]{40}", secret) is not None


ISSUED: tuple[Family, ...] = (
    # -- models
    row("anthropic", "sk-ant-", rf"sk-ant-{W}{{16,}}"),
    row("openrouter", "sk-or-", rf"sk-or-(?:v\d-)?{A}{{32,}}"),
    row("openai", "sk-", rf"sk-{W}{{16,}}", unbroken),
    row("google", "AIza", rf"AIza{W}{{30,}}"),
    row("google-oauth", "ya29.", rf"ya29\.{W}{{20,}}"),
    row("google-oauth", "GOCSPX-", rf"GOCSPX-{W}{{24,}}"),
    row("google-oauth", "1//0", rf"1//0{W}{{40,}}"),
    row("huggingface", "hf_", rf"hf_{A}{{30,}}"),
    row("groq", "gsk_", rf"gsk_{A}{{30,}}"),
    row("xai", "xai-", rf"xai-{A}{{30,}}"),
    row("replicate", "r8_", rf"r8_{A}{{30,}}"),
    row("perplexity", "pplx-", rf"pplx-{A}{{30,}}"),
    row("nvidia", "nvapi-", rf"nvapi-{W}{{30,}}"),
    row("fireworks", "fw_", rf"fw_{A}{{20,}}"),
    row("cerebras", "csk-", rf"csk-{A}{{30,}}"),
    row("together", "tgp_v1_", rf"tgp_v1_{W}{{30,}}"),
    row("tavily", "tvly-", rf"tvly-{W}{{20,}}", unbroken),
    row("pinecone", "pcsk_", rf"pcsk_{W}{{30,}}"),
    row("gemini", "AQ.Ab", rf"AQ\.Ab{W}{{40,}}"),
    row("openai", "sess-", rf"sess-{A}{{40}}"),
    row("huggingface", "api_org_", rf"api_org_{A}{{30,}}"),
    row("langfuse", "-lf-", rf"[sp]k-lf-{UUID}"),
    row("langsmith", "lsv2_", rf"lsv2_(?:pt|sk)_{HEX}{{32}}_{HEX}{{10}}"),
    row("elevenlabs", "sk_", rf"sk_{HEX}{{48}}(?![A-Za-z0-9])"),
    row("brave", "BSA", rf"BSA{W}{{26,30}}(?!{W})", mixed),
    row("voyage", "pa-", rf"pa-{W}{{43}}(?!{W})", mixed),
    row("jina", "jina_", rf"jina_{W}{{50,}}"),
    row("firecrawl", "fc-", rf"fc-{HEX}{{32}}(?![A-Za-z0-9])"),
    row("e2b", "e2b_", rf"e2b_{HEX}{{40}}"),
    row("browserbase", "bb_live_ bb_test_", rf"bb_(?:live|test)_{W}{{24,}}"),
    row("apify", "apify_api_", rf"apify_api_{A}{{30,}}"),
    row("runpod", "rpa_", rf"rpa_{A}{{40,}}"),
    # -- clouds
    row("aws", "AKIA ASIA ABIA ACCA", r"A(?:KI|SI|BI|CC)A[A-Z0-9]{16}(?![A-Za-z0-9])"),
    row("aws", "ABSK", r"ABSK[A-Za-z0-9+/]{40,}={0,2}"),
    near(
        "aws-secret",
        "secret SECRET Secret",
        rf"(?i:secret_?-?(?:access)?_?-?key)(?:{IS}|{QUOTE}\s*,\s*{QUOTE})"
        r"([A-Za-z0-9/+]{40})(?![\w/+=])",
    ),
    row(
        "azure",
        "AccountKey= AccessKey=",
        r"(?:Account|Access|SharedAccess)Key=([A-Za-z0-9+/]{40,}={0,2})",
    ),
    near("azure-sas", "sig=", r"[?&;]sig=([A-Za-z0-9%+/]{40,}(?:%3[Dd]|=)*)"),
    near("azure", "Q~", rf"{BEGIN}[\w~.-]{{3}}\dQ~[A-Za-z0-9_~.\-]{{31,34}}"),
    near("gcp", "private_key_id", rf"private_key_id[\\\"'\s:=]+({HEX}{{40}})"),
    row("digitalocean", "_v1_", rf"do[opr]_v1_{HEX}{{64}}"),
    row("cloudflare", "v1.0-", rf"v1\.0-{HEX}{{24}}-{HEX}{{64,}}"),
    near(
        "cloudflare",
        "loudflare LOUDFLARE CF_API CF_TOKEN",
        rf"(?:(?i:cloudflare)|CF_)[A-Za-z_. -]{{0,30}}{IS}({W}{{37,45}})(?!{W})",
    ),
    row("heroku", "HRKU-", rf"HRKU-{W}{{30,}}"),
    near(
        "heroku",
        "eroku EROKU",
        rf"(?i:heroku)[A-Za-z_. -]{{0,30}}{IS}({HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}})",
    ),
    row("vercel", "vcp_ vci_ vca_ vcr_ vck_", rf"vc[piark]_{A}{{24,}}"),
    row("vercel", "vercel_blob_rw_", rf"vercel_blob_rw_{A}{{8,}}_{A}{{20,}}"),
    row("supabase", "sbp_", rf"sbp_(?:v\d_)?{HEX}{{40}}"),
    row("supabase", "sb_secret_", rf"sb_secret_{W}{{20,}}"),
    row("databricks", "dapi", rf"dapi{HEX}{{32}}(?:-\d)?"),
    row("planetscale", "pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_=.\-]{30,}"),
    row("fly", "fm1_ fm2_ fo1_", r"f(?:m[12]|o1)_[A-Za-z0-9_+/=\-]{40,}"),
    row("tailscale", "tskey-", rf"tskey-(?:[a-z]{{1,20}}-)?{A}{{1,40}}-{A}{{20,}}"),
    row("vault", "hvs. hvb. hvr.", rf"hv[sbr]\.{W}{{24,}}"),
    row("terraform", ".atlasv1.", rf"{A}{{14}}\.atlasv1\.[A-Za-z0-9_=\-]{{60,}}"),
    row("doppler", "dp.", rf"dp\.(?:pt|st|sa|ct|scim|audit)\.(?:[a-z0-9_-]{{1,60}}\.)?{A}{{40,}}"),
    row("vault", "s.", rf"s\.{A}{{24}}(?![A-Za-z0-9_.])", mixed),
    row("pulumi", "pul-", rf"pul-{HEX}{{40}}"),
    row("aws", "amzn.mws.", rf"amzn\.mws\.{UUID}"),
    row("alibaba", "LTAI", rf"LTAI{A}{{16,26}}(?![A-Za-z0-9])"),
    row("tencent", "AKID", rf"AKID{A}{{32}}(?![A-Za-z0-9])"),
    row("yandex", "AQVN", rf"AQVN{W}{{35,38}}"),
    row("yandex", "t1.", rf"t1\.{W}{{40,}}={{0,2}}\.{W}{{80,}}"),
    row("openshift", "sha256~", rf"sha256~{W}{{43}}"),
    row("netlify", "nfp_ nfc_ nfo_ nfu_ nfb_", rf"nf[pcoub]_{A}{{36,}}"),
    row("render", "rnd_", rf"rnd_{A}{{28,}}"),
    row("neon", "napi_", r"napi_[a-z0-9]{60,}"),
    row("clickhouse", "4b1d", rf"4b1d{A}{{38}}(?![A-Za-z0-9])", mixed),
    row("infracost", "ico-", rf"ico-{A}{{32}}(?![A-Za-z0-9])"),
    row("prefect", "pnu_ pnb_", rf"pn[ub]_{A}{{36}}"),
    row("dynatrace", "dt0", r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    # -- code and packages
    row("github", "ghp_ gho_ ghu_ ghs_ ghr_", rf"gh[pousr]_{A}{{20,}}"),
    row("github", "github_pat_", r"github_pat_[A-Za-z0-9_]{20,}"),
    row("gitlab", "gl", _GITLAB),
    row("gitlab", "GR1348941", rf"GR1348941{W}{{20,}}"),
    row("npm", "npm_", rf"npm_{A}{{30,}}"),
    row("pypi", "pypi-AgE", rf"pypi-AgE{W}{{50,}}"),
    row("rubygems", "rubygems_", rf"rubygems_{HEX}{{48}}"),
    row("docker", "dckr_", rf"dckr_[po]at_{W}{{20,}}"),
    row("atlassian", "ATATT3 ATCTT3", r"AT[AC]TT3[A-Za-z0-9_\-=]{60,}"),
    row("postman", "PMAK-", rf"PMAK-{HEX}{{24}}-{HEX}{{34}}"),
    row("crates", "cio", rf"cio{A}{{32}}(?![A-Za-z0-9])", mixed),
    row("nuget", "oy2", r"oy2[a-z0-9]{43}(?![A-Za-z0-9])"),
    row("clojars", "CLOJARS_", rf"CLOJARS_{HEX}{{60}}"),
    row("jfrog", "AKCp", rf"AKCp{A}{{60,}}"),
    row("jfrog", "cmVmdGtu", rf"cmVmdGtu{A}{{50,}}"),
    row("bitbucket", "ATBB", rf"ATBB{A}{{32}}(?![A-Za-z0-9])"),
    row("bitbucket", "BBDC-", r"BBDC-[A-Za-z0-9+/]{40,}"),
    row("trello", "ATTA", rf"ATTA{HEX}{{56,}}"),
    row("circleci", "CCIPAT_ CCIPRJ_", rf"CCIP(?:AT|RJ)_{A}{{20,}}_{HEX}{{40}}"),
    row("buildkite", "bkua_ bkct_", rf"bk(?:ua|ct)_{A}{{40}}"),
    row("sonar", "squ_ sqp_ sqa_", rf"sq[upa]_{HEX}{{40}}"),
    row("sourcegraph", "sgp_", rf"sgp_(?:{A}{{1,20}}_)?{HEX}{{40}}"),
    row("harness", "pat. sat.", rf"[ps]at\.{W}{{22}}\.{HEX}{{24}}\.{A}{{20}}"),
    # -- messages and mail
    row("slack", "xox", r"xox[abcdeoprs]-[A-Za-z0-9\-.%+/=]{10,}"),
    row("slack", "xapp-", r"xapp-[A-Za-z0-9\-]{10,}"),
    row("slack", "hooks.slack.com/", r"hooks\.slack\.com/[a-z]+/([A-Za-z0-9/_\-]{20,})"),
    Family("discord", (), rf"[MNO]{W}{{22,28}}\.{W}{{6,7}}\.{W}{{27,45}}", bot),
    row("discord", "/webhooks/", rf"webhooks/\d{{15,21}}/({W}{{50,}})"),
    near("telegram", ":A", rf"(\d{{8,12}}:A{W}{{33,35}})(?!{W})"),
    row("twilio", "SK", rf"SK{HEX}{{32}}(?![A-Za-z0-9])"),
    row("sendgrid", "SG.", rf"SG\.{W}{{16,32}}\.{W}{{30,64}}"),
    row("mailgun", "key-", rf"key-{HEX}{{32}}(?![A-Za-z0-9])"),
    row("mailchimp", "-us", rf"{HEX}{{32}}-us\d{{1,2}}(?![A-Za-z0-9])"),
    row("matrix", "syt_", rf"syt_[A-Za-z0-9+/=]{{1,200}}_{A}{{20}}_{A}{{6}}"),
    row("discord", "mfa.", rf"mfa\.{W}{{80,}}"),
    row("teams", "webhook.office.com/", rf"IncomingWebhook/({A}{{32}}/{UUID})"),
    row("zapier", "hooks.zapier.com/", r"hooks\.zapier\.com/hooks/catch/(\d+/[a-z0-9]+)", None),
    row("brevo", "xkeysib- xsmtpsib-", rf"x(?:key|smtp)sib-{HEX}{{64}}-{A}{{16}}"),
    row("resend", "re_", rf"re_{A}{{8}}_{A}{{24}}(?![A-Za-z0-9])", mixed),
    row("mandrill", "md-", rf"md-{W}{{22}}(?!{W})", mixed),
    row("firebase", "AAAA", rf"AAAA{W}{{7}}:{W}{{140}}"),
    row("facebook", "EAA", rf"EAA{A}{{80,}}", mixed),
    row("instagram", "IGQ", rf"IGQ{W}{{100,}}", mixed),
    near("twitter", "AAAAAAAAAAAAAAAAAAAAA", rf"{BEGIN}A{{21,23}}[A-Za-z0-9%]{{60,}}", mixed),
    # -- work and money
    row("stripe", "_live_ _test_", rf"[srp]k_(?:live|test)_{A}{{16,}}"),
    row("stripe", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,}"),
    row("square", "sq0", rf"sq0[a-z]{{3}}-{W}{{22,}}"),
    row("square", "EAAA", rf"EAAA[A-Za-z]{W}{{56,}}"),
    row("shopify", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    row("linear", "lin_", rf"lin_(?:api|oauth)_{A}{{32,}}"),
    row("notion", "ntn_", rf"ntn_{A}{{40,}}"),
    row("notion", "secret_", rf"secret_{A}{{43}}(?![A-Za-z0-9])"),
    row("figma", "figd_ figo_ figu_", rf"fig[dou]_{W}{{32,}}"),
    row("airtable", "pat", rf"pat{A}{{14}}\.{HEX}{{64}}"),
    row("sentry", "sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9_+/=\-]{40,}"),
    near("sentry", "@o @sentry", rf"://({HEX}{{32}}(?::{HEX}{{32}})?)@[\w.\-]+/\d+"),
    row("grafana", "glsa_", rf"glsa_{A}{{32}}_{HEX}{{8}}"),
    row("newrelic", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    row("newrelic", "NRII- NRIQ-", rf"NRI[IQ]-{W}{{32}}"),
    row("newrelic", "NRAL", rf"{HEX}{{36}}NRAL"),
    row("dropbox", "sl.", rf"sl\.(?:u\.)?{W}{{100,}}"),
    row("1password", "ops_eyJ", r"ops_eyJ[A-Za-z0-9_=\-]{60,}"),
    row("grafana", "glc_", r"glc_[A-Za-z0-9+/_\-]{32,}={0,2}"),
    row("grafana", "eyJrIjoi", r"eyJrIjoi[A-Za-z0-9+/]{60,}={0,2}"),
    row("datadog", "ddapp_ ddpat_", rf"dd(?:app|pat)_{A}{{34,}}"),
    near(
        "asana",
        "asana Asana ASANA",
        rf"{BEGIN}[12](?:/\d{{15,17}}){{1,2}}:{HEX}{{32}}(?![A-Za-z0-9])",
    ),
    row("hubspot", "pat-", rf"pat-(?:na|eu|ap)\d-{UUID}"),
    row("intercom", "dG9rO", r"dG9rO[A-Za-z0-9+/]{48,}={0,2}"),
    row("contentful", "CFPAT-", rf"CFPAT-{W}{{40,}}"),
    row("mapbox", "sk.eyJ", rf"sk\.eyJ{W}{{40,}}\.{W}{{20,}}"),
    row("plaid", "access-", rf"access-(?:production|sandbox|development)-{UUID}"),
    near("braintree", "access_token$", rf"access_token\$\w{{4,20}}\${A}{{10,30}}\$({HEX}{{32}})"),
    row("adyen", "AQE", r"AQE[hm][A-Za-z0-9+/]{60,200}-[A-Za-z0-9+/]{30,60}=?-[\x21-\x7e]{10,30}"),
    row("readme", "rdme_", r"rdme_[a-z0-9]{60,}"),
    row("shippo", "shippo_", rf"shippo_(?:live|test)_{HEX}{{40}}"),
    row("easypost", "EZAK EZTK", rf"EZ[AT]K{A}{{54}}"),
    row("flutterwave", "FLWSECK", rf"FLWSECK(?:_TEST)?-{HEX}{{32}}-X"),
    row("razorpay", "rzp_", rf"rzp_(?:live|test)_{A}{{14,}}"),
    row("lob", "live_ test_", rf"(?:live|test)_{HEX}{{35}}(?![A-Za-z0-9])"),
    row("duffel", "duffel_", rf"duffel_(?:live|test)_{W}{{43}}"),
    row("frameio", "fio-u-", rf"fio-u-{W}{{60,}}"),
    row("typeform", "tfp_", rf"tfp_{W}{{40,}}"),
    row("launchdarkly", "sdk- api- mob-", rf"(?:sdk|api|mob)-{UUID}"),
    row("maxmind", "_mmk", rf"{A}{{6}}_{A}{{29}}_mmk"),
    row("1password", "A3-", r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{6}|[A-Z0-9]{11})(?:-[A-Z0-9]{5}){3,4}"),
    # -- keys
    _pem("ssh-key", "OPENSSH "),
    _pem("pgp-key", "PGP "),
    _pem("private-key", r"(?:(?:RSA|EC|DSA|ENCRYPTED|ANY|SSH2 ENCRYPTED) )?"),
    near("private-key", "-----END", _LAST, _has_body),
    near(
        "private-key",
        "LS0tLS1CRUdJTiB",
        r"LS0tLS1CRUdJTiB(?:SU0EgUFJJ|QUklWQVRF|FQyBQUklW|PUEVOU1NI|FTkNSWVBU|EU0EgUFJJ)"
        r"(?:[A-Za-z0-9+/=]|\s)+",
    ),
    near(
        "putty-key",
        "Private-Lines:",
        r"Private-Lines:\s*\d+((?:(?:[\s|]|\\[nr]|\d+\|)+[A-Za-z0-9+/=]{4,64}(?=\s|\\|$))+)",
    ),
    near("jwk", "kty", rf"{QUOTE}\bd{QUOTE}\s*:\s*{QUOTE}({W}{{40,}})"),
    row("bip32", "prv", rf"[xyzt]prv{A}{{100,112}}(?![A-Za-z0-9])"),
    row("minisign", "RWRTY0Iy", r"RWRTY0Iy[A-Za-z0-9+/]{100,}={0,2}"),
    row("age", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
)
