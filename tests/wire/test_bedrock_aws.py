"""What Amazon asks of a client beyond HTTPS: signatures and framed streams."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer, ParserError
from hypothesis import given
from hypothesis import strategies as st

from hermes.core.errors import ConfigError, Kind, ProviderError
from hermes.llm.auth import aws
from hermes.llm.wire.event_frames import FrameParser
from tests.wire.bedrock_frames import WIRE, delta, ends, frame, pack_frame, plain
from tests.wire.talk import streamed, whole

# -- Amazon's own ways ---------------------------------------------------------------------------

ADDRESS = "https://bedrock-runtime.eu-west-3.amazonaws.com/model/a.b-v1%3A0/converse"
HEADERS = st.dictionaries(st.text(st.characters(codec="ascii"), min_size=1, max_size=9), st.text())
KEYS = aws.AwsKeys("AKIDEXAMPLE", "secret", "session")


def test_regions() -> None:
    assert aws.find_aws_region(ADDRESS) == "eu-west-3"
    assert (
        aws.find_aws_region("https://bedrock-runtime-fips.us-gov-east-1.amazonaws.com/")
        == "us-gov-east-1"
    )
    assert aws.find_aws_region(
        "https://vpce-1.bedrock-runtime.ap-southeast-2.vpce.amazonaws.com"
    ) == ("ap-southeast-2")
    assert aws.find_aws_region("http://127.0.0.1:8000/model/us-east-1") == ""


def test_a_signature_verifies() -> None:
    """Checked against the published recipe, computed here step by step."""
    import hashlib
    import hmac

    body = b'{"messages":[]}'
    headers = {"Content-Type": "application/json", "User-Agent": "x", "Accept": "*/*"}
    signed = aws.sign_request("POST", ADDRESS, headers, body, keys=KEYS)
    assert {**headers, **signed} == signed
    assert signed["X-Amz-Security-Token"] == "session"
    scheme, _, rest = signed["Authorization"].partition(" ")
    assert scheme == "AWS4-HMAC-SHA256"
    fields = dict(p.split("=", 1) for p in rest.split(", "))
    names = fields["SignedHeaders"].split(";")
    assert "user-agent" not in names
    assert "accept" not in names
    lower = {k.lower(): v for k, v in signed.items()}
    lower["host"] = "bedrock-runtime.eu-west-3.amazonaws.com"
    canonical = "\n".join(
        [
            "POST",
            "/model/a.b-v1%253A0/converse",  # every percent sign is encoded again
            "",
            *(f"{n}:{lower[n]}" for n in names),
            "",
            ";".join(names),
            hashlib.sha256(body).hexdigest(),
        ]
    )
    when = signed["X-Amz-Date"]
    scope = f"{when[:8]}/eu-west-3/bedrock/aws4_request"
    text = "\n".join(
        ["AWS4-HMAC-SHA256", when, scope, hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = b"AWS4secret"
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    assert fields["Signature"] == hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    assert fields["Credential"] == f"AKIDEXAMPLE/{scope}"


def test_keys_are_not_shown() -> None:
    assert "secret" not in repr(KEYS)
    assert "secret" not in str(KEYS)


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """No credentials and no region anywhere botocore looks."""
    import os

    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    aws._open_session.cache_clear()


def test_credentials_come_from_where_botocore_looks(
    nobody: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        aws.sign_request("POST", ADDRESS, {}, b"")
    with pytest.raises(ConfigError, match="region"):
        aws.sign_request("POST", "http://127.0.0.1:9/x", {}, b"", keys=KEYS)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    aws._open_session.cache_clear()
    signed = aws.sign_request("POST", ADDRESS, {}, b"")
    assert "Credential=AKIDENV/" in signed["Authorization"]
    signed = aws.sign_request(
        "POST", "http://127.0.0.1:9/x", {}, b"", keys=KEYS, region="us-east-1"
    )
    assert "/us-east-1/" in signed["Authorization"]


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [n for n in sys.modules if n.partition(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(ConfigError, match=r"hermes-runtime\[bedrock\]"):
        aws.sign_request("POST", ADDRESS, {}, b"", keys=KEYS)
    # An API key needs nothing of it.
    assert streamed(WIRE, delta(0, text="x") + ends())[0].text == "x"
    assert whole(WIRE, plain({"text": "hi"}))[0].text == "hi"


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=300)), max_size=5), st.data())
def test_frames_are_read_as_botocore_reads_them(
    frames: list[tuple[dict[str, str], bytes]], data: st.DataObject
) -> None:
    sent = b"".join(frame(headers, payload) for headers, payload in frames)
    if sent and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(sent) - 1))
        sent = sent[:at] + bytes([sent[at] ^ data.draw(st.integers(1, 255))]) + sent[at + 1 :]
    oracle = EventStreamBuffer()
    oracle.add_data(sent)
    expected: list[Any] = []
    try:
        expected += ((f.headers, f.payload) for f in oracle)
    except ParserError:
        expected.append("damaged")
    parser, found, step = FrameParser(), list[Any](), data.draw(st.integers(1, 50))
    try:
        for at in range(0, len(sent), step):
            found += parser.feed(sent[at : at + step])
    except ProviderError as error:
        assert error.failure.kind is Kind.NETWORK
        found.append("damaged")
    assert found == expected


def test_headers_of_every_type() -> None:
    typed = b"".join(
        bytes([1, 97 + kind, kind]) + value
        for kind, value in enumerate(
            [b"", b"", b"1", b"12", b"1234", b"12345678", b"\0\2ab", b"\0\1c", b"8" * 8, b"9" * 16]
        )
    )
    sent = pack_frame(typed, b"{}")
    oracle = EventStreamBuffer()
    oracle.add_data(sent)
    ((headers, payload),) = FrameParser().feed(sent)
    assert payload == b"{}" and set(headers) == set(next(oracle).headers)
    assert (headers["g"], headers["h"]) == (b"ab", "c")
    for broken in (b"\x01a\x63", b"\x09a", b"\x01\xff\x00"):
        with pytest.raises(ProviderError):
            list(FrameParser().feed(pack_frame(broken, b"")))
