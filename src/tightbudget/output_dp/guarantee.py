"""Output differential privacy: a price for each cell of outputs, and one delta for all.

Source: Hartmann, Bindschaedler, Bentkamp, West 2022; lemmas and theorems are theirs.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from tightbudget import notebook
from tightbudget.errors import FileError, ParameterError
from tightbudget.numerics.validate import positive_count, refuse
from tightbudget.output_dp.amount import Price, exact, exact_probability, printed_up

# A text, an integer, or a tuple of cells.
Cell = str | int | tuple[Any, ...]

_VERSION = 1


@dataclass(frozen=True, init=False, eq=False)
class OutputDP:
    """A mechanism whose outputs fall into cells, each with a price of its own.

    Guarantee (the caller's): for all neighbouring x, x' and all sets S of outputs,
    Pr(M(x) in S) <= delta + sum over cells P of e^price(P) Pr(M(x') in S and P). The cells
    are a countable partition of all outputs.

    Prices and delta may be float, int, Fraction, Decimal, or certified :class:`Bounds`, of
    which the upper bound is charged. They are kept as exact fractions: a plain float means the
    decimal that it prints as (0.1 is 1/10), the bound of a ``Bounds`` its binary value.

    Frozen; compared and hashed by content, whatever the order of the cells.
    Source: Hartmann et al. 2022, Definition 2.

    Args:
        cells: from each cell (a text, an integer, or a tuple of these) to its price: the
            epsilon of the outputs in it, nats.
        delta: in [0, 1], one for the whole mechanism.
        sup: the price of every cell that is not listed, at least every price listed. If absent,
            the largest price listed. A partition into infinitely many cells needs it.
        rho: a rho for which the whole mechanism is rho-zCDP: between all neighbours, its Renyi
            divergence of each order > 1 is at most rho times the order. None if none is known.
            Budgets that count rho, or a Renyi divergence, charge it.

    Raises:
        ParameterError: a cell, a price, delta, sup or rho is refused.
    """

    cells: Mapping[Cell, Fraction]
    delta: Fraction
    sup: Fraction
    rho: Fraction | None

    def __init__(
        self,
        cells: Mapping[Any, Price],
        delta: Price = 0,
        *,
        sup: Price | None = None,
        rho: Price | None = None,
    ) -> None:
        _mapping(cells=cells)
        prices: Mapping[Cell, Fraction]
        if isinstance(cells, _Rising):
            prices, highest = cells, cells[cells.steps]
        else:
            listed = {cell_name(c): exact(**{f"cells[{c!r}]": price}) for c, price in cells.items()}
            prices, highest = MappingProxyType(listed), max(listed.values(), default=Fraction(0))
        if not prices and sup is None:
            raise refuse("cells", "name at least one cell, unless sup is given", cells)
        declared = highest if sup is None else exact(sup=sup)
        if declared < highest:
            raise refuse("sup", f"be at least every price, also {highest}", sup)
        object.__setattr__(self, "cells", prices)
        object.__setattr__(self, "delta", exact_probability(delta=delta))
        object.__setattr__(self, "sup", declared)
        object.__setattr__(self, "rho", None if rho is None else exact(rho=rho))

    # ------------------------------------------------------------------ constructors

    @staticmethod
    def from_dp(epsilon: Price, delta: Price = 0, cells: Iterable[Cell] = ()) -> OutputDP:
        """Makes the guarantee of an (epsilon, delta)-DP mechanism: each cell costs epsilon.

        Source: Hartmann et al. 2022, Lemma 3.
        """
        price = exact(epsilon=epsilon)
        return OutputDP(dict.fromkeys(_listed(cells=cells), price), delta, sup=price)

    # Proof: proofs/guarantees.v, theorem subset_dp
    @staticmethod
    def from_subset_dp(cells: Mapping[Any, tuple[Price, Price]]) -> OutputDP:
        """Makes the guarantee of a mechanism with an epsilon and a delta for each cell.

        The deltas *add up*, over all cells: the delta of the cell that comes out is not enough
        (composition would be false). The cells must be all there are.

        Guarantee: if Pr(M(x) in S) <= e^eps Pr(M(x') in S) + delta for each cell's own eps
        and delta and all S inside it, then the mechanism has the guarantee returned.
        Source: Hartmann et al. 2022, Lemma 6.
        """
        for c, parameters in _mapping(cells=cells).items():
            if not isinstance(parameters, tuple) or len(parameters) != 2:
                raise refuse(f"cells[{c!r}]", "be a pair (epsilon, delta)", parameters)
        deltas = [exact_probability(**{f"delta of {c!r}": d}) for c, (_, d) in cells.items()]
        return OutputDP({c: eps for c, (eps, _) in cells.items()}, _at_most_one(sum(deltas)))

    @staticmethod
    def rising(first: Price, rise: Price, steps: int, delta: Price = 0) -> OutputDP:
        """Makes the cells k = 0, ..., steps at the exact prices first + (k / steps) rise.

        The sparse vector technique has such a guarantee: k is the number of answers that it has
        found, of at most ``steps``.
        """
        n = positive_count(steps=steps)
        low, whole = exact(first=first), exact(rise=rise)
        return OutputDP(_Rising(low, whole, n), delta)

    @staticmethod
    def family(
        price: Callable[[int], Price], size: int, delta: Price = 0, *, sup: Price | None = None
    ) -> OutputDP:
        """Makes the cells k = 0, ..., size - 1 at the prices price(k).

        A countably infinite family needs a declared ``sup``, since no program can look at
        all its prices: its first ``size`` cells are listed, and every later one costs sup.
        """
        listed = range(positive_count(size=size))
        return OutputDP({k: price(k) for k in listed}, delta, sup=sup)

    # ----------------------------------------------------------------------- answers

    # Proof: proofs/guarantees.v, theorem worst_case
    def worst_case(self) -> tuple[Fraction, Fraction]:
        """Returns epsilon and delta of the whole mechanism: the largest price of a cell, and delta.

        Source: Hartmann et al. 2022, Lemma 4.
        """
        return self.sup, self.delta

    def cheapest(self) -> Fraction:
        """Returns the lowest price of a cell that is listed; ``sup`` where none is."""
        if isinstance(self.cells, _Rising):
            return self.cells.first
        return min(self.cells.values(), default=self.sup)

    def price(self, cell: Cell) -> Fraction:
        """Returns the price of an output in ``cell``: ``sup`` if the cell is not listed."""
        return self.cells.get(cell_name(cell), self.sup)  # guard: undeclared-costs-sup

    # --------------------------------------------------------------------- new from old

    # Proof: proofs/guarantees.v, theorem joined
    @staticmethod
    def product(*guarantees: OutputDP) -> OutputDP:
        """Joins independent mechanisms: cells are tuples, prices and deltas add up."""
        for i, g in enumerate(guarantees):
            if not isinstance(g, OutputDP):
                raise refuse(f"guarantees[{i}]", "be an OutputDP", g)
        cells = {
            tuple(c for c, _ in parts): sum((price for _, price in parts), Fraction(0))
            for parts in itertools.product(*(g.cells.items() for g in guarantees))
        }
        delta = _at_most_one(sum(g.delta for g in guarantees))
        rhos = [g.rho for g in guarantees if g.rho is not None]
        rho = sum(rhos) if rhos and len(rhos) == len(guarantees) else None
        return OutputDP(cells, delta, sup=sum((g.sup for g in guarantees), Fraction(0)), rho=rho)

    # Proof: proofs/guarantees.v, theorem coarsened
    def coarsened(self, groups: Mapping[Any, Iterable[Cell]]) -> OutputDP:
        """Joins some cells: each new cell has the largest price of its parts.

        ``groups`` maps each new cell to the old ones in it; the others stay.
        """
        left, joined = dict(self.cells), {}
        for new, parts in _mapping(groups=groups).items():
            taken = [_taken(left, part) for part in _listed(**{f"groups[{new!r}]": parts})]
            if not taken:
                raise refuse(f"groups[{new!r}]", "name at least one cell", parts)
            joined[new] = max(taken)
        return self._with(left, joined)

    def refined(self, parts: Mapping[Any, Iterable[Cell]]) -> OutputDP:
        """Splits some cells: each part has the price of the cell that it was in.

        ``parts`` maps old cells to the new ones that they are split into; the others stay.
        """
        left, split = dict(self.cells), {}
        for old, names in _mapping(parts=parts).items():
            price = _taken(left, old)
            for name in _listed(**{f"parts[{old!r}]": names}):
                if name in split:
                    raise refuse(f"parts[{old!r}]", "share no cell with the others", name)
                split[name] = price
        return self._with(left, split)

    def _with(self, left: dict[Cell, Fraction], new: dict[Cell, Fraction]) -> OutputDP:
        """Makes a guarantee of these cells, with the delta, the sup and the rho of this one."""
        for cell in new:
            if cell in left:
                raise refuse("cell", "be new (there is another one of this name)", cell)
        return OutputDP(left | new, self.delta, sup=self.sup, rho=self.rho)

    # --------------------------------------------------------------- plain values and text

    def to_dict(self) -> dict[str, Any]:
        """Writes the guarantee as plain JSON values with a version; :meth:`from_dict` reads them.

        Prices and delta are texts of exact fractions. A cell that is a tuple becomes a list. The
        key "rho" is there only if a rho is known.
        """
        body = {
            "cells": [[_lists(cell), str(price)] for cell, price in self.cells.items()],
            "delta": str(self.delta),
            "sup": str(self.sup),
        }
        if self.rho is not None:
            body["rho"] = str(self.rho)
        return {"tightbudget": _VERSION, "output_dp": body}

    @staticmethod
    def from_dict(content: Any) -> OutputDP:
        """Reads a guarantee that :meth:`to_dict` or a person has written.

        A price may be a number or the text of a fraction. A float means the decimal that it
        prints as, a Decimal means itself.

        Raises:
            FileError: ``content`` has another version, or is not a guarantee.
            ParameterError: a cell, a price, delta, sup or rho is refused.
        """
        if not isinstance(content, dict) or content.get("tightbudget") != _VERSION:
            raise FileError(
                f'no guarantee: expected {{"tightbudget": {_VERSION}, "output_dp": ...}}'
            )
        body = content.get("output_dp")
        if not isinstance(body, dict) or {*body} - {"rho"} != {"cells", "delta", "sup"}:
            raise FileError(
                f"output_dp must have cells, delta and sup, and no more but rho, got {body!r}"
            )
        if not isinstance(body["cells"], list):
            raise FileError(f"cells must be a list of pairs, got {body['cells']!r}")
        cells: dict[Cell, Any] = {}
        for i, entry in enumerate(body["cells"]):
            if not isinstance(entry, list) or len(entry) != 2:
                raise FileError(f"cells[{i}] must be a pair of a cell and a price, got {entry!r}")
            cell = cell_from_lists(entry[0])
            if cell in cells:
                raise FileError(f"cells[{i}] must be new, got {cell!r} again")
            cells[cell] = _number(entry[1])
        prices = {name: _number(body[name]) for name in ("delta", "sup", "rho") if name in body}
        if "rho" in prices:
            exact(rho=prices["rho"])  # null is no rho
        return OutputDP(cells, **prices)

    def to_json(self) -> str:
        """Writes the guarantee as a JSON text; :meth:`from_json` reads it."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> OutputDP:
        """Reads a guarantee from a JSON text, in which decimals mean themselves.

        Raises:
            FileError: ``text`` is not JSON, has another version, or is not a guarantee.
            ParameterError: a cell, a price, delta or sup is refused.
        """
        try:
            content = json.loads(text, parse_float=Decimal)
        except (TypeError, ValueError, RecursionError) as error:
            raise FileError(f"not JSON: {error}") from error
        return OutputDP.from_dict(content)

    # ------------------------------------------------------------------- value semantics

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputDP) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        """Returns the values that guarantees are compared by: cells in any order, and numbers."""
        return frozenset(self.cells.items()), self.delta, self.sup, self.rho

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (dict(self.cells), self.delta, self.sup, self.rho)

    def __repr__(self) -> str:
        first = itertools.islice(self.cells.items(), notebook.MOST_ROWS)
        cells = [f"{c!r}: {price}" for c, price in first]
        if len(self.cells) > len(cells):
            cells.append(f"... {len(self.cells)} cells in all")
        rho = "" if self.rho is None else f", rho={self.rho}"
        return f"OutputDP({{{', '.join(cells)}}}, delta={self.delta}, sup={self.sup}{rho})"

    def _repr_html_(self) -> str:
        """Writes a table of the first cells with their prices, rounded up, for a notebook."""
        most = printed_up(self.sup)
        rows = [
            (repr(cell), repr(printed_up(price)), notebook.scale(printed_up(price), most))
            for cell, price in itertools.islice(self.cells.items(), notebook.MOST_ROWS)
        ]
        more = len(self.cells) - len(rows)
        rest = f"every other cell costs {most!r}; " if not more else f"{more:,} more cells; "
        note = notebook.muted(f"{rest}delta {printed_up(self.delta)!r} for all")
        head = ("output cell", "epsilon", "")
        return notebook.shown(notebook.table(rows, head=head), note)


@dataclass(frozen=True)
class _Rising(Mapping[Cell, Fraction]):
    """A mapping from k = 0, ..., steps to the price first + (k / steps) rise, made when read."""

    first: Fraction
    rise: Fraction
    steps: int

    def __getitem__(self, cell: Cell) -> Fraction:
        if not isinstance(cell, (int, np.integer)) or not 0 <= cell <= self.steps:
            raise KeyError(cell)
        return self.first + Fraction(operator.index(cell), self.steps) * self.rise

    def __iter__(self) -> Iterator[Cell]:
        return iter(range(self.steps + 1))

    def __len__(self) -> int:
        return self.steps + 1


def cell_name(cell: object) -> Cell:
    """Returns a cell in plain Python types: a text, an integer (not a bool) or a tuple of these.

    Raises:
        ParameterError: ``cell`` is none of them, or has tuples in tuples too deep to compare.
    """
    try:
        name = _plain_cell(cell)
        hash(name)
    except RecursionError:
        raise ParameterError("cell must not have hundreds of tuples inside each other") from None
    return name


def _plain_cell(cell: object) -> Cell:
    """Converts a cell to plain Python types, part by part."""
    if isinstance(cell, tuple):
        return tuple(_plain_cell(part) for part in cell)
    if isinstance(cell, (int, np.integer)) and not isinstance(cell, bool):
        return int(cell)
    if not isinstance(cell, str):
        raise refuse("cell", "be a text, an integer, or a tuple of these", cell)
    return str(cell)


def cell_from_lists(value: Any) -> Cell:
    """Returns the cell that a decoded JSON value stands for: a list stands for a tuple.

    Raises:
        ParameterError: ``value`` stands for no cell.
    """
    try:
        tuples = _tuples(value)
    except RecursionError:
        raise ParameterError("cell must not have hundreds of lists inside each other") from None
    return cell_name(tuples)


def cell_from_json(text: str) -> Cell:
    """Returns the cell that a JSON text stands for: a list stands for a tuple.

    Raises:
        ValueError: ``text`` is not JSON, or stands for no cell (then it is a ParameterError).
    """
    return cell_from_lists(json.loads(text))


def _mapping(**given: Any) -> Mapping[Any, Any]:
    """Returns the value given by name; refuses one that is no mapping."""
    ((name, value),) = given.items()
    if not isinstance(value, Mapping):
        raise refuse(name, "be a mapping with cells as its keys", value)
    return value


def _listed(**given: Any) -> list[Cell]:
    """Returns the cells given by name; refuses what is no list or other iterable."""
    ((name, value),) = given.items()
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise refuse(name, "be a list of cells", value)
    return [cell_name(cell) for cell in value]


def _taken(left: dict[Cell, Fraction], cell: Cell) -> Fraction:
    """Removes a cell from ``left``, and returns its price."""
    if cell_name(cell) not in left:
        raise refuse("cell", f"be one of {list(left)}, each at most once", cell)
    return left.pop(cell)


def _at_most_one(delta: Fraction | int) -> Fraction:
    """Returns the lesser of delta and 1: every mechanism is (epsilon, 1)-DP."""
    return min(Fraction(delta), Fraction(1))


def _tuples(value: Any) -> Any:
    """Puts a tuple in the place of each list of a value."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _lists(cell: Cell) -> Any:
    """Puts a list in the place of each tuple of a cell: JSON has no tuples."""
    return list(map(_lists, cell)) if isinstance(cell, tuple) else cell


def _number(value: Any) -> Any:
    """Reads the fraction that a text of digits writes; returns any other value as it is."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,4000}(/[1-9]\d{0,3999})?", value, re.ASCII):
        return Fraction(value)
    return value


def _restored(
    cells: dict[Cell, Fraction], delta: Fraction, sup: Fraction, rho: Fraction | None = None
) -> OutputDP:
    """Makes a guarantee of its parts by position, as pickle asks for; OutputDP takes names.

    Pickles that were made before guarantees had a rho have no such part.
    """
    return OutputDP(cells, delta, sup=sup, rho=rho)
