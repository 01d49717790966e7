"""Transactions on a budget in memory: each takes effect in one assignment, in one process.

A transaction changes several variables at once: those of a hold, of its account, and of the
account around it. All new values are made first and put into one tuple; assigning this tuple is
the transaction. An exception before the assignment, at whatever line, leaves everything as it
was; an exception after it finds everything done. The next transaction then copies the new values
into their variables.

Threads take turns by a lock. A signal handler or a finalizer that runs a transaction in the midst
of another one runs in the thread that has the lock: the outer transaction then sees that it is no
longer the next one, and is decided again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic, NoReturn, Protocol, SupportsIndex, TypeVar

from tightbudget.errors import SettlementError

R = TypeVar("R")


class Lock(Protocol):
    """A lock that :func:`held` takes."""

    def acquire(self, blocking: bool = ...) -> bool:
        """Takes the lock."""

    def release(self) -> None:
        """Frees the lock."""


class Uncopied:
    """An object that :mod:`copy` and :mod:`pickle` refuse: two of it would be paid for once."""

    _instead: ClassVar[str] = (
        "a copy would spend the same budget once more; pass on the object itself, or use a ledger "
        "(tightbudget.Ledger), which several processes may charge"
    )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuses to be copied or pickled.

        Raises:
            SettlementError: always.
        """
        # guard: copy-refused
        raise SettlementError(f"{type(self).__name__} cannot be copied or pickled: {self._instead}")


@contextlib.contextmanager
def held(lock: Lock) -> Iterator[None]:
    """Holds a lock during a block, and frees it whatever is raised wherever.

    Since Python 3.14 an interrupt may come when ``with lock`` has taken the lock and its block has
    not begun: then nobody frees it.
    """
    taken: list[bool] = []
    try:
        # one call of C code: an interrupt finds the lock taken and noted, or neither
        taken.extend(map(lock.acquire, (True,)))
        yield
    finally:
        if taken:
            lock.release()


class Variable(Generic[R]):
    """One immutable value that transactions read and replace."""

    __slots__ = ("copy",)

    def __init__(self, value: R) -> None:
        # beside the value stands the number of the transaction that wrote it
        self.copy: tuple[int, R] = (0, value)


Write = tuple[Variable[Any], Any]  # a variable, and its new value


class Transactions:
    """Runs all transactions on a tree of accounts, one after the other.

    Guarantee: a transaction writes all of its variables or none, whatever exception is raised
    wherever; it was decided from the values that it replaces. Only the process that made this
    object runs any.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()
        # the last transaction: its number, and for each of its variables the new (number, value)
        self._last: tuple[int, tuple[tuple[Variable[Any], tuple[int, Any]], ...]] = (0, ())

    @property
    def forked(self) -> bool:
        """True in a process forked from the one that made this: it reads, and never writes."""
        return os.getpid() != self._process

    def read(self, variable: Variable[R]) -> R:
        """The value of a variable. Takes no lock: another thread may have it when a fork copies it.

        The last transaction is looked at first: variables of those before were brought up to date.
        """
        for changed, copy in self._last[1]:
            if changed is variable:
                value: R = copy[1]
                return value
        return variable.copy[1]

    def run(self, decide: Callable[[], Sequence[Write]]) -> None:
        """Runs one transaction.

        Args:
            decide: from the values that :meth:`read` gives to the writes. It may be called again,
                and changes nothing itself; what it raises is raised.

        Raises:
            SettlementError: this is another process than the one that made the budget.
        """
        if self.forked:  # guard: fork-never-acts
            raise SettlementError(
                "a budget in memory is charged by the process that made it, and this process was "
                "forked from that: use a ledger (tightbudget.Ledger), which several processes may "
                "charge"
            )
        with held(self._lock):
            while True:
                last = self._last
                for variable, copy in last[1]:
                    # nothing is called or made between the test and the assignment, here and
                    # below: no signal handler, no finalizer and no other thread comes between
                    if variable.copy[0] < copy[0]:  # guard: late-write-not-older
                        variable.copy = copy  # guard: interrupted-act-written-out
                number = last[0] + 1
                # guard: act-assignment
                next_ = number, tuple((changed, (number, value)) for changed, value in decide())
                if self._last is last:  # guard: last-act-unchanged
                    self._last = next_
                    return
