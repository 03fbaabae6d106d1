"""The list of skills that a new session begins with."""

from collections.abc import Mapping, Sequence

from hermes.core.untrusted_text import break_tags, make_inert
from hermes.skills.skill import Skill

_MAX_DESCRIPTION = 160
_HINT = 'Skills are instructions for certain tasks; read one first: skill_view {"name":"…"}'


def build_skills_block(skills: Sequence[Skill], uses: Mapping[str, int], limit: int) -> str:
    """The names and descriptions that fit into `limit` bytes; empty when there is none. `uses`: how
    often each was used lately."""
    ordered = sorted(
        skills,
        key=lambda s: (s.source != "project", -uses.get(s.name, 0), -s.changed, s.name),
    )
    room = limit - len("<skills>\n</skills>")
    shown: list[str] = []
    for number, skill in enumerate(ordered):
        line = f"{_clean(skill.name)}: {_cut_bytes(_clean(skill.description))}"
        left = len(ordered) - number - 1
        needed = len(line.encode()) + 1
        if needed + (len(_count_rest(left).encode()) + 1 if left else 0) > room:
            break
        shown.append(line)
        room -= needed
    rest = len(ordered) - len(shown)
    if rest:
        if not shown and len(_count_rest(rest).encode()) + 1 > room:
            return ""
        shown.append(_count_rest(rest))
    if not ordered or limit <= 0:
        return ""
    return "\n".join((_HINT, "<skills>", *shown, "</skills>"))


def _count_rest(count: int) -> str:
    return f'{count} more: skills_list {{"query":"…"}}'


def _clean(text: str) -> str:
    return " ".join(break_tags(make_inert(text), "skills").split())


def _cut_bytes(text: str) -> str:
    raw = text.encode("utf-8", "replace")
    if len(raw) <= _MAX_DESCRIPTION:
        return text
    return raw[: _MAX_DESCRIPTION - 3].decode("utf-8", "ignore").rstrip() + "…"
