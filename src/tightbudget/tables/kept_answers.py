"""Answers that a session keeps in a file, so that a program that is started again has them.

An answer is written before its run is settled, with the token of the run: whoever finds it there
settles the run, if its process has died, and has the answer. While it is not settled, the ledger
holds the worst-case price of the run, so that no number in the file is unpaid.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from os import PathLike, fspath
from typing import Any

import numpy as np

from tightbudget.durable_lines import DurableLines
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.guarantee import Cell, cell_from_lists

_HEAD = b"tightbudget: answers of a session, format 1\n"


@dataclass(frozen=True, kw_only=True)
class KeptAnswer:
    """An answer as the file has it.

    Attributes:
        key: the key of the run in its ledger.
        identity: a hash of the question and of what its table declares.
        token: of the run's start, which settles it.
        cell: the output cell.
        held: the amount that was held before the run.
        value: the answer.
        noisy_rows: as in :class:`TableAnswer`.
    """

    key: str
    identity: str
    token: str
    cell: Cell
    held: Amount
    value: Any
    noisy_rows: tuple[float, ...] | None


class KeptAnswers:
    """The answers in a file, which no other process of this machine reads or writes meanwhile."""

    def __init__(self, lines: DurableLines) -> None:
        self._lines = lines
        self._known = {one.key: one for one in map(_read, lines.found)}

    def get(self, key: str) -> KeptAnswer | None:
        """Returns the answer of the run of this key, or None."""
        return self._known.get(key)

    def keep(self, answer: KeptAnswer) -> None:
        """Makes an answer durable; one that cannot be written as JSON is left out.

        Raises:
            FileError: the file cannot be written.
        """
        try:
            value = _plain(answer.value)
        except TypeError:
            return
        content = {
            "key": answer.key,
            "identity": answer.identity,
            "token": answer.token,
            "cell": answer.cell,
            "held": answer.held.to_dict(),
            "value": value,
            "noisy_rows": answer.noisy_rows,
        }
        self._lines.keep(json.dumps(content).encode("ascii"))
        self._known[answer.key] = answer


@contextlib.contextmanager
def opened(path: str | PathLike[str]) -> Iterator[KeptAnswers]:
    """Opens a file of answers, or begins one; waits for another process that has it open.

    Raises:
        FileError: it cannot be read or written, or is a file of another kind.
    """
    lines = DurableLines(fspath(path), _HEAD, "a file of answers of a session", alone=True)
    try:
        yield KeptAnswers(lines)
    finally:
        lines.close()


def _read(line: bytes) -> KeptAnswer:
    content = json.loads(line)
    rows = content["noisy_rows"]
    return KeptAnswer(
        key=content["key"],
        identity=content["identity"],
        token=content["token"],
        cell=cell_from_lists(content["cell"]),
        held=Amount.from_dict(content["held"]),
        value=_value(content["value"]),
        noisy_rows=None if rows is None else tuple(rows),
    )


def _plain(value: Any) -> Any:
    """Writes a value as JSON that :func:`_value` reads: what JSON has not is a list with a name.

    Raises:
        TypeError: it has a part of another type.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, np.ndarray):
        return ["array", value.dtype.str, _plain(value.tolist())]
    if isinstance(value, Mapping):
        return ["dict", [[_plain(key), _plain(part)] for key, part in value.items()]]
    if type(value) in (tuple, list):
        return [type(value).__name__, [_plain(part) for part in value]]
    if type(value) in _WRITTEN:
        name, write, _ = _WRITTEN[type(value)]
        return [name, write(value)]
    raise TypeError(type(value).__name__)


_WRITTEN: Mapping[type, tuple[str, Any, Any]] = {
    datetime.datetime: ("datetime", datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
    Fraction: ("fraction", str, Fraction),
    Decimal: ("decimal", str, Decimal),
    bytes: ("bytes", bytes.hex, bytes.fromhex),
}
_READ = {name: read for name, _, read in _WRITTEN.values()}


def _value(content: Any) -> Any:
    """Reads what :func:`_plain` wrote."""
    if not isinstance(content, list):
        return content
    name, *parts = content
    if name == "array":
        return np.array(_value(parts[1]), dtype=parts[0])
    if name == "dict":
        return {_value(key): _value(part) for key, part in parts[0]}
    if name in ("tuple", "list"):
        found = [_value(part) for part in parts[0]]
        return tuple(found) if name == "tuple" else found
    return _READ[name](parts[0])
