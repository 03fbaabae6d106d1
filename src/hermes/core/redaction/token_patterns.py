"""What the secrets of issuers look like: one row per shape, found by a literal, then checked."""

import re

from hermes.core.redaction.pattern import (
    BEGIN,
    HEX,
    IS,
    QUOTE,
    UUID,
    A,
    SecretFamily,
    W,
    context_family,
    has_scattered_capitals,
    is_bot_token,
    is_mixed,
    is_unbroken,
    token_family,
)

_LINE = r"(?:[^\n\\\"]{0,300}?[:>→|+\t -])??[ \t]*"
"""What tools print before a line: a number, a file name, the sign of a diff."""
_PEM = (
    rf"(?:\n{_LINE}(?=[A-Za-z0-9+/=]{{16,}}[ \t]*\r?(?:\n|$))"
    rf"|\n{_LINE}(?=[A-Za-z0-9+/=]{{1,15}}[ \t]*\r?\n[^\n]{{0,300}}?----END)"
    r"|[A-Za-z0-9+/=\s|<\\\"',:]|-(?!---))*+"  # JSON's \n included
    rf"(?:{_LINE}-{{4,5}} ?END {{0}}PRIVATE KEY(?: BLOCK)? ?-{{4,5}})?"
)
_LAST = (  # the end of a key whose beginning was not asked for
    rf"(?m)((?:(?:^|(?<=\\n))(?>{_LINE}[A-Za-z0-9+/=]{{8,76}}(?=\s|\\[rn]))"
    rf"(?:\r|\n|\\[rn])++){{1,100}}+)"
    rf"{_LINE}-----END [A-Z0-9 ]{{0,20}}PRIVATE KEY"
)
_ROW = (
    r"(?:(?<![A-Za-z0-9+/=])|(?<=\n\+)|(?<=\A\+))"
    r"(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70})(?=[ \t]*\$?\r?(?:\n|$))"
)
_END = r"[ \t]*\$?\r?\n{1,2}[^\n]{0,300}?"
_ROWS = (  # the middle of a key; a certificate or a public key as a whole is none
    r"(?:-----BEGIN (?!(?:[A-Z0-9]+ ){0,3}PRIVATE)[A-Z0-9 ]{3,40}-----(?:[^-]|-(?!----END))*+"
    rf"|({_ROW}(?:{_END}{_ROW})+(?:{_END}(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{{16,70}}={{0,2}}(?=\s|\$|\Z))?))"
)
_GITLAB = (
    rf"gl(?:pat|dt|rtr?|cbt|ptt|ft|imt|agent|soat|ffct|oas|wt)-{W}{{16,}}"
    r"(?:\.[a-z0-9]{2}\.[a-z0-9]{7,9})?"
)


def _pem_family(name: str, label: str) -> SecretFamily:
    body = r"(?:PRIVATE KEY(?: BLOCK)? ?-{4,5})" + _PEM.replace("{0}", label)
    return SecretFamily(
        name, ("PRIVATE KEY",), rf"-{{4,5}} ?BEGIN {label}{body}", _has_body, apart=True
    )


def _has_body(secret: str) -> bool:
    return re.search(r"[A-Za-z0-9+/=]{40}", secret) is not None


def _is_base64(secret: str) -> bool:
    """Whether the rows are random bytes in base64: neither hex nor words."""
    kinds = ("[a-z]", "[A-Z]", "[0-9]")
    return all(re.search(kind, secret) for kind in kinds) and has_scattered_capitals(secret)


