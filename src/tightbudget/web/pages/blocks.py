"""The heat map of a set of blocks: what is left of each, at its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tightbudget.ledger.block_set import Blocks
from tightbudget.promises.values import Statement

_MOST = 1_000  # blocks that a map is made of: a page of some 200 kB
_ACROSS, _DOWN = 60, 60  # columns and rows of a map, most fields of which may be empty
_SHADES = 10


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A block on the map.

    Attributes:
        name: the name of its budget.
        left: the amount that is left of its epsilon.
        shade: 0 where nothing is left, up to 10 where all is.
        closed: whether it was closed.
    """

    name: str
    left: float
    shade: int
    closed: bool


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """The blocks of a set that were touched, and how much each has left.

    Attributes:
        across: the name of the dimension of the columns.
        down: the names of the other dimensions, in words.
        columns: the values of the columns.
        rows: for each row its values in words, and the spot in each column, or None.
        shown: the number of blocks that are shown.
        is_cut: whether there may be more.
        has_cap: whether each run is charged to the set, too.
        person: the epsilon and delta of all that is released about one person.
        quotas: the budgets of analysts.
    """

    across: str
    down: str
    columns: list[str]
    rows: list[tuple[str, list[Spot | None]]]
    shown: int
    is_cut: bool
    has_cap: bool
    person: tuple[float, float]
    quotas: list[Statement]


def heat_map(blocks: Blocks, sees: Callable[[str], bool]) -> HeatMap:
    """Lays the last blocks of a set out: the first dimension across, the others down.

    Args:
        blocks: the set.
        sees: whether the caller sees a budget; of the quotas only these are shown.
    """
    across, others = blocks.by[0], blocks.by[1:]
    places: dict[str, dict[str, Spot]] = {}
    columns: set[str] = set()
    found, quotas = blocks.statements(last=_MOST), []
    for one in found:
        values = blocks.values(one.name)
        if values is None:
            quotas += [one] * sees(one.name)  # guard: quotas-of-others-hidden
            continue
        row = ", ".join(values[name] for name in others) or "all"
        places.setdefault(row, {})[values[across]] = _spot(one)
        columns.add(values[across])
    ordered = sorted(columns)[-_ACROSS:]
    rows = [(row, [spots.get(at) for at in ordered]) for row, spots in sorted(places.items())]
    rows = [(row, spots) for row, spots in rows if any(spots)][:_DOWN]
    shown = sum(spot is not None for _, spots in rows for spot in spots)
    return HeatMap(
        across=across,
        down=", ".join(others),
        columns=ordered,
        rows=rows,
        shown=shown,
        is_cut=len(found) == _MOST or shown < sum(map(len, places.values())),
        has_cap=blocks.has_cap,
        person=(blocks.person.amount, blocks.person.delta),
        quotas=quotas,
    )


def _spot(one: Statement) -> Spot:
    """Rounds the share that is left to a shade, down: what is left shows as no more than it is."""
    share = one.left.amount / one.cap.amount if one.cap.amount else 0.0
    shade = int(share * _SHADES)
    return Spot(name=one.name, left=one.left.amount, shade=shade, closed=one.closed)
