"""Markdown as Discord reads it: text that Discord would take for markup is escaped."""

import re

from hermes.gateway.content.markup import Emphasis, MarkupWriter

_BREAK = "\u200b"
"""Keeps marks apart that would be read as one."""
_MARKS: dict[Emphasis, str] = {"strong": "**", "em": "*", "s": "~~"}
_ADDRESS = re.compile(r"(https?://[^\s<>]+)")
_SPECIAL = re.compile(r"[\\*_~`<\[\]]|\|(?=\|)|(?<=\|)\|")
_LINE_START = re.compile(r"^(\s*)([>#+-])", re.MULTILINE)
_NUMBER_START = re.compile(r"^(\s*\d+)(\.)", re.MULTILINE)
_DEEPEST_HEADING = 3


def escape_discord(text: str) -> str:
    """Plain text that Discord shows as it is. Addresses stay whole: an escape would break them."""
    pieces = _ADDRESS.split(text)
    for index in range(0, len(pieces), 2):
        pieces[index] = _SPECIAL.sub(lambda found: f"\\{found[0]}", pieces[index])
    whole = _LINE_START.sub(r"\1\\\2", "".join(pieces))
    return _NUMBER_START.sub(r"\1\\\2", whole)


def render_discord(text: str) -> str:
    """The Markdown of Discord."""
    return _DiscordWriter().render(text)


class _DiscordWriter(MarkupWriter):
    bullet = "- "
    schemes = frozenset({"http", "https"})

    def escape_text(self, text: str) -> str:
        return escape_discord(text)

    def wrap_emphasis(self, kind: Emphasis, text: str) -> str:
        return f"{_MARKS[kind]}{text}{_MARKS[kind]}" if text.strip() else text

    def write_inline_code(self, code: str) -> str:
        longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
        mark = "`" * (longest + 1)
        space = " " if code.startswith("`") or code.endswith("`") else ""
        return f"{mark}{space}{code}{space}{mark}"

    def write_code(self, code: str, language: str) -> str:
        safe = code.replace("```", f"`{_BREAK}`{_BREAK}`")
        return f"```{language}\n{safe}\n```"

    def wrap_heading(self, text: str, level: int) -> str:
        if level > _DEEPEST_HEADING or "\n" in text or not text.strip():
            return text if "**" in text else self.wrap_emphasis("strong", text)
        return f"{'#' * level} {text}"

    def wrap_link(self, target: str, text: str) -> str:
        shown = text.replace("\n", " ")
        if shown == target or not shown.strip():
            return target
        if "://" in shown:  # Discord shows such a link as raw text
            return f"{shown} (<{target}>)"
        return f"[{shown}](<{target}>)"

    def write_number(self, number: str, mark: str) -> str:
        # Escaped: Discord would count on from the first number of a list.
        return f"{number}\\{mark} "

    def join_inline(self, pieces: list[str]) -> str:
        whole = ""
        for piece in pieces:
            if whole and piece and whole[-1] == piece[0] and piece[0] in "*~`":
                whole += _BREAK
            whole += piece
        return whole
