"""What must never be seen in an error, a log or a dump, and what must stay readable."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.core.redact import MARK, Redactor

KEYS = [
    "sk-" + "a1B2" * 12,
    "sk-ant-api03-" + "Zz9_-" * 12,
    "sk-proj-" + "abcDEF12" * 6,
    "sk-or-v1-" + "0f" * 32,
    "AIza" + "Sy0123456789abcdefghijklmnopqrstuvw",
    "gsk_" + "abcd1234" * 6,
    "xai-" + "abcd1234" * 6,
    "hf_" + "abcdEFGH" * 4,
    "ghp_" + "abcd1234" * 5,
    "github_pat_" + "11ABCDEFG0" * 4,
    "xoxb-" + "123456789012-abcdefABCDEF",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
]


@pytest.mark.parametrize("key", KEYS)
def test_key_shapes_are_blanked_without_being_known(key: str) -> None:
    assert Redactor().clean(f"Incorrect API key provided: {key}.") == (
        f"Incorrect API key provided: {MARK}."
    )
    assert key not in Redactor().clean(f'{{"key":"{key}","x":1}}')


def test_bearer_and_addresses_with_a_password() -> None:
    assert Redactor().clean("Authorization: Bearer abc.def-123456") == (
        f"Authorization: Bearer {MARK}"
    )
    cleaned = Redactor().clean("proxy http://joe:hunter2@proxy.local:3128/")
    assert cleaned == f"proxy http://joe:{MARK}@proxy.local:3128/"


def test_ordinary_text_stays() -> None:
    text = (
        "The model `gpt-4o` does not exist; see https://host/v1/models?x=1 (request req_0123456789"
        "abcdef). task-force, risk-averse, sk-learn, bearer of news, a@b.example"
    )
    assert Redactor(["short"]).clean(text) == text


def test_a_known_value_is_blanked_in_every_form_it_travels_in() -> None:
    secret = "p@ss/wörd+with=odd&chars"
    redactor = Redactor([secret])
    encoded = base64.b64encode(f"user:{secret}".encode()).decode()
    safe = base64.urlsafe_b64encode(f"user:{secret}".encode()).decode()
    for form in (secret, quote(secret), quote(secret, safe=""), encoded, safe):
        cleaned = redactor.clean(f"<<{form}>>")
        assert MARK in cleaned
        assert form not in cleaned


def test_short_values_are_not_secrets() -> None:
    assert Redactor(["abc", "1234567", ""]).clean("abc 1234567") == "abc 1234567"


def test_the_longer_of_two_overlapping_secrets_leaves_no_tail() -> None:
    assert (
        Redactor(["token-abcdef", "token-abcdef-and-more"]).clean("token-abcdef-and-more") == MARK
    )


PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=60)


@given(secret=PRINTABLE, before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_known_value_never_survives(secret: str, before: str, after: str) -> None:
    redactor = Redactor([secret])
    assert secret not in redactor.clean(before + secret + after)
    raw = (before + secret + after).encode("utf-8", "replace")
    coded = base64.b64encode(raw).decode()
    whole = base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]
    assert whole not in redactor.clean(coded)


@given(st.text())
def test_anything_can_be_cleaned(text: str) -> None:
    Redactor([text]).clean(text)
