"""Verifies a served ledger in the background: one verification at a time, with its progress."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tightbudget.errors import LedgerError, TightBudgetError
from tightbudget.ledger.ledger import Ledger
from tightbudget.ledger.verification import Verification


@dataclass
class VerificationJob:
    """A verification and its progress.

    Attributes:
        id: names the verification in later requests.
        checked: the number of pages of events that were read.
        of: the number of pages of events; None until it is known.
        result: the verified counts, or the error that was found; None while the job runs.
    """

    id: str
    checked: int = 0
    of: int | None = None
    result: Verification | TightBudgetError | None = None

    @property
    def state(self) -> str:
        """The state as a word: running, verified or failed."""
        if self.result is None:
            return "running"
        return "verified" if isinstance(self.result, Verification) else "failed"


class Verifications:
    """The verification that runs now, or ran last."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._job: VerificationJob | None = None

    def begin(self) -> VerificationJob:
        """Begins a verification, unless one runs already, and returns the running one."""
        with self._lock:
            if self._job is None or self._job.result is not None:
                job = VerificationJob(str(next(self._numbers)))
                threading.Thread(target=self._run, args=[job], daemon=True).start()
                self._job = job
            return self._job

    def find(self, id: str) -> VerificationJob | None:
        """Returns the verification of this id; None if it is not the last one."""
        job = self._job
        return job if job is not None and job.id == id else None

    def _run(self, job: VerificationJob) -> None:
        def counted(pages: Iterable[int]) -> Iterator[int]:
            pages = list(pages)
            job.of = len(pages)
            for page in pages:
                yield page
                job.checked += 1

        try:
            job.result = self._ledger.verify(counted)
        except TightBudgetError as error:
            job.result = error
        except BaseException as error:  # whoever asks must not be told for ever that it runs
            job.result = LedgerError(f"the verification came to no end: {error!r:.200}")
            raise
