"""Tells code that looks at data whether it runs in a rehearsal: then errors are raised, not hidden.

In a paid run a failure is as private as an answer, so a query that raises has answered a public
fallback. A rehearsal runs on data that are public or made up: there the true error is of use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# a paid run sees False whatever runs around it: it sets the value itself
_IN_REHEARSAL: ContextVar[bool] = ContextVar("in_rehearsal", default=False)


def in_rehearsal() -> bool:
    """True if the code that is running belongs to a rehearsal, and not to a paid run."""
    return _IN_REHEARSAL.get()


@contextmanager
def rehearsal(running: bool = True) -> Iterator[None]:
    """Marks what runs in a ``with`` block as a rehearsal, or with False as a paid run."""
    before = _IN_REHEARSAL.set(running)
    try:
        yield
    finally:
        _IN_REHEARSAL.reset(before)
