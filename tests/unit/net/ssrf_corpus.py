"""Addresses that must never be fetched, and addresses that must be."""

from __future__ import annotations

from ipaddress import IPv4Address

PUBLIC = "93.184.216.34"

CLOSED_V4 = """
127.0.0.1 127.0.0.2 127.1.2.3 127.255.255.254 127.127.127.127 0.0.0.0 0.0.0.1 0.255.255.255
10.0.0.1 10.0.0.138 10.255.255.255 10.10.10.10 172.16.0.1 172.17.0.1 172.20.10.1 172.31.255.255
192.168.0.1 192.168.1.1 192.168.1.254 192.168.99.100 192.168.255.255
100.64.0.1 100.100.100.200 100.127.255.255 169.254.0.1 169.254.169.254 169.254.169.253
169.254.170.2 169.254.42.42 169.254.0.23 168.63.129.16 192.0.0.1 192.0.0.8 192.0.0.192
192.0.0.170 192.0.2.1 192.0.2.255 192.88.99.1 192.88.99.2 198.18.0.1 198.19.255.255
198.51.100.7 203.0.113.9 224.0.0.1 224.0.0.251 233.252.0.1 239.255.255.250 240.0.0.1
250.1.2.3 255.255.255.254 255.255.255.255
""".split()

CLOSED_V6 = """
:: ::1 ::2 0:0:0:0:0:0:0:1 0000:0000:0000:0000:0000:0000:0000:0001 fe80::1 fe80::a9fe:a9fe
febf::1 fec0::1 fc00::1 fd00::1 fd00:ec2::254 fd20:ce::254 fdff:ffff::1 ff00::1 ff02::1 ff0e::1
2001:db8::1 2001:db8:ffff::1 3fff::1 3fff:fff::1 100::1 100:0:0:1::1 5f00::1 4000::1 8000::1
2001::1 2001:0:7f00:1::1 2001:0:4136:e378:8000:63bf:80ff:fffe 2001:2::1 2001:10::1 2001:20::1
2001:1ff::1 ::127.0.0.1 ::7f00:1 ::10.0.0.1 ::169.254.169.254 ::8.8.8.8 ::a9fe:a9fe
::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:a9fe:a9fe
::ffff:192.168.1.1 ::ffff:168.63.129.16 ::ffff:192.0.0.192 ::ffff:100.64.0.1 ::ffff:0.0.0.0
::FFFF:127.0.0.1 0:0:0:0:0:ffff:127.0.0.1 ::ffff:0:127.0.0.1 ::ffff:0:7f00:1
64:ff9b::127.0.0.1 64:ff9b::7f00:1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b::a9fe:a9fe
64:ff9b::192.168.0.1 64:ff9b::100.64.0.1 64:ff9b::168.63.129.16 64:ff9b:1::1
64:ff9b:1::10.0.0.1 64:ff9b:1::808:808 64:ff9b:1:ffff::7f00:1 64:ff9b:2::1
2002:7f00:1:: 2002:7f00:1::1 2002:a00:1:: 2002:c0a8:101:: 2002:a9fe:a9fe:: 2002:a83f:8110::
64:ff9b::8.8.8.8 ::ffff:8.8.8.8 2002:808:808::1 2606:4700::5efe:808:808 3ffe::1
2002:c000:c0:: 2002:6440:1:: 2002:ac10:1::1 2002:e000:1:: 2002::1
2606:4700::5efe:10.0.0.1 2606:4700::5efe:7f00:1 2606:4700::200:5efe:192.168.1.1
2a00:1450::5efe:a9fe:a9fe fe80::5efe:192.168.0.1 2607:f8b0::200:5efe:169.254.169.254
""".split()

INSIDE = """
localhost LOCALHOST localhost. LocalHost.localdomain foo.localhost a.b.localhost.
localhost.localdomain ip6-localhost ip6-loopback metadata metadata.google.internal
METADATA.GOOGLE.INTERNAL metadata.google.internal. instance-data kubernetes
kubernetes.default.svc.cluster.local router.lan kubernetes.default.svc consul.service.consul
localhost6.localdomain6 metadata.goog metadata.tencentyun.com
printer.local nas.home gateway.home.arpa wiki.corp jenkins.intranet db.internal redis postgres
host.docker.internal gateway.docker.internal consul vault.private expyuzz4wqqyqhjn.onion
intranet wpad
""".split()

