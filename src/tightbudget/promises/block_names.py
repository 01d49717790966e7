"""Names of the blocks of a set, and of the ranges that callers say.

A block is named by the value of each dimension: ``clicks[day=2026-01-31, region=eu]``. A range is
said by values, several values or periods for each dimension.
"""

from __future__ import annotations

import calendar
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import plain, refuse
from tightbudget.promises.text import printable

# What names the values of a dimension: one value, several, or a range "a..b" with both ends.
Values = str | int | date | Iterable[str | int | date]

_MOST = 10_000  # blocks of one range; as many budgets as the ledger is measured with in one act
CALENDAR = {"year": 4, "month": 7, "day": 10}  # characters of a value in ISO 8601
_MEANT = "=,[]"  # characters with a meaning in the name of a block
_INTEGERS = re.compile(r"-?[0-9]{1,18}\.\.-?[0-9]{1,18}")
_LARGE = 10**18
# together with the ten characters of "[analyst ]" as long as the name of a budget may be
_LONGEST_SET, _LONGEST_BEARER = 90, 100
_PERIOD = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")


def is_block(of: str, name: str) -> bool:
    """Says whether a name is that of a block of a set, and not of the quota of an analyst.

    Neither the name of a set nor that of an analyst has a "=" in it.
    """
    return name.startswith(f"{of}[") and "=" in name


def quota(of: str, analyst: str) -> str:
    """Returns the name of the budget that an analyst has beside the blocks of a set."""
    return f"{of}[analyst {analyst}]"


@dataclass(frozen=True, kw_only=True)
class BlockNames:
    """The names that a set of blocks gives.

    Attributes:
        name: the name of the set.
        by: the names of the dimensions.
    """

    name: str
    by: tuple[str, ...]

    @property
    def beginning(self) -> str:
        """The beginning of the names of its blocks."""
        return f"{self.name}["

    def quota_of(self, analyst: str) -> str:
        """The name of an analyst's quota."""
        return printable(analyst=quota(self.name, _analyst(analyst=analyst)))

    def block(self, values: Sequence[str]) -> str:
        """The name of the block of these values, one for each dimension."""
        pairs = (f"{name}={value}" for name, value in zip(self.by, values, strict=True))
        return printable(block=f"{self.beginning}{', '.join(pairs)}]")

    def has(self, name: str) -> bool:
        """Whether it is the set's own name, or one that its rule gives."""
        return name == self.name or name.startswith(self.beginning)

    def is_block(self, name: str) -> bool:
        """Whether a name is that of a block of this set, and not of a quota."""
        return is_block(self.name, name)

    def values(self, block: str) -> tuple[str, ...] | None:
        """The values of a block by its name, one for each dimension; None for a quota."""
        if not self.is_block(block):
            return None
        inside = block[len(self.beginning) : -1]
        return tuple(pair.partition("=")[2] for pair in inside.split(", "))

    def names_block(self, name: str) -> bool:
        """Whether a name is, word by word, that of a block that a range of this set may have."""
        values = self.values(name)
        if values is None or len(values) != len(self.by):
            return False
        try:
            chosen = self.values_in(dict(zip(self.by, values, strict=True)))
        except ParameterError:
            return False
        return self.combinations(chosen) == (name,)

    def names_quota(self, name: str) -> bool:
        """Whether a name is that of the quota that an analyst may have beside this set."""
        analyst = name.removeprefix(f"{self.beginning}analyst ").removesuffix("]")
        try:
            return name == self.quota_of(analyst)
        except ParameterError:
            return False

    def values_in(self, where: Mapping[str, Values]) -> dict[str, tuple[str, ...]]:
        """The values that a range has in each dimension; its blocks are all their combinations.

        Raises:
            ParameterError: a dimension is missing, unknown or refused; the range is too large.
        """
        for name in (*where, *self.by):
            if name not in self.by or name not in where:
                must = f"name a value, several or a range for each of {', '.join(self.by)}"
                raise refuse("where", must, sorted(where))
        chosen = {name: _chosen(name, where[name]) for name in self.by}
        number = math.prod(map(len, chosen.values()))
        if number > _MOST:
            raise refuse("where", f"have at most {_MOST} blocks", number)
        return chosen

    def combinations(self, chosen: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """The names of the blocks of a range, by the values that it has in each dimension."""
        return tuple(map(self.block, itertools.product(*(chosen[name] for name in self.by))))


def word(**given: Any) -> str:
    """A part of a block's name: printable text without the characters that the name uses.

    Raises:
        ParameterError: it is none.
    """
    ((what, value),) = given.items()
    text = printable(**given)
    if any(character in _MEANT for character in text) or ".." in text or text != text.strip():
        must = f"be without {' '.join(_MEANT)} .. and without a space at an end"
        raise refuse(what, must, value)
    return text


def bearer(**given: Any) -> str:
    """The bearer's name in a token, by which sets of blocks give a quota.

    Raises:
        ParameterError: some set could not name such a quota.
    """
    ((what, value),) = given.items()
    text = _analyst(**given)
    if len(text) > _LONGEST_BEARER:
        raise refuse(what, f"have at most {_LONGEST_BEARER} characters", value)
    return text


def _analyst(**given: Any) -> str:
    """The name of an analyst, which tells a quota from a block.

    Raises:
        ParameterError: it has a "=", as the names of blocks have.
    """
    ((what, value),) = given.items()
    text = printable(**given)
    if "=" in text:
        raise refuse(what, "be without =", value)
    return text


def set_with_quotas(**given: Any) -> str:
    """The name of a set of blocks that has quotas.

    Raises:
        ParameterError: with the name of a token's bearer behind it, it would be too long.
    """
    ((what, value),) = given.items()
    text = word(**given)
    if len(text) > _LONGEST_SET:
        must = f"have at most {_LONGEST_SET} characters, since the set has quotas"
        raise refuse(what, must, value)
    return text


def dimensions(by: Sequence[str]) -> tuple[str, ...]:
    """The names of the dimensions.

    Raises:
        ParameterError: there is none, one is there twice, or one is refused.
    """
    if not isinstance(by, (list, tuple)) or not by:
        raise refuse("by", 'be a list of dimensions, such as ["day", "region"]', by)
    names = tuple(word(**{f"by[{i}]": name}) for i, name in enumerate(by))
    if len(set(names)) != len(names):
        raise refuse("by", "name each dimension once", by)
    return names


# ------------------------------------------------------------------------ values of ranges


def _chosen(dimension: str, values: Values) -> tuple[str, ...]:
    """The values of a dimension that are meant, each once.

    Raises:
        ParameterError: there is none, or one is refused.
    """
    # a text is iterable, too, and so are bytes and mappings, which name nothing
    one = isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable)
    listed: Iterable[Any] = (values,) if one else values  # type: ignore[assignment]
    read = _dates if dimension in CALENDAR else _words
    named = itertools.chain.from_iterable(read(dimension, plain(value)) for value in listed)
    # no more are read than a range may have: a period of ten letters names 3,652,059 days
    found = list(itertools.islice(named, _MOST + 1))
    if not found:
        raise refuse(dimension, "name at least one value", values)
    if len(found) > _MOST:
        raise ParameterError(f"{dimension} must name at most {_MOST} values, got more")
    return tuple(sorted(set(found)))


