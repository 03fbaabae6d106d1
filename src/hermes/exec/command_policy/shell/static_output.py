"""Predicts the output of a few harmless programs without running them."""

from __future__ import annotations

import re

from hermes.exec.command_policy.shell.words import decode_escapes, is_vague, literal_text

_LIMIT = 16_384


def predict_output(argv: tuple[str, ...], feed: str | None) -> str | None:
    """The output of echo, printf, cat, base64 -d and the like; None when it is unknown."""
    if not argv or any(is_vague(word) for word in argv):
        return None
    name, words = argv[0].rpartition("/")[2], [literal_text(word) for word in argv[1:]]
    if name == "echo":
        return _predict_echo(words)
    if name == "printf" and words:
        return _predict_printf(words)
    if feed is None or feed.startswith("\x02") or len(feed) > _LIMIT:
        return None
    if name == "cat" and words in ([], ["-"]):
        return feed
    if name == "rev" and not words:
        return "\n".join(line[::-1] for line in feed.split("\n"))
    if name == "openssl" and set(words) <= set("enc base64 -d -base64 -a -A".split()):
        return _decode_base(feed, "base64") if "-d" in words else None
    if name in ("base64", "base32") and words in (["-d"], ["--decode"], ["-D"], ["-di"]):
        return _decode_base(feed, name)
    if name == "xxd" and set("".join(words)) <= set("-rp ps"):
        return _decode_hex(feed)
    if name == "tr" and len(words) == 2:
        return _translate_letters(feed, *words)
    return None


def _predict_echo(words: list[str]) -> str:
    escapes = False
    while words and re.fullmatch(r"-[neE]+", words[0]):
        escapes = escapes or "e" in words[0]
        words = words[1:]
    text = " ".join(words)
    return decode_escapes(text.replace("\\0", "\\")) if escapes else text


def _predict_printf(words: list[str]) -> str | None:
    if words[0] == "--":
        words = words[1:]
    if not words or words[0].startswith("-v"):
        return None
    form, values = decode_escapes(words[0]), words[1:]
    parts = re.split(r"%[-0-9.]*([a-zA-Z%])", form)
    out: list[str] = []
    rounds = 0
    while rounds == 0 or (values and rounds < 200):
        rounds += 1
        taken = len(values)
        for at, part in enumerate(parts):
            if at % 2 == 0:
                out.append(part)
            elif part == "%":
                out.append("%")
            else:
                value = values.pop(0) if values else ""
                out.append(decode_escapes(value) if part == "b" else value)
        if taken == len(values):
            break
    return "".join(out)[:_LIMIT]


def _decode_base(feed: str, name: str) -> str | None:
    import base64
    import binascii

    decode = base64.b64decode if name == "base64" else base64.b32decode
    try:
        return decode(feed.strip().encode()).decode("utf-8", "replace")
    except (ValueError, binascii.Error):
        return None


def _decode_hex(feed: str) -> str | None:
    try:
        return bytes.fromhex(feed.strip()).decode("utf-8", "replace")
    except ValueError:
        return None


def _translate_letters(feed: str, old: str, new: str) -> str | None:
    ranges = {"a-z": _LOWER, "A-Z": _LOWER.upper(), "n-za-m": _LOWER[13:] + _LOWER[:13]}
    for name, letters in ranges.items():
        old, new = old.replace(name, letters), new.replace(name, letters)
    rotated = ("A-Za-z", "N-ZA-Mn-za-m")
    if (old, new) == rotated or len(old) != len(new) or "[" in old or "-" in old + new:
        return None
    return feed.translate(str.maketrans(old, new))


_LOWER = "abcdefghijklmnopqrstuvwxyz"