REBOUND = {
    "127.0.0.1.nip.io": "127.0.0.1",
    "10.0.0.1.nip.io": "10.0.0.1",
    "www.10.0.0.1.sslip.io": "10.0.0.1",
    "localtest.me": "127.0.0.1",
    "lvh.me": "127.0.0.1",
    "vcap.me": "127.0.0.1",
    "spoofed.burpcollaborator.net": "127.0.0.1",
    "169.254.169.254.nip.io": "169.254.169.254",
    "metadata.nicob.net": "169.254.169.254",
    "1u.ms": "169.254.169.254",
    "a9fea9fe.rbndr.us": "169.254.169.254",
    "azure.evil.example.com": "168.63.129.16",
    "oracle.evil.example.com": "192.0.0.192",
    "alibaba.evil.example.com": "100.100.100.200",
    "sixtofour.evil.example.com": "2002:7f00:1::",
    "nat64.evil.example.com": "64:ff9b::a9fe:a9fe",
    "localnat64.evil.example.com": "64:ff9b:1::a9fe:a9fe",
    "mapped.evil.example.com": "::ffff:10.1.2.3",
    "compat.evil.example.com": "::7f00:1",
    "teredo.evil.example.com": "2001:0:1:2:3:4:5:6",
    "isatap.evil.example.com": "2606:4700::5efe:a00:1",
    "zero.evil.example.com": "0.0.0.0",
    "ula.evil.example.com": "fd00:ec2::254",
    "scoped.evil.example.com": "fe80::1%1",
    "broadcast.evil.example.com": "255.255.255.255",
    "_dns.evil.example.com": "192.168.1.1",
    "xn--bcher-kva.evil.example.com": "172.16.5.4",
    "both.evil.example.com": f"{PUBLIC} 127.0.0.1",
    "third.evil.example.com": f"{PUBLIC} 8.8.8.8 10.0.0.1",
    "v6last.evil.example.com": f"{PUBLIC} ::1",
}
"""Names of hosts -> what the resolver says about them."""

SCHEMES = """
file:///etc/passwd file://localhost/etc/passwd ftp://example.com/a ftps://example.com/
sftp://example.com/ gopher://127.0.0.1:6379/_INFO dict://127.0.0.1:11211/stats ldap://example.com/
ldaps://example.com/ tftp://example.com/x s3://bucket/key gs://bucket/key jar:http://example.com!/
data:text/html,<script>1</script> data:text/plain;base64,aGk= javascript:alert(1) about:blank
chrome://version view-source:https://example.com/ blob:https://example.com/x ws://example.com/
wss://example.com/ unix:///var/run/docker.sock netdoc:///etc/passwd phar://x mailto:a@example.com
telnet://example.com ssh://example.com git://example.com/x.git smb://example.com/share
nfs://example.com/ php://input expect://id httpx://example.com/ htp://example.com/ hxxp://a.com
""".split()

