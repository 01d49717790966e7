"""Several queries as one statement, so that all of them see the same rows.

Each scan asks its source for one answer after another, and knows nothing of the others. So scans
are called again and again: a query that has no answer yet ends the call, and when each scan has
come to such a query, all of them are sent as one statement. A scan that is called again asks the
same queries, since it is made of public parameters and the same key of the hash.

The parts of the statement have the table in common. Whether its rows are read once, or again for
each part, is the engine's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tightbudget.tables.columns import OWN
from tightbudget.tables.rules.expressions import import_ibis

# The columns of an answer.
Columns = dict[str, list[Any]]


class _UnansweredError(Exception):
    """A query has no answer yet, and ends the call of its scan."""


@dataclass
class OneStatement:
    """Collects the queries of several scans, and asks for all of them in one statement.

    Attributes:
        answers: of each scan, the answers to its queries so far.
        asked: the query that a scan waits for; None where it waits for none.
    """

    answers: list[list[Columns]] = field(default_factory=list)
    asked: Any = None
    _scan: int | None = None
    _place: int = 0

    def run(
        self, scans: Sequence[Callable[[], Any]], execute: Callable[[Any], Columns]
    ) -> list[Any]:
        """Returns what each of the scans returns.

        Args:
            scans: each asks sources that have this object for :meth:`answer`.
            execute: from a query to its columns.
        """
        self.answers = [[] for _ in scans]
        found, waiting = dict[int, Any](), dict(enumerate(scans))
        while waiting:
            queries = dict[int, Any]()
            for i, scan in waiting.items():
                self._scan, self._place = i, 0
                try:
                    found[i] = scan()
                except _UnansweredError:
                    queries[i] = self.asked
                finally:
                    self._scan = None
            waiting = {i: scan for i, scan in waiting.items() if i in queries}
            if queries:
                parts = execute(_united(list(queries.values())))
                for i, columns in zip(queries, _apart(parts, list(queries.values())), strict=True):
                    self.answers[i].append(columns)
        return [found[i] for i in range(len(scans))]

    @property
    def collects(self) -> bool:
        """Says whether a scan of this object is running."""
        return self._scan is not None

    def answer(self, query: Any) -> Columns:
        """Returns the answer to the next query of the scan that is running, if it is there.

        Raises:
            _UnansweredError: it is not there yet.
        """
        assert self._scan is not None
        known, place = self.answers[self._scan], self._place
        self._place += 1
        if place < len(known):
            return known[place]
        self.asked = query
        raise _UnansweredError


def _name(query: int, column: int) -> str:
    return f"{OWN}{query}_{column}"


def _united(queries: Sequence[Any]) -> Any:
    """Returns the rows of all queries, each in columns of its own, with the number of its query."""
    if len(queries) == 1:
        return queries[0]
    ibis, schemas = import_ibis(), [query.schema() for query in queries]
    parts = []
    for n, query in enumerate(queries):
        columns: dict[str, Any] = {f"{OWN}query": ibis.literal(n, "int64")}
        for m, schema in enumerate(schemas):
            for j, (name, kind) in enumerate(schema.items()):
                kind = kind.copy(nullable=True)
                columns[_name(m, j)] = query[name].cast(kind) if m == n else ibis.null(kind)
        parts.append(query.select(**columns))
    return ibis.union(*parts)


def _apart(columns: Columns, queries: Sequence[Any]) -> list[Columns]:
    """Returns the columns of each query from those of :func:`_united`."""
    if len(queries) == 1:
        return [columns]
    numbers = columns[f"{OWN}query"]
    found = []
    for n, query in enumerate(queries):
        rows = [i for i, number in enumerate(numbers) if number == n]
        names = list(query.schema())
        found.append(
            {name: [columns[_name(n, j)][i] for i in rows] for j, name in enumerate(names)}
        )
    return found
