from typing import Any

import orjson
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hermes.agent.json_repair import BadArguments, is_truncated, parse_arguments

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
)
OBJECT = st.dictionaries(TEXT, VALUE, max_size=5)
FULL = st.dictionaries(TEXT, VALUE, min_size=1, max_size=5)


def dump(value: Any) -> str:
    return orjson.dumps(value).decode()


@pytest.mark.parametrize("raw", ["", " \n\t", "None", "null", " null\n", '""', "{}", "{ }"])
def test_nothing_given_is_an_empty_object(raw: str) -> None:
    assert parse_arguments(raw) == {}
    assert not is_truncated(raw)


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}),
        ('{"a": "\x00\x1b[0m"}', {"a": "\x00\x1b[0m"}),
        ('{"a": "\\\\\n"}', {"a": "\\\n"}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2, ], }', {"a": [1, 2]}),
        ('{"a": ",}"}', {"a": ",}"}),
        ('{"a": [1, 2}', {"a": [1, 2]}),
        ('{"a": {"b": [1, {"c": 2]}}', {"a": {"b": [1, {"c": 2}]}}),
        ('{"edits": [{"old": "x", "new": "y"}}', {"edits": [{"old": "x", "new": "y"}]}),
        ('{"a": [1, 2, }', {"a": [1, 2]}),
        ('{"a": 1}}', {"a": 1}),
        ('{"a": 1}\n}] }', {"a": 1}),
        ("{'a': 'b', 'c': True, 'd': False, 'e': None}", dict(a="b", c=True, d=False, e=None)),
        ('{"a": True}', {"a": True}),
        ("{'a': 'say \"hi\"'}", {"a": 'say "hi"'}),
        ("{'a': \"it's\"}", {"a": "it's"}),
        (r"{'a': 'it\'s \x41 \u00e9 \U0001f600 \n'}", {"a": "it's A é 😀 \n"}),
        ("{'a': 'x\ny',}", {"a": "x\ny"}),
        (r'{"a": "\ud83d"}', {"a": "\ufffd"}),
        (r'{"a": "\ud83d\ude00 \ude00"}', {"a": "😀 \ufffd"}),
        (r'{"a": "\\ud83d",}', {"a": r"\ud83d"}),
        ('{"a": "\ud83d"}', {"a": "\ufffd"}),
        ('{"a\udcff": 1}', {"a\ufffd": 1}),
    ],
)
def test_slips_with_one_reading_are_repaired(raw: str, meant: dict[str, Any]) -> None:
    assert parse_arguments(raw) == meant
    assert not is_truncated(raw)


@pytest.mark.parametrize(
    "raw",
    [
        '{"a": 1}{"b": 2}',
        '{"a": 1} {"a": 1}',
        '{"a": 1}, {"b": 2}',
        '{"a": 1}{"b": 2',
        "[]",
        '[{"a": 1}]',
        "['a']",
        '"text"',
        "'text'",
        "1",
        "true",
        "True",
        "hello",
        "ls -la",
        "{,}",
        '{"a": [,]}',
        '{"a": 1,,}',
        '{"a": }',
        '{"a"}',
        "{a: 1}",
        '{"a": hello}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": (1, 2)}',
        '{"a": 1 "b": 2}',
        '{"a": 1} and more',
        '```json\n{"a": 1}\n```',
        "}",
        "{}" + "}" * 33,
        # each of these has two readings
        "{'a': 'it's'}",
        '{"a": "say "hi""}',
        r'{"a": "echo \$HOME"}',
        r"""{"a": "echo 'It'\''s'"}""",
        r'{"a": "\x41"}',
        '{"a": "\\\n"}',
        '{"a": 1]}',
        '{"a": [1]], "b": 2}',
        '{"a": [1, 2}, "b": 3}',
        '{"a": [[1, 2, [3, 4]]}',
        '{"a": [[1, 2], [3, 4}',
        '{"a": [{"b": {"c": 1, "d": 2}]}',
    ],
)
def test_what_has_no_single_reading_is_refused(raw: str) -> None:
    with pytest.raises(BadArguments, match="Nothing was executed"):
        parse_arguments(raw)
    assert not is_truncated(raw)


@pytest.mark.parametrize(
    "raw",
    [
        "{",
        '{"a',
        '{"a"',
        '{"a":',
        '{"a": 1',
        '{"a": 1,',
        '{"a": tru',
        '{"a": "b"',
        '{"a": "x }',
        '{"a": "function f() { return [1]; }',
        '{"a": "b\\',
        '{"a": {"b": 1}',
        '{"a": [1, 2]',
        "{'a': 'b",
        '[{"a": 1}',
    ],
)
def test_text_that_breaks_off_is_truncated_and_never_parsed(raw: str) -> None:
    assert is_truncated(raw)
    with pytest.raises(BadArguments, match="end before the object is closed"):
        parse_arguments(raw)