CONFUSED = [
    "http://user@example.com/",
    "http://user:password@example.com/",
    "http://@example.com/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1@example.com/",
    "http://example.com:80@127.0.0.1/",
    "http://example.com%40127.0.0.1/",
    "http://a:b@c@127.0.0.1/",
    "http://example.com\\@127.0.0.1/",
    "http://127.0.0.1\\@example.com/",
    "http://example.com\\127.0.0.1/",
    "http:\\\\127.0.0.1\\",
    "http:/\\127.0.0.1/",
    "http://example.com/\\..\\x",
    "https://example.com\\.evil.com/",
    "http://exa mple.com/",
    " http://example.com/",
    "http://example.com/ ",
    "http://example.com/a b",
    "http://example.com\t/",
    "http://example.com\n.evil.com/",
    "http://example.com/\r\nHost: 127.0.0.1",
    "http://127.0.0.1\r\n.example.com/",
    "http://example.com\x00.evil.com/",
    "http://example.com/\x00",
    "http://127.0.0.1\x00.example.com/",
    "http://\x01example.com/",
    "http://example.com\x7f/",
    "http://example.com/\x85",
    "http://example.com\u00a0/",
    "http://example.com/\u2028x",
    "http://exa\u200bmple.com/",
    "http://exa\u00admple.com/",
    "http://\u202eexample.com/",
    "http://example.com/\U000e0041",
    "http://example.com/\ud800",
    "http://\ufeffexample.com/",
    "\ufeffhttp://example.com/",
    "http://①②⑦.⓪.⓪.①/",
    "http://１２７.０.０.１/",
    "http://127。0。0。1/",
    "http://127｡0｡0｡1/",
    "http://127．0．0．1/",
    "http://localhost。/",
    "http://ⓛocalhost/",
    "http://ｌｏｃａｌｈｏｓｔ/",
    "http://loc\u212alhost/",
    "http://169。254。169。254/latest/meta-data/",
    "http://１６９．２５４．１６９．２５４/",
    "http://①⑥⑨.②⑤④.①⑥⑨.②⑤④/",
    "http://0ⅹ7f000001/",
    "http://²¹³⁰⁷⁰⁶⁴³³/",
    "http://١٢٧.٠.٠.١/",
    "http://१२७.0.0.१/",
    "http://local\ufe0fhost/",
    "http://127.0.0\ufe0f.1/",
    "http://example。com/",
    "http://exam\u2024ple.com/",
    "http://127\u20240\u20240\u20241/",
    "http://a\uff0eb.com/",
    "http://a\u2100b.com/",
    "http://a\uff0f127.0.0.1/",
    "http://a\uff20127.0.0.1/",
    "http://a\uff1a80.com/",
    "http://%31%32%37.0.0.1/",
    "http://127%2e0%2e0%2e1/",
    "http://localhost%00.example.com/",
    "http://%6c%6f%63alhost/",
    "http://example.com%2f@127.0.0.1/",
    "http://example.com%23@127.0.0.1/",
    "http:///example.com/",
    "http:////example.com/",
    "http:/example.com/",
    "http:example.com",
    "https:127.0.0.1",
    "http://",
    "http:///",
    "http://?x",
    "http://#x",
    "http://:80/",
    "http://.",
    "http://../",
    "http://.example.com/",
    "http://example..com/",
    "http://example.com../",
    "http://-example.com/",
    "http://example-.com/",
    "http://exa!mple.com/",
    "http://exa$mple.com/",
    "http://example.com,127.0.0.1/",
    "http://example.com;127.0.0.1/",
    "http://example.com&@127.0.0.1/",
    "http://{host}/",
    "http://<example.com>/",
    'http://"example.com"/',
    "http://example.com^/",
    "http://example.com`id`/",
    "http://$(hostname)/",
    "http://*/",
    "http://*.example.com/",
    "http://" + "a" * 64 + ".com/",
    "http://" + "a." * 130 + "com/",
    "http://example.com/" + "a" * 9000,
    "http://xn--a\u00fc.com/",
    "http://example.com:0/",
    "http://example.com:00080/",
    "http://example.com:65536/",
    "http://example.com:99999999/",
    "http://example.com:-80/",
    "http://example.com:+80/",
    "http://example.com:80:80/",
    "http://example.com:8e1/",
    "http://example.com:80a/",
    "http://example.com:\uff18\uff10/",
    "http://example.com:٨٠/",
    "http://example.com:22/",
    "http://example.com:25/",
    "http://example.com:53/",
    "http://example.com:110/",
    "http://example.com:143/",
    "http://example.com:389/",
    "http://example.com:587/",
    "http://example.com:2375/",
    "http://example.com:3306/",
    "http://example.com:5432/",
    "http://example.com:6379/",
    "http://example.com:9200/",
    "http://example.com:11211/",
    "http://example.com:27017/",
    "http://[::1/",
    "http://::1/",
    "http://[::1]x/",
    "http://[::1]:x/",
    "http://[::1]@example.com/",
    "http://[::1%25lo]/",
    "http://[fe80::1%eth0]/",
    "http://[2606:4700::1111%251]/",
    "http://[v1.fe80::1]/",
    "http://[127.0.0.1]/",
    "http://[example.com]/",
    "http://[]/",
    "http://[:]/",
    "http://[::ffff:127.0.0.1/",
    "http://[1::2::3]/",
    "http://[12345::]/",
    "http://[::1]]/",
    "http://[[::1]]/",
    "http://2130706433/",
    "http://017700000001/",
    "http://0x7f000001/",
    "http://0x7f.0x0.0x0.0x1/",
    "http://0x7F.1/",
    "http://0177.0.0.1/",
    "http://0177.0.0.01/",
    "http://00000177.0.0.1/",
    "http://127.0.1/",
    "http://127.1/",
    "http://127.0.0.1./",
    "http://127.0.0.01/",
    "http://127.0.0.0x1/",
    "http://127.0.0.1.0/",
    "http://127.0.0.256/",
    "http://256.256.256.256/",
    "http://4294967295/",
    "http://4294967296/",
    "http://0/",
    "http://00/",
    "http://0x/",
    "http://0x0/",
    "http://1.2.3.4.5/",
    "http://1.2.3/",
    "http://0xa9fea9fe/",
    "http://0xA9.0xFE.0xA9.0xFE/",
    "http://2852039166/",
    "http://025177524776/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://169.16689662/",
    "http://169.254.0xa9fe/",
    "http://0000251.0000376.0000251.0000376/",
    "http://425.510.425.510/",
    "http://example.0x7f/",
    "http://example.127/",
    "//example.com/",
    "/etc/passwd",
    "example.com",
    "www.example.com/path",
    "",
    " ",
    "http",
    "https://",
    "?q=1",
    "#",
]


