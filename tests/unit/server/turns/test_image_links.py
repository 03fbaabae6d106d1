"""The filter that turns remote images in Markdown into links."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.server.turns.image_links import LOOKAHEAD, ImageLinkFilter, link_images


@pytest.mark.parametrize(
    "text,expected",
    [
        ("![a](http://e/x)", "[a](http://e/x)"),
        ("![a](HTTPS://e)", "[a](HTTPS://e)"),
        ("![a](//e/x)", "[a](//e/x)"),
        ("![a]( <http://e>)", "[a]( <http://e>)"),
        ("![a](\nhttp://e)", "[a](\nhttp://e)"),
        ("![a](ht&#116;p://e)", "[a](ht&#116;p://e)"),
        ("![a](http\\://e)", "[a](http\\://e)"),
        ("![a\\]b](http://e)", "[a\\]b](http://e)"),
        ("x![a](http://e)", "x[a](http://e)"),
        ("!![a](http://e)", "! [a](http://e)"),
        ("\\\\![a](http://e)", "\\\\[a](http://e)"),
        ("[![b](http://i)](http://l)", "[[b](http://i)](http://l)"),
        ("![a][r]\n\n[r]: http://e", "[a][r]\n\n[r]: http://e"),
        ("![r]\n", "[r]\n"),
        (f"![{'a' * LOOKAHEAD}](http://e)", f"[{'a' * LOOKAHEAD}](http://e)"),
        ("<img src=http://e>", "&lt;img src=http://e>"),
        ("<IMG/src=http://e>", "&lt;IMG/src=http://e>"),
        ("<video src=http://e></video>", "&lt;video src=http://e>&lt;/video>"),
        ("<Audio autoplay src='http://e'>", "&lt;Audio autoplay src='http://e'>"),
        ("<source\nsrcset=http://e>", "&lt;source\nsrcset=http://e>"),
        ("<svg><image href=http://e /></svg>", "<svg>&lt;image href=http://e /></svg>"),
        ("<iframe src=http://e>", "&lt;iframe src=http://e>"),
        ("<link rel=stylesheet href=//e>", "&lt;link rel=stylesheet href=//e>"),
        ("<style>@import 'http://e'</style>", "&lt;style>@import 'http://e'&lt;/style>"),
        (
            "<p title='>' style='background:url(//e)'>",
            "&lt;p title='>' style='background:url(//e)'>",
        ),
        ("<pre\n\nstyle='background:url(//e)'>", "&lt;pre\n\nstyle='background:url(//e)'>"),
        ("<x/style=background:url(//e)>", "&lt;x/style=background:url(//e)>"),
        ("<a href='x' style='background:url(//e)'>", "&lt;a href='x' style='background:url(//e)'>"),
        ("<https://x/style=background:url(//e)>", "&lt;https://x/style=background:url(//e)>"),
        (f"<p {'a ' * LOOKAHEAD} style='x'>", f"&lt;p {'a ' * LOOKAHEAD} style='x'>"),
        ("don`t ![a](http://e)\nor`", "don`t [a](http://e)\nor`"),
        ("don`t ![a](http://e)", "don`t [a](http://e)"),
        ("```md\n![a](http://e)\n```\n![a](http://e)", "```md\n![a](http://e)\n```\n[a](http://e)"),
        ("```a`b\n![a](http://e)", "```a`b\n[a](http://e)"),
        ("    ```\n![a](http://e)", "    ```\n[a](http://e)"),
    ],
)
def test_remote_images_become_links(text: str, expected: str) -> None:
    assert link_images(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "![a](data:image/png;base64,AAAA)",
        "![a](chart.png) ![b](./c.png 'title') ![c](/tmp/d.png)",
        "\\![a](http://e)",
        "let v = vec![1, 2]; vec![a][0]; #![allow(x)]; wow![1]",
        "`![a](http://e)` and ``b ` ![a](http://e)``",
        "~~~\n![a](http://e)\n~~~\n",
        "```\n<img src=http://e>\n![a](http://e)",
        "a < b, <imgx>, <i>, [a](http://e), !, ![, ![a",
        "<b>bold</b><br/> <details><summary>x</summary></details> x <y and z",
        "<https://e/?a=b&c=d>, <me@e.example>, <a href=\"https://e/?q=1\" title='x'>e</a>",
        "`<video src=http://e>` and ends with <a href",
        "ends with !",
        "ends with <",
        "ends with \\",
        "ends with `",
    ],
)
def test_other_text_is_not_changed(text: str) -> None:
    assert link_images(text) == text


_PIECES = "![ a ]( http://e ) ` `` ``` ~~~ \n ! < img <img\t \\ [r] data:x word # ] ( .. é".split(
    " "
)
_PIECES += ["<a ", "href='x'", ">", "=", "</b>", "<p ", "style=", "<https:", "//x"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=24), st.lists(st.integers(1, 6), min_size=1))
def test_the_result_does_not_depend_on_how_the_text_is_cut(
    pieces: list[str], sizes: list[int]
) -> None:
    text = "".join(pieces)
    image_filter, out, index, n = ImageLinkFilter(), "", 0, 0
    while index < len(text):
        size = sizes[n % len(sizes)]
        out += image_filter.feed(text[index : index + size])
        index, n = index + size, n + 1
    uncut = ImageLinkFilter()
    assert out + image_filter.close() == uncut.feed(text) + uncut.close()


def test_only_a_possible_image_is_held_back() -> None:
    image_filter = ImageLinkFilter()
    assert image_filter.feed("Well!") == "Well"
    assert image_filter.feed(" So: ![a") == "! So: "
    assert image_filter.feed("](h") == ""
    assert image_filter.feed("ttp:") == "[a](http:"
    assert image_filter.close() == ""
