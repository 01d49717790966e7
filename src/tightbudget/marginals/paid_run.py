"""A run of marginals that is paid for: new, taken over after a crash, or over."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from tightbudget.errors import FileError, ReleaseError
from tightbudget.marginals.domains import Domain
from tightbudget.marginals.kept_marginals import KeptMarginals, opened
from tightbudget.marginals.marginal_run import MarginalRun, NoisyMarginal
from tightbudget.marginals.measurements import Measurements
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.release.meter import Meter
from tightbudget.release.noise.noise import Noise
from tightbudget.release.release import Receipt
from tightbudget.workflows.prices import PricedWorkflow

DIED_CHOOSING = "an earlier process ended while it selected a marginal"
DIED_MEASURING = "an earlier process ended while it measured marginals"


@dataclass(frozen=True)
class Private:
    """The private rows of a run, and who pays for it; each field as :class:`MarginalRun` has it."""

    rows: Any
    domains: Mapping[str, Any]
    meter: Meter
    unit: str | None
    rows_per_unit: int | None
    relation: Neighbouring
    noise: Noise | None


@dataclass(frozen=True)
class PaidRun:
    """A run of a plan, which is open, or over.

    Attributes:
        rho: zCDP's scale of all noise.
        priced: the plan with its prices.
        kept: the file of its marginals, if there is one.
        run: the open run; None if the run is over.
        over: the receipt of a run that is over.
    """

    rho: float
    priced: PricedWorkflow
    kept: KeptMarginals | None
    run: MarginalRun | None
    over: Receipt | None = None

    @property
    def before(self) -> list[NoisyMarginal]:
        """The marginals that earlier processes have kept."""
        return [] if self.kept is None else [*self.kept.marginals]

    @property
    def ended(self) -> str | None:
        """The reason why an earlier process has ended the run early; None if none has."""
        return None if self.kept is None else self.kept.ended

    @property
    def receipt(self) -> Receipt:
        """The receipt of a run that is over, also of one that was open."""
        if self.run is not None:
            return self.run.receipt
        assert self.over is not None, "a run that is not open is over"
        return self.over

    def keep(self, measured: list[NoisyMarginal]) -> None:
        """Makes those of all marginals durable that are not yet.

        Raises:
            FileError: the file cannot be written.
        """
        if self.kept is not None:
            self.kept.keep(measured[len(self.kept.marginals) :])

    def end(self, ended: str | None) -> None:
        """Writes down why the run ends early, if it does, and where that can be written."""
        if self.kept is not None and ended is not None and self.kept.ended is None:
            with contextlib.suppress(FileError):
                self.kept.end(ended)

    def check(self, measured: list[NoisyMarginal]) -> None:
        """Says that nothing was measured.

        Raises:
            ReleaseError: that is so.
        """
        if not measured:
            raise ReleaseError(
                "the process that began the run died before it had kept a marginal; the run is "
                f"charged {self.receipt.charged}"
            )


@contextlib.contextmanager
def paid_run(
    private: Private,
    plan: Callable[[float], Measurements],
    prices: Callable[[], tuple[float, PricedWorkflow]],
    *,
    asked: Mapping[str, Any],
    known: Mapping[str, Domain],
    keep: str | PathLike[str] | None,
    interactive: bool,
) -> Iterator[PaidRun]:
    """Opens a run, and settles it at the end of the block.

    Args:
        private: the rows, and who pays.
        plan: from rho to the plan.
        prices: finds rho, and the plan with its prices, for a new run.
        asked: what the run is of, as plain JSON values by the names of arguments.
        known: the domains.
        keep: the file of its marginals; None if the run ends with this process.
        interactive: whether anybody sees its answers before it ends, without a file.

    Raises:
        ParameterError: an argument is refused, or the file is that of another run.
        BudgetError: the price does not fit; the rows were not touched.
        FileError: the file cannot be read or written.
        FencingError: the file is not of the run that the ledger has under this key.
    """
    with contextlib.ExitStack() as stack:
        kept: KeptMarginals | None = None
        if keep is not None:
            of_rows = {
                "domains": [[name, repr(domain)] for name, domain in known.items()],
                "unit": private.unit,
                "rows_per_unit": private.rows_per_unit,
                "relation": private.relation.value,
            }
            kept = stack.enter_context(opened(keep, {**of_rows, **asked}))
        if kept is None or kept.rho is None:
            rho, priced = prices()
        else:
            rho = kept.rho
            priced = kept.priced(plan(rho).workflow)
            if (over := kept.receipt(private.meter)) is not None:
                yield PaidRun(rho, priced, kept, None, over)
                return
        run = MarginalRun(
            priced,
            private.rows,
            private.domains,
            meter=private.meter,
            unit=private.unit,
            rows_per_unit=private.rows_per_unit,
            relation=private.relation,
            noise=private.noise,
            # who has the file may see the answers
            interactive=interactive or kept is not None,
            resumable=kept is not None,
        )
        if kept is not None and kept.rho is not None:
            run.load_state_dict(kept.state)
        elif kept is not None:
            run.reserve()
            kept.begin(rho, priced, run.state_dict(), private.meter)
        stack.enter_context(run)
        yield PaidRun(rho, priced, kept, run)
