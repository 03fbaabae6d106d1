"""JSON in both directions: nothing a provider sends is fatal, nothing we send is illegal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.text import replace_invalid
from hermes.llm.wire.lenient_json import decode_json, encode_json, to_text


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":[1,2.5,null,true,"\xc3\xa9"]}', {"a": [1, 2.5, None, True, "é"]}),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'["\\ud800","\\udc00x"]', ["\ufffd", "\ufffdx"]),
        (b'{"\\ud800":1}', {"\ufffd": 1}),
        (b"[NaN,Infinity,-Infinity]", [None, None, None]),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
        (b'"a\nb\x01"', "a\nb\x01"),
        (b"\xef\xbb\xbf{}", {}),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        ('{"s":"str"}', {"s": "str"}),
    ],
)
def test_what_is_read(data: bytes | str, value: Any) -> None:
    assert decode_json(data) == value


@pytest.mark.parametrize("data", [b"", b"{", b"[DONE]", b"<html>", b"[" * 50_000, b"{'a':1}"])
def test_what_is_no_json(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_json(data)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'),
        ("a\ud800b\x00", '"a\ufffdb\ufffd"'),
        ({"\x00": "\x00"}, '{"\ufffd":"\ufffd"}'),
        ({"n": float("nan"), "i": 2**80}, '{"n":null,"i":1208925819614629174706176}'),
        (("\ud800", {1: 2}), '["\ufffd",{"1":2}]'),
        ("\\u0000", '"\\\\u0000"'),
        (["\\u0000", 2**80], '["\\\\u0000",1208925819614629174706176]'),
    ],
)
def test_what_is_written(value: Any, written: str) -> None:
    assert encode_json(value).decode() == written


TEXT = st.text(st.characters(exclude_categories=()))  # surrogates too
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)


@given(ANY)
@settings(max_examples=150, deadline=None)
def test_everything_written_is_legal_and_stays_as_it_is(value: Any) -> None:
    out = encode_json(value)
    again = json.loads(out.decode("utf-8", "strict"), parse_constant=pytest.fail)
    assert b"\\u0000" not in out.replace(b"\\\\", b"")
    assert decode_json(encode_json(again)) == again
    assert decode_json(out) == again


def test_text() -> None:
    assert [to_text(v) for v in ("a", None, {"b": 1}, 7)] == ["a", "", '{"b":1}', "7"]
    assert replace_invalid("ok") == "ok"
