"""When a job runs: what people write, and the exact times it means."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import dropwhile
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from hermes.core.errors import ConfigError

ScheduleKind: TypeAlias = Literal["once", "every", "cron"]
_EXAMPLES = "30m, every 2h, 0 9 * * 1-5, daily 09:00, 2026-12-01T09:00"
_DURATION = re.compile(r"([0-9]{1,6})([mhd])")
_CLOCK = re.compile(r"(\S+) ([0-9]{1,2}):([0-9]{2})")
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
    r"(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_UNITS = {"m": 60, "h": 3600, "d": 86400}
_DAY_NAMES = frozenset("mon tue wed thu fri sat sun".split())
_YEARS = 50
"""An expression that matches nothing for so long never will."""
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)


class Schedule(Struct, frozen=True):
    """A schedule that was understood. Its times are whole seconds."""

    kind: ScheduleKind
    zone: ZoneInfo
    at: datetime | None = None
    """The only time of `once`."""
    period: timedelta = timedelta()
    """The elapsed time between two times of `every`."""
    expression: str = ""
    """The five fields of `cron`."""

    def list_times(self, after: datetime, anchor: datetime) -> Iterator[datetime]:
        """The times later than `after`, in order, in the zone of the schedule. `anchor`: when
        `every` began."""
        times: Iterable[datetime] = [self.at] if self.at is not None else []
        if self.kind == "every":
            times = _count_periods(anchor, self.period, after)
        elif self.kind == "cron":
            times = _walk_days(self.expression, self.zone, after)
        for moment in dropwhile(lambda moment: moment <= after, times):
            yield moment.astimezone(self.zone)

    def find_next(self, after: datetime, anchor: datetime) -> datetime | None:
        return next(self.list_times(after, anchor), None)


def parse_schedule(text: str, zone: ZoneInfo, now: datetime) -> Schedule:
    """Understand what a person wrote; ConfigError when it cannot be understood or is past."""
    words = " ".join(text.split())
    if found := _parse_duration(words):
        return Schedule("once", zone, at=_add_time(now, found, text))
    if words.startswith("every ") and (found := _parse_duration(words[6:])):
        _add_time(now, found, text)
        return Schedule("every", zone, period=found)
    if _ISO.fullmatch(words):
        at = parse_time(words, zone)
        if at <= now:
            raise ConfigError(f'The time "{text}" is in the past.')
        return Schedule("once", zone, at=at)
    expression = _translate_clock_time(words) or words
    try:
        if len(expression.split(" ")) != 5:
            raise not_understood(text)
        schedule = Schedule("cron", zone, expression=expression)
        if schedule.find_next(now, now) is None:
            raise not_understood(text)
    except (CronSimError, AssertionError, ValueError, OverflowError):
        raise not_understood(text) from None
    return schedule


def parse_time(text: str, zone: ZoneInfo) -> datetime:
    """An ISO time; without an offset it is one of the zone. ConfigError when it is not one."""
    try:
        found = datetime.fromisoformat(text).replace(microsecond=0)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
        return _resolve_wall_time(found, zone)
    except (ValueError, OverflowError):
        raise ConfigError(f'"{text}" is not an ISO time such as 2026-12-01T09:00.') from None


def load_zone(name: str) -> ZoneInfo:
    """The time zone of that name; ConfigError when there is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        text = f'Time zone "{name[:80]}" is not known. Use a name such as Europe/Berlin.'
        raise ConfigError(text) from None


def parse_duration(text: str) -> timedelta:
    """`30m`, `2h`, `1d`; ConfigError when it is none of these."""
    if found := _parse_duration(text):
        return found
    raise ConfigError(f'"{text[:80]}" is not a duration such as 30m, 2h or 1d.')


def _parse_duration(text: str) -> timedelta | None:
    if not (found := _DURATION.fullmatch(text)) or not int(found[1]):
        return None
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _add_time(now: datetime, elapsed: timedelta, text: str) -> datetime:
    try:
        return now.astimezone(UTC).replace(microsecond=0) + elapsed
    except OverflowError:
        raise not_understood(text) from None


def _translate_clock_time(words: str) -> str:
    """`daily 09:00` and its relatives as cron fields; empty when it is none of them."""
    if not (found := _CLOCK.fullmatch(words.lower())):
        return ""
    days = {"daily": "*", "weekdays": "1-5"}.get(found[1], found[1])
    if days == found[1] and not _DAY_NAMES.issuperset(days.split(",")):
        return ""
    return f"{int(found[3])} {int(found[2])} * * {days}"


def not_understood(text: str) -> ConfigError:
    """The error about a schedule that makes no sense."""
    return ConfigError(f'Schedule "{text}" is not understood. Examples: {_EXAMPLES}.')


def _count_periods(anchor: datetime, period: timedelta, after: datetime) -> Iterator[datetime]:
    begin = anchor.astimezone(UTC).replace(microsecond=0)
    count = max(1, (after - begin) // period)
    while True:
        try:
            yield begin + count * period
        except OverflowError:
            return
        count += 1


def _walk_days(expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The times of a cron expression from the day of `after` on. Cronsim reads the fields; the
    days are walked here, because its own walk leaves out half hours at Lord Howe and can go back
    in time when it starts in a repeated hour."""
    fields = CronSim(expression, datetime(2000, 1, 1))
    minute, hour, *_ = expression.split(" ")
    every_real_time = minute.startswith("*") or hour.startswith("*")
    clock = [time(h, m) for h in sorted(fields.hours) for m in sorted(fields.minutes)]
    last = after
    # A gap may have moved a time of the day before into this one.
    day = after.astimezone(zone).date() - _DAY
    limit = after.year + _YEARS
    while day.year <= limit:
        if day.month in fields.months and fields.match_day(day):
            for moment in _list_day_times(day, clock, zone, every_real_time):
                if moment > last:
                    last = moment
                    limit = moment.year + _YEARS
                    yield moment
        try:
            day += _DAY
        except OverflowError:
            return


def _list_day_times(
    day: date, clock: list[time], zone: ZoneInfo, every_real_time: bool
) -> Iterable[datetime]:
    """The moments of a local day at which its clocks show one of these times."""
    walls = (datetime.combine(day, at) for at in clock)
    begin, end = datetime.combine(day, time()), datetime.combine(day, time(23, 59))
    offset = begin.replace(tzinfo=zone).utcoffset()
    if offset is not None and offset == end.replace(tzinfo=zone, fold=1).utcoffset():
        return (wall.replace(tzinfo=UTC) - offset for wall in walls)
    if not every_real_time:
        return (_resolve_wall_time(wall, zone) for wall in walls)
    return sorted({moment for wall in walls for moment in _list_real_times(wall, zone)})


def _list_real_times(wall: datetime, zone: tzinfo) -> list[datetime]:
    """The moments at which clocks show this time: none in a gap, two where they are set back."""
    moments = [wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    return [m for m in moments if m.astimezone(zone).replace(tzinfo=None) == wall]


def _resolve_wall_time(wall: datetime, zone: tzinfo) -> datetime:
    """The moment at which clocks show this time: the first of two, the end of a gap."""
    while not (found := _list_real_times(wall, zone)):
        wall = wall.replace(second=0) + _MINUTE
    return found[0]