def _words(dimension: str, value: Any) -> Iterator[str]:
    """The values that a text or an integer, or a range of integers, names."""
    if isinstance(value, str) and _INTEGERS.fullmatch(value):
        first, last = map(int, value.split(".."))
        if first > last:
            raise refuse(dimension, "have its first value before its last", value)
        yield from (str(number) for number in range(first, last + 1))
    elif isinstance(value, bool) or not isinstance(value, (str, int)):
        raise refuse(dimension, "be a text, an integer, a range such as 1..12, or several", value)
    elif isinstance(value, int) and abs(value) >= _LARGE:
        raise refuse(dimension, "be an integer of at most 18 digits", "a longer one")
    else:
        yield word(**{dimension: str(value)})


def _dates(dimension: str, value: Any) -> Iterator[str]:
    """The years, months or days within a period, or from one period to another.

    A period is a year, a month or a day (2026, 2026-01, 2026-01-31), no finer than the dimension.
    """
    if isinstance(value, int) and abs(value) >= _LARGE:
        raise refuse(dimension, "be in the calendar", "a larger number")
    text = value.isoformat()[:10] if isinstance(value, date) else str(value)
    first, separator, last = text.partition("..")
    length = CALENDAR[dimension]
    ends = [first, last] if separator else [first, first]
    if isinstance(value, bool) or any(
        not _PERIOD.fullmatch(end) or len(end) > length for end in ends
    ):
        must = f"be a {dimension} such as {'2026-01-31'[:length]}, or a longer period, or a..b"
        raise refuse(dimension, must, value)
    try:
        began, ended = period(ends[0])[0], period(ends[1])[1]
    except ValueError as error:
        raise refuse(dimension, "be in the calendar", value) from error
    if began > ended:
        raise refuse(dimension, "have its first period before its last", value)
    day = began
    while True:
        named = day.isoformat()[:length]
        yield named
        last_day = period(named)[1]
        if last_day >= ended:
            return
        day = last_day + timedelta(days=1)


def period(text: str) -> tuple[date, date]:
    """The first and the last day of a year, a month or a day in ISO 8601.

    Raises:
        ValueError: there is none in the calendar.
    """
    numbers = [int(part) for part in text.split("-")]
    begins = date(*(*numbers, 1, 1)[:3])
    if len(numbers) == 1:
        return begins, begins.replace(month=12, day=31)
    if len(numbers) == 2:
        return begins, begins.replace(day=calendar.monthrange(begins.year, begins.month)[1])
    return begins, begins