def _forms(text: str) -> list[str]:
    """Other spellings that some resolver understands as the same address."""
    number = int(IPv4Address(text))
    a, b, c, d = text.split(".")
    return [
        str(number),
        hex(number),
        f"0{number:o}",
        ".".join(hex(int(x)) for x in (a, b, c, d)),
        ".".join(f"0{int(x):o}" for x in (a, b, c, d)),
        f"{a}.{int(b) << 16 | int(c) << 8 | int(d)}",
        f"{a}.{b}.{int(c) << 8 | int(d)}",
        f"{hex(int(a))}.{b}.{c}.0{int(d):o}",
    ]


_SEEDS = ("127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1")

BAD = list(
    dict.fromkeys(
        [
            *(f"http://{host}/" for host in CLOSED_V4),
            *(f"https://{host}:8443/x?y=1" for host in CLOSED_V4[:20]),
            *(f"http://{host}./latest" for host in CLOSED_V4[:10]),
            *(f"http://[{host}]/" for host in CLOSED_V6),
            *(f"https://[{host}]:8080/" for host in CLOSED_V6[:10]),
            *(f"http://{host}/" for host in INSIDE),
            *(f"https://{host}/a" for host in REBOUND),
            *(f"http://{form}/" for seed in _SEEDS for form in _forms(seed)),
            *SCHEMES,
            *CONFUSED,
        ]
    )
)

_HOSTS = """
example.com www.example.com example.org news.ycombinator.com en.wikipedia.org de.wikipedia.org
github.com raw.githubusercontent.com gist.github.com gitlab.com bitbucket.org
docs.python.org peps.python.org crates.io
docs.rs pkg.go.dev proxy.golang.org rubygems.org packagist.org repo1.maven.org hub.docker.com
ghcr.io stackoverflow.com superuser.com serverfault.com reddit.com old.reddit.com arxiv.org
export.arxiv.org doi.org www.nature.com www.ncbi.nlm.nih.gov
eutils.ncbi.nlm.nih.gov huggingface.co openrouter.ai
api.openai.com api.anthropic.com generativelanguage.googleapis.com www.google.com bing.com
duckduckgo.com html.duckduckgo.com api.search.brave.com api.tavily.com api.exa.ai searx.be
www.bbc.co.uk www.theguardian.com www.nytimes.com www.lemonde.fr www.spiegel.de www.asahi.com
www.gov.uk europa.eu ec.europa.eu www.bundestag.de www.nasa.gov www.who.int www.un.org
developer.mozilla.org web.dev caniuse.com www.w3.org html.spec.whatwg.org datatracker.ietf.org
www.rfc-editor.org kernel.org lwn.net archlinux.org wiki.archlinux.org www.debian.org ubuntu.com
aws.amazon.com s3.amazonaws.com my-bucket.s3.eu-central-1.amazonaws.com storage.googleapis.com
cloud.google.com azure.microsoft.com learn.microsoft.com x.com youtube.com youtu.be t.co bit.ly a.co
r3---sn-4g5e6nsz.googlevideo.com d111111abcdef8.cloudfront.net my_bucket.example.net
1.1.1.1.example.com 7-zip.org 9gag.com 3m.com 0x10c.com 123.com 163.com a.b.c.d.e.f.example.com
xn--bcher-kva.example
xn--fiqs8s.example local.example.com localhost.example.com internal.example.com metadata.example.com
""".split()

