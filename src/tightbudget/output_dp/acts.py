"""Acts on a budget in memory: each happens in one assignment, and in one process.

An act changes several records at once: a hold's, its account's, that of the account around it.
All new records are made first and put into one tuple; assigning this tuple is the act. An
exception before the assignment, at whatever line, leaves everything as it was; one after it finds
everything done. Each record's own copy is brought up to date by the next act.

Threads take turns by a lock. A signal handler or a finalizer that acts in the midst of another
act runs in the thread that has the lock: the outer act then sees that it is no longer the next
one, and is decided again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, NoReturn, SupportsIndex, TypeVar

from tightbudget.errors import SettlementError

__all__ = ["Acts", "Change", "Record", "Uncopied"]

R = TypeVar("R")


class Uncopied:
    """An object that :mod:`copy` and :mod:`pickle` refuse: two of it would be paid for once."""

    _instead: ClassVar[str] = (
        "a copy would spend the same budget once more; pass on the object itself, or use a ledger "
        "(tightbudget.Ledger), which several processes may charge"
    )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuses.

        Raises:
            SettlementError: always.
        """
        raise SettlementError(f"{type(self).__name__} cannot be copied or pickled: {self._instead}")


class Record(Generic[R]):
    """One immutable value, read and replaced through :class:`Acts`."""

    __slots__ = ("copy",)

    def __init__(self, value: R) -> None:
        self.copy: tuple[int, R] = (0, value)  # with the number of the act that it is from


Change = tuple[Record[Any], Any]  # a record, and its new value


class Acts:
    """All acts on a tree of accounts, one after the other.

    Guarantee: an act changes all of its records or none, whatever exception is raised wherever;
    it was decided from the records that it replaces. Only the process that made this acts.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()
        # its number, and for each record its new (number, value)
        self._last: tuple[int, tuple[tuple[Record[Any], tuple[int, Any]], ...]] = (0, ())

    @property
    def forked(self) -> bool:
        """Whether this is a copy that a fork has made: it shows how things were, and never acts."""
        return os.getpid() != self._process

    def read(self, record: Record[R]) -> R:
        """The value of a record. Takes no lock: another thread may have it when a fork copies it.

        The last act is looked at first: records of those before were brought up to date.
        """
        for changed, copy in self._last[1]:
            if changed is record:
                value: R = copy[1]
                return value
        return record.copy[1]

    def do(self, decide: Callable[[], Sequence[Change]]) -> None:
        """One act.

        Args:
            decide: from the records, as :meth:`read` gives them, to their new values. It may be
                called again, and changes nothing itself; what it raises is raised.

        Raises:
            SettlementError: this is another process than the one that made the budget.
        """
        if self.forked:
            raise SettlementError(
                "a budget in memory is charged by the process that made it, and this process was "
                "forked from that: use a ledger (tightbudget.Ledger), which several processes may "
                "charge"
            )
        with self._lock:
            while True:
                last = self._last
                for record, copy in last[1]:
                    # nothing is called or made between the test and the assignment, here and
                    # below: no signal handler, no finalizer and no other thread comes between
                    if record.copy[0] < copy[0]:
                        record.copy = copy
                number = last[0] + 1
                act = number, tuple((record, (number, value)) for record, value in decide())
                if self._last is last:
                    self._last = act
                    return