@settings(deadline=None)
@given(OBJECT)
def test_any_object_round_trips(value: dict[str, Any]) -> None:
    assert parse_arguments(dump(value)) == value
    assert parse_arguments(f"\n {dump(value)} \n") == value
    assert not is_truncated(dump(value))


@settings(deadline=None)
@given(FULL, st.data())
def test_no_prefix_of_an_object_is_ever_executed(
    value: dict[str, Any], data: st.DataObject
) -> None:
    for raw in (dump(value), orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(), repr(value)):
        prefix = raw[: data.draw(st.integers(1, len(raw) - 1))]
        assert is_truncated(prefix)
        with pytest.raises(BadArguments):
            parse_arguments(prefix)


@settings(deadline=None)
@given(OBJECT, st.data())
def test_documented_slips_repair_to_the_original(
    value: dict[str, Any], data: st.DataObject
) -> None:
    raw = orjson.dumps({**value, "last": [1, "two"]}).decode()
    meant = {**value, "last": [1, "two"]}
    slips = {
        "surplus": raw + data.draw(st.text("}] \n", max_size=20)),
        "trailing commas": raw[:-1] + ",}",
        "inner comma": raw[:-2] + ", ]}",
        "inner open": raw[:-2] + "}",
        "both": raw[:-2] + ",}}",
        "raw controls": raw[:-1] + ',"text":"a\nb\x00\tc"}',
        "indented": orjson.dumps(meant, option=orjson.OPT_INDENT_2)
        .decode()
        .replace("]\n}", "],\n}"),
    }
    assume(not is_truncated(raw))
    for name, slip in slips.items():
        expected = {**meant, "text": "a\nb\x00\tc"} if name == "raw controls" else meant
        assert parse_arguments(slip) == expected, name


@settings(deadline=None)
@given(OBJECT)
@example({"it's": "\x1b"})
def test_python_literals_read_as_python_reads_them(value: dict[str, Any]) -> None:
    extremes = {"quote": "it's", "double": 'a"b', "odd": "\x1b\x00\xad\U000e0001"}
    for raw in (repr(value), repr({**value, **extremes})):
        try:
            assert parse_arguments(raw) == eval(raw)
        except BadArguments:
            # JSON knows no \x; in double quotes the text may be JSON with a slip instead
            assert '"' in raw
            assert "\\x" in raw or "\\U" in raw


@settings(deadline=None)
@given(st.text(max_size=60) | st.text("{}[]\"',:\\ud8\n aTrueNone1", max_size=60))
@example('{"a":"\\u')
@example("{'\\U99999999':1}")
@example("{'\\U0000d800':1}")
def test_any_text_is_an_object_or_refused(raw: str) -> None:
    is_truncated(raw)
    try:
        value = parse_arguments(raw)
    except BadArguments:
        return
    assert isinstance(value, dict)
    orjson.dumps(value)
    assert not is_truncated(raw)
    assert value or not raw.strip().strip("{}[] \n\"'") or raw.strip() in ("None", "null")


HOSTILE = {
    "opening": "[" * 100_000,
    "closing": "}" * 100_000,
    "object then closing": "{}" + "]" * 100_000,
    "nested objects": '{"a":' * 20_000,
    "balanced": '{"a":' + "[" * 50_000 + "]" * 50_000 + "}",
    "alternating": '{"a":' + "[{" * 50_000,
    "mismatched": '{"a":' + "[" * 400 + "}" * 100_000,
    "quotes": '{"' + '"' * 100_000,
    "single quotes": "{'" * 50_000,
    "backslashes": '{"a":"' + "\\" * 100_001,
    "backslash controls": '{"a":"' + "\\\\" * 50_000 + '\n",}',
    "surrogates": '{"a":"' + "\\ud800" * 20_000 + '"}',
    "newlines": '{"a":"' + "\n" * 100_000 + '"}',
    "commas": "{" + "," * 100_000 + "}",
    "many tokens": '{"a":[' + "1," * 200_000 + "}",
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_read_once(raw: str) -> None:
    """Quadratic work on these would take minutes: the time limit of a test ends it."""
    is_truncated(raw)
    try:
        parse_arguments(raw)
    except BadArguments as refused:
        assert len(str(refused)) < 400