GOOD = list(
    dict.fromkeys(
        [
            *(f"https://{host}/" for host in _HOSTS),
            *(f"http://{host}/index.html?q=1" for host in _HOSTS[:40]),
            "https://example.com",
            "https://example.com?x=1",
            "https://example.com#top",
            "https://EXAMPLE.com/Path",
            "HTTPS://Example.COM/",
            "https://example.com./",
            "https://example.com:443/",
            "http://example.com:80/",
            "http://example.com:8080/a",
            "https://example.com:8443/a",
            "http://example.com:3000/",
            "http://example.com:5000/",
            "http://example.com:8000/",
            "http://example.com:65535/",
            "https://example.com/a/b/../c/./d",
            "https://example.com/%2e%2e/%2f",
            "https://example.com/a%20b?c=%20d",
            "https://example.com/?u=http://127.0.0.1/",
            "https://example.com/?u=user@host",
            "https://example.com/@user/post",
            "https://example.com/a@b:c",
            "https://example.com/a;b=c,d",
            "https://example.com/a?b=c&d[]=e&f={g}",
            "https://example.com/a?b|c",
            "https://example.com/~user/",
            "https://example.com/(x)/'y'!*",
            'https://example.com/"quoted"',
            "https://example.com/<tag>",
            "https://example.com/path//double///slash",
            "https://example.com/?",
            "https://example.com/?#",
            "https://example.com/#/spa/route?x=1",
            "https://example.com/#:~:text=hello",
            "https://example.com/münchen?straße=größe",
            "https://example.com/日本語/ページ",
            "https://ja.wikipedia.org/wiki/日本",
            "https://de.wikipedia.org/wiki/M%C3%BCnchen",
            "https://en.wikipedia.org/wiki/C%2B%2B",
            "https://en.wikipedia.org/wiki/URL_(disambiguation)",
            "https://example.com/emoji/😀",
            "https://bücher.example.com/",
            "https://münchen.de/",
            "https://faß.de/",
            "https://пример.испытание/",
            "https://例え.テスト/",
            "https://中国.cn/",
            "https://한국.kr/",
            "https://παράδειγμα.gr/",
            "https://مثال.com/",
            "https://उदाहरण.com/",
            "https://Bücher.example.com/",
            "https://bu\u0308cher.example.com/",
            "https://xn--mnchen-3ya.de/",
            "https://8.8.8.8/",
            "https://1.1.1.1/dns-query",
            "http://93.184.216.34/",
            "http://9.9.9.9:8080/",
            "http://172.15.255.255/",
            "http://172.32.0.1/",
            "http://100.63.255.255/",
            "http://100.128.0.1/",
            "http://11.0.0.1/",
            "http://126.255.255.255/",
            "http://128.0.0.1/",
            "http://169.253.0.1/",
            "http://192.0.1.1/",
            "http://198.17.255.255/",
            "http://198.20.0.1/",
            "http://223.255.255.254/",
            "http://168.63.129.17/",
            "https://[2606:4700:4700::1111]/",
            "https://[2001:4860:4860::8888]/",
            "https://[2620:fe::fe]:8443/",
            "https://[2a00:1450:4001:81b::200e]/",
            "https://[2001:4860:4860:0:0:0:0:8844]/",
            "https://example.com:/",
            "https://[2606:4700:4700::1111]:/",
            "https://i❤.ws/",
            "http://✪df.ws/123",
            "https://a.b-c.d--e.example.com/",
            "https://_dmarc.example.com/",
            "https://" + "a" * 63 + ".example.com/",
            "https://example.com/" + "a/" * 2000,
            "https://example.com/?q=" + "x" * 4000,
            "https://user.github.io/repo/#readme",
            "https://raw.githubusercontent.com/o/r/main/a%20b.md",
            "https://api.example.com/v1/items?filter[name]=x&sort=-created&page[size]=10",
            "https://maps.example.com/@52.52,13.405,12z",
            "https://web.archive.org/web/2020/http://example.com/",
            "https://translate.example.com/?sl=auto&tl=en&text=%E4%BD%A0%E5%A5%BD",
        ]
    )
)