TOKEN_FAMILIES: tuple[SecretFamily, ...] = (
    # -- models
    token_family("anthropic", "sk-ant-", rf"sk-ant-{W}{{16,}}"),
    token_family("openrouter", "sk-or-", rf"sk-or-(?:v\d-)?{A}{{32,}}"),
    token_family("openai", "sk-", rf"sk-{W}{{16,}}", is_unbroken),
    token_family("google", "AIza", rf"AIza{W}{{30,}}"),
    token_family("google-oauth", "ya29.", rf"ya29\.{W}{{20,}}"),
    token_family("google-oauth", "GOCSPX-", rf"GOCSPX-{W}{{24,}}"),
    token_family("google-oauth", "1//0", rf"1//0{W}{{40,}}"),
    token_family("huggingface", "hf_", rf"hf_{A}{{30,}}"),
    token_family("groq", "gsk_", rf"gsk_{A}{{30,}}"),
    token_family("xai", "xai-", rf"xai-{A}{{30,}}"),
    token_family("replicate", "r8_", rf"r8_{A}{{30,}}"),
    token_family("perplexity", "pplx-", rf"pplx-{A}{{30,}}"),
    token_family("nvidia", "nvapi-", rf"nvapi-{W}{{30,}}"),
    token_family("fireworks", "fw_", rf"fw_{A}{{20,}}"),
    token_family("cerebras", "csk-", rf"csk-{A}{{30,}}"),
    token_family("together", "tgp_v1_", rf"tgp_v1_{W}{{30,}}"),
    token_family("tavily", "tvly-", rf"tvly-{W}{{20,}}", is_unbroken),
    token_family("pinecone", "pcsk_", rf"pcsk_{W}{{30,}}"),
    token_family("gemini", "AQ.Ab", rf"AQ\.Ab{W}{{40,}}"),
    token_family("openai", "sess-", rf"sess-{A}{{40}}"),
    token_family("huggingface", "api_org_", rf"api_org_{A}{{30,}}"),
    token_family("langfuse", "-lf-", rf"[sp]k-lf-{UUID}"),
    token_family("langsmith", "lsv2_", rf"lsv2_(?:pt|sk)_{HEX}{{32}}_{HEX}{{10}}"),
    token_family("elevenlabs", "sk_", rf"sk_{HEX}{{48}}(?![A-Za-z0-9])"),
    token_family("brave", "BSA", rf"BSA{W}{{26,30}}(?!{W})", is_mixed),
    token_family("voyage", "pa-", rf"pa-{W}{{43}}(?!{W})", is_mixed),
    token_family("jina", "jina_", rf"jina_{W}{{50,}}"),
    token_family("firecrawl", "fc-", rf"fc-{HEX}{{32}}(?![A-Za-z0-9])"),
    token_family("e2b", "e2b_", rf"e2b_{HEX}{{40}}"),
    token_family("browserbase", "bb_live_ bb_test_", rf"bb_(?:live|test)_{W}{{24,}}"),
    token_family("apify", "apify_api_", rf"apify_api_{A}{{30,}}"),
    token_family("runpod", "rpa_", rf"rpa_{A}{{40,}}"),
    # -- clouds
    token_family("aws", "AKIA ASIA ABIA ACCA", r"A(?:KI|SI|BI|CC)A[A-Z0-9]{16}(?![A-Za-z0-9])"),
    token_family("aws", "ABSK", r"ABSK[A-Za-z0-9+/]{40,}={0,2}"),
    context_family(
        "aws-secret",
        "secret SECRET Secret",
        rf"(?i:secret_?-?(?:access)?_?-?key)(?:{IS}|{QUOTE}\s*,\s*{QUOTE})"
        r"([A-Za-z0-9/+]{40})(?![\w/+=])",
    ),
    token_family(
        "azure",
        "AccountKey= AccessKey=",
        r"(?:Account|Access|SharedAccess)Key=([A-Za-z0-9+/]{40,}={0,2})",
    ),
    context_family("azure-sas", "sig=", r"[?&;]sig=([A-Za-z0-9%+/]{40,}(?:%3[Dd]|=)*)"),
    context_family("azure", "Q~", rf"{BEGIN}[\w~.-]{{3}}\dQ~[A-Za-z0-9_~.\-]{{31,34}}"),
    context_family("gcp", "private_key_id", rf"private_key_id[\\\"'\s:=]+({HEX}{{40}})"),
    token_family("digitalocean", "_v1_", rf"do[opr]_v1_{HEX}{{64}}"),
    token_family("cloudflare", "v1.0-", rf"v1\.0-{HEX}{{24}}-{HEX}{{64,}}"),
    context_family(
        "cloudflare",
        "loudflare LOUDFLARE CF_API CF_TOKEN",
        rf"(?:(?i:cloudflare)|CF_)[A-Za-z_. -]{{0,30}}{IS}({W}{{37,45}})(?!{W})",
    ),
    token_family("heroku", "HRKU-", rf"HRKU-{W}{{30,}}"),
    context_family(
        "heroku",
        "eroku EROKU",
        rf"(?i:heroku)[A-Za-z_. -]{{0,30}}{IS}({HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}})",
    ),
    token_family("vercel", "vcp_ vci_ vca_ vcr_ vck_", rf"vc[piark]_{A}{{24,}}"),
    token_family("vercel", "vercel_blob_rw_", rf"vercel_blob_rw_{A}{{8,}}_{A}{{20,}}"),
    token_family("supabase", "sbp_", rf"sbp_(?:v\d_)?{HEX}{{40}}"),
    token_family("supabase", "sb_secret_", rf"sb_secret_{W}{{20,}}"),
    token_family("databricks", "dapi", rf"dapi{HEX}{{32}}(?:-\d)?"),
    token_family("planetscale", "pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_=.\-]{30,}"),
    token_family("fly", "fm1_ fm2_ fo1_", r"f(?:m[12]|o1)_[A-Za-z0-9_+/=\-]{40,}"),
    token_family("tailscale", "tskey-", rf"tskey-(?:[a-z]{{1,20}}-)?{A}{{1,40}}-{A}{{20,}}"),
    token_family("vault", "hvs. hvb. hvr.", rf"hv[sbr]\.{W}{{24,}}"),
    token_family("terraform", ".atlasv1.", rf"{A}{{14}}\.atlasv1\.[A-Za-z0-9_=\-]{{60,}}"),
    token_family(
        "doppler", "dp.", rf"dp\.(?:pt|st|sa|ct|scim|audit)\.(?:[a-z0-9_-]{{1,60}}\.)?{A}{{40,}}"
    ),
    token_family("vault", "s.", rf"s\.{A}{{24}}(?![A-Za-z0-9_.])", is_mixed),
    token_family("pulumi", "pul-", rf"pul-{HEX}{{40}}"),
    token_family("aws", "amzn.mws.", rf"amzn\.mws\.{UUID}"),
    token_family("alibaba", "LTAI", rf"LTAI{A}{{16,26}}(?![A-Za-z0-9])"),
    token_family("tencent", "AKID", rf"AKID{A}{{32}}(?![A-Za-z0-9])"),
    token_family("yandex", "AQVN", rf"AQVN{W}{{35,38}}"),
    token_family("yandex", "t1.", rf"t1\.{W}{{40,}}={{0,2}}\.{W}{{80,}}"),
    token_family("openshift", "sha256~", rf"sha256~{W}{{43}}"),
    token_family("netlify", "nfp_ nfc_ nfo_ nfu_ nfb_", rf"nf[pcoub]_{A}{{36,}}"),
    token_family("render", "rnd_", rf"rnd_{A}{{28,}}"),
    token_family("neon", "napi_", r"napi_[a-z0-9]{60,}"),
    token_family("clickhouse", "4b1d", rf"4b1d{A}{{38}}(?![A-Za-z0-9])", is_mixed),
    token_family("infracost", "ico-", rf"ico-{A}{{32}}(?![A-Za-z0-9])"),
    token_family("prefect", "pnu_ pnb_", rf"pn[ub]_{A}{{36}}"),
    token_family("dynatrace", "dt0", r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    # -- code and packages
    token_family("github", "ghp_ gho_ ghu_ ghs_ ghr_", rf"gh[pousr]_{A}{{20,}}"),
    token_family("github", "github_pat_", r"github_pat_[A-Za-z0-9_]{20,}"),
    token_family("gitlab", "gl", _GITLAB),
    token_family("gitlab", "GR1348941", rf"GR1348941{W}{{20,}}"),
    token_family("npm", "npm_", rf"npm_{A}{{30,}}"),
    token_family("pypi", "pypi-AgE", rf"pypi-AgE{W}{{50,}}"),
    token_family("rubygems", "rubygems_", rf"rubygems_{HEX}{{48}}"),
    token_family("docker", "dckr_", rf"dckr_[po]at_{W}{{20,}}"),
    token_family("atlassian", "ATATT3 ATCTT3", r"AT[AC]TT3[A-Za-z0-9_\-=]{60,}"),
    token_family("postman", "PMAK-", rf"PMAK-{HEX}{{24}}-{HEX}{{34}}"),
    token_family("crates", "cio", rf"cio{A}{{32}}(?![A-Za-z0-9])", is_mixed),
    token_family("nuget", "oy2", r"oy2[a-z0-9]{43}(?![A-Za-z0-9])"),
    token_family("clojars", "CLOJARS_", rf"CLOJARS_{HEX}{{60}}"),
    token_family("jfrog", "AKCp", rf"AKCp{A}{{60,}}"),
    token_family("jfrog", "cmVmdGtu", rf"cmVmdGtu{A}{{50,}}"),
    token_family("bitbucket", "ATBB", rf"ATBB{A}{{32}}(?![A-Za-z0-9])"),
    token_family("bitbucket", "BBDC-", r"BBDC-[A-Za-z0-9+/]{40,}"),
    token_family("trello", "ATTA", rf"ATTA{HEX}{{56,}}"),
    token_family("circleci", "CCIPAT_ CCIPRJ_", rf"CCIP(?:AT|RJ)_{A}{{20,}}_{HEX}{{40}}"),
    token_family("buildkite", "bkua_ bkct_", rf"bk(?:ua|ct)_{A}{{40}}"),
    token_family("sonar", "squ_ sqp_ sqa_", rf"sq[upa]_{HEX}{{40}}"),
    token_family("sourcegraph", "sgp_", rf"sgp_(?:{A}{{1,20}}_)?{HEX}{{40}}"),
    token_family("harness", "pat. sat.", rf"[ps]at\.{W}{{22}}\.{HEX}{{24}}\.{A}{{20}}"),
    # -- messages and mail
    token_family("slack", "xox", r"xox[abcdeoprs]-[A-Za-z0-9\-.%+/=]{10,}"),
    token_family("slack", "xapp-", r"xapp-[A-Za-z0-9\-]{10,}"),
    token_family("slack", "hooks.slack.com/", r"hooks\.slack\.com/[a-z]+/([A-Za-z0-9/_\-]{20,})"),
    SecretFamily("discord", (), rf"[MNO]{W}{{22,28}}\.{W}{{6,7}}\.{W}{{27,45}}", is_bot_token),
    token_family("discord", "/webhooks/", rf"webhooks/\d{{15,21}}/({W}{{50,}})"),
    context_family("telegram", ":A", rf"(\d{{8,12}}:A{W}{{33,35}})(?!{W})"),
    token_family("twilio", "SK", rf"SK{HEX}{{32}}(?![A-Za-z0-9])"),
    token_family("sendgrid", "SG.", rf"SG\.{W}{{16,32}}\.{W}{{30,64}}"),
    token_family("mailgun", "key-", rf"key-{HEX}{{32}}(?![A-Za-z0-9])"),
    token_family("mailchimp", "-us", rf"{HEX}{{32}}-us\d{{1,2}}(?![A-Za-z0-9])"),
    token_family("matrix", "syt_", rf"syt_[A-Za-z0-9+/=]{{1,200}}_{A}{{20}}_{A}{{6}}"),
    token_family("discord", "mfa.", rf"mfa\.{W}{{80,}}"),
    token_family("teams", "webhook.office.com/", rf"IncomingWebhook/({A}{{32}}/{UUID})"),
    token_family(
        "zapier", "hooks.zapier.com/", r"hooks\.zapier\.com/hooks/catch/(\d+/[a-z0-9]+)", None
    ),
    token_family("brevo", "xkeysib- xsmtpsib-", rf"x(?:key|smtp)sib-{HEX}{{64}}-{A}{{16}}"),
    token_family("resend", "re_", rf"re_{A}{{8}}_{A}{{24}}(?![A-Za-z0-9])", is_mixed),
    token_family("mandrill", "md-", rf"md-{W}{{22}}(?!{W})", is_mixed),
    token_family("firebase", "AAAA", rf"AAAA{W}{{7}}:{W}{{140}}"),
    token_family("facebook", "EAA", rf"EAA{A}{{80,}}", is_mixed),
    token_family("instagram", "IGQ", rf"IGQ{W}{{100,}}", is_mixed),
    context_family(
        "twitter", "AAAAAAAAAAAAAAAAAAAAA", rf"{BEGIN}A{{21,23}}[A-Za-z0-9%]{{60,}}", is_mixed
    ),
    # -- work and money
    token_family("stripe", "_live_ _test_", rf"[srp]k_(?:live|test)_{A}{{16,}}"),
    token_family("stripe", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,}"),
    token_family("square", "sq0", rf"sq0[a-z]{{3}}-{W}{{22,}}"),
    token_family("square", "EAAA", rf"EAAA[A-Za-z]{W}{{56,}}"),
    token_family("shopify", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    token_family("linear", "lin_", rf"lin_(?:api|oauth)_{A}{{32,}}"),
    token_family("notion", "ntn_", rf"ntn_{A}{{40,}}"),
    token_family("notion", "secret_", rf"secret_{A}{{43}}(?![A-Za-z0-9])"),
    token_family("figma", "figd_ figo_ figu_", rf"fig[dou]_{W}{{32,}}"),
    token_family("airtable", "pat", rf"pat{A}{{14}}\.{HEX}{{64}}"),
    token_family("sentry", "sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9_+/=\-]{40,}"),
    context_family("sentry", "@o @sentry", rf"://({HEX}{{32}}(?::{HEX}{{32}})?)@[\w.\-]+/\d+"),
    token_family("grafana", "glsa_", rf"glsa_{A}{{32}}_{HEX}{{8}}"),
    token_family("newrelic", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    token_family("newrelic", "NRII- NRIQ-", rf"NRI[IQ]-{W}{{32}}"),
    token_family("newrelic", "NRAL", rf"{HEX}{{36}}NRAL"),
    token_family("dropbox", "sl.", rf"sl\.(?:u\.)?{W}{{100,}}"),
    token_family("1password", "ops_eyJ", r"ops_eyJ[A-Za-z0-9_=\-]{60,}"),
    token_family("grafana", "glc_", r"glc_[A-Za-z0-9+/_\-]{32,}={0,2}"),
    token_family("grafana", "eyJrIjoi", r"eyJrIjoi[A-Za-z0-9+/]{60,}={0,2}"),
    token_family("datadog", "ddapp_ ddpat_", rf"dd(?:app|pat)_{A}{{34,}}"),
    context_family(
        "asana",
        "asana Asana ASANA",
        rf"{BEGIN}[12](?:/\d{{15,17}}){{1,2}}:{HEX}{{32}}(?![A-Za-z0-9])",
    ),
    token_family("hubspot", "pat-", rf"pat-(?:na|eu|ap)\d-{UUID}"),
    token_family("intercom", "dG9rO", r"dG9rO[A-Za-z0-9+/]{48,}={0,2}"),
    token_family("contentful", "CFPAT-", rf"CFPAT-{W}{{40,}}"),
    token_family("mapbox", "sk.eyJ", rf"sk\.eyJ{W}{{40,}}\.{W}{{20,}}"),
    token_family("plaid", "access-", rf"access-(?:production|sandbox|development)-{UUID}"),
    context_family(
        "braintree", "access_token$", rf"access_token\$\w{{4,20}}\${A}{{10,30}}\$({HEX}{{32}})"
    ),
    token_family(
        "adyen", "AQE", r"AQE[hm][A-Za-z0-9+/]{60,200}-[A-Za-z0-9+/]{30,60}=?-[\x21-\x7e]{10,30}"
    ),
    token_family("readme", "rdme_", r"rdme_[a-z0-9]{60,}"),
    token_family("shippo", "shippo_", rf"shippo_(?:live|test)_{HEX}{{40}}"),
    token_family("easypost", "EZAK EZTK", rf"EZ[AT]K{A}{{54}}"),
    token_family("flutterwave", "FLWSECK", rf"FLWSECK(?:_TEST)?-{HEX}{{32}}-X"),
    token_family("razorpay", "rzp_", rf"rzp_(?:live|test)_{A}{{14,}}"),
    token_family("lob", "live_ test_", rf"(?:live|test)_{HEX}{{35}}(?![A-Za-z0-9])"),
    token_family("duffel", "duffel_", rf"duffel_(?:live|test)_{W}{{43}}"),
    token_family("frameio", "fio-u-", rf"fio-u-{W}{{60,}}"),
    token_family("typeform", "tfp_", rf"tfp_{W}{{40,}}"),
    token_family("launchdarkly", "sdk- api- mob-", rf"(?:sdk|api|mob)-{UUID}"),
    token_family("maxmind", "_mmk", rf"{A}{{6}}_{A}{{29}}_mmk"),
    token_family(
        "1password", "A3-", r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{6}|[A-Z0-9]{11})(?:-[A-Z0-9]{5}){3,4}"
    ),
    # -- keys
    _pem_family("ssh-key", "OPENSSH "),
    _pem_family("pgp-key", "PGP "),
    _pem_family("private-key", r"(?:(?:RSA|EC|DSA|ENCRYPTED|ANY|SSH2 ENCRYPTED) )?"),
    context_family("private-key", "-----END", _LAST, _has_body),
    SecretFamily("private-key", (), _ROWS, _is_base64),
    token_family(  # the first line of one, alone
        "private-key",
        "CAQAwBQYDK2V IBADANBgkqhkiG9w0BAQEFAASC IBAAK MHcCAQEEI MIGkAgEBBD MIHcAgEBBE "
        "AgEAMBMGByqGSM49AgEGCC AgEAMBAGByqGSM49AgEGBSuBBA b3BlbnNzaC1rZXktdjEA",
        r"(?:M[C-E][A-Za-z0-9]CAQAwBQYDK2V[u-x]B[A-Za-z0-9]{3}|MI[A-Za-z0-9+/]{3,6}IBADANBgkqhkiG9w0BAQEFAASC"
        r"|MI[A-Za-z0-9+/]{3,6}IBAAK[BC]|MHcCAQEEI|MIGkAgEBBD[A-D]|MIHcAgEBBE[I-L]"
        r"|MI[A-Za-z0-9+/]{1,4}AgEAMB[AM]GByqGSM49AgEG[BC]|b3BlbnNzaC1rZXktdjEA)"
        r"[A-Za-z0-9+/]{16,}={0,2}",
    ),
    context_family(
        "private-key",
        ".pem .key id_rsa id_ed25519 id_ecdsa id_dsa",
        rf"(?m)(?:\.pem|\.key|id_(?:rsa|ed25519|ecdsa|dsa))[:-]\d{{1,6}}[:-][ \t]?({_ROW})",
        _is_base64,
    ),
    context_family(
        "private-key",
        "LS0tLS1CRUdJTiB",
        r"LS0tLS1CRUdJTiB(?:SU0EgUFJJ|QUklWQVRF|FQyBQUklW|PUEVOU1NI|FTkNSWVBU|EU0EgUFJJ)"
        r"(?:[A-Za-z0-9+/=]|\s)+",
    ),
    context_family(
        "putty-key",
        "Private-Lines:",
        r"Private-Lines:\s*\d+((?:(?:[\s|]|\\[nr]|\d+\|)+[A-Za-z0-9+/=]{4,64}(?=\s|\\|$))+)",
    ),
    context_family("jwk", "kty", rf"{QUOTE}\bd{QUOTE}\s*:\s*{QUOTE}({W}{{40,}})"),
    token_family("bip32", "prv", rf"[xyzt]prv{A}{{100,112}}(?![A-Za-z0-9])"),
    token_family("minisign", "RWRTY0Iy", r"RWRTY0Iy[A-Za-z0-9+/]{100,}={0,2}"),
    token_family("age", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
)
