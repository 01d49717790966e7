"""The marginals that a run has measured, in a file, so that a program started again has them.

The file begins with what the run was reserved with: its plan with the prices, and the token that
starts it. Then it has the marginals of each measurement and a line that ends them, before anything
is chosen by them. So whoever finds the file goes on with the run, or has all that was paid for; the
ledger knows which moves were taken.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from tightbudget.durable_lines import DurableLines
from tightbudget.errors import FencingError, FileError, ParameterError
from tightbudget.marginals.marginal_run import NoisyMarginal
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.account import State
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.guarantee import cell_from_lists
from tightbudget.promises.hold import BaseHold
from tightbudget.promises.keyed import Asking
from tightbudget.release.meter import Meter
from tightbudget.release.release import Receipt
from tightbudget.workflows.prices import PricedWorkflow
from tightbudget.workflows.workflow import Workflow, listed

_HEAD, _KIND = b"tightbudget: marginals of a run, format 1\n", "a file of the marginals of a run"


class KeptMarginals:
    """The marginals of one run in a file, which no other process of this machine has open.

    Attributes:
        marginals: what was measured, in its order.
        ended: the reason why the rounds ended early; None if they did not, or have not ended.

    Args:
        path: of the file.
        lines: of the file.
        asked: what the run is of, as plain JSON values by the names of arguments.

    Raises:
        ParameterError: the file is of a run of something else.
        FileError: its first line is damaged.
    """

    def __init__(self, path: str, lines: DurableLines, asked: Mapping[str, Any]) -> None:
        self._path, self._lines, self._asked = path, lines, asked
        self.marginals: list[NoisyMarginal] = []
        self.ended: str | None = None
        self._begun: Mapping[str, Any] | None = None
        found: list[NoisyMarginal] = []
        for line in lines.found:
            ((kind, content),) = json.loads(line).items()
            if kind == "begun":
                self._begun = content
            elif kind == "ended":
                self.ended = content
            elif kind == "measured":
                if len(found) >= content:  # guard: whole-measurements
                    self.marginals += found[len(found) - content :]
                found.clear()
            else:
                counts = np.array(content["counts"], dtype=np.float64)
                merged = {name: tuple(cells) for name, cells in content.get("merged", {}).items()}
                columns, sigma = tuple(content["columns"]), content["sigma"]
                found.append(NoisyMarginal(columns, counts, sigma, merged))
        if self._begun is None:
            if lines.found:
                raise FileError(f"{path}: the line that says which run this is of is damaged")
            return
        for name, value in asked.items():
            before = self._begun["asked"].get(name)
            if before != json.loads(json.dumps(value)):  # guard: kept-of-this-run
                raise ParameterError(
                    f"keep must be a new file, or that of the same run: {path} is of one with "
                    f"another {name}"
                )

    @property
    def rho(self) -> float | None:
        """zCDP's scale of all noise, with which the run was begun; None before it was."""
        return None if self._begun is None else float(self._begun["rho"])

    @property
    def state(self) -> Mapping[str, Any]:
        """The state of the run that was begun, with its token."""
        assert self._begun is not None, "the run has begun"
        state: Mapping[str, Any] = self._begun["state"]
        return state

    def priced(self, workflow: Workflow) -> PricedWorkflow:
        """Returns the plan of the run that was begun, with its prices.

        Args:
            workflow: of the plan.
        """
        assert self._begun is not None, "the run has begun"
        prices = {cell_from_lists(state): price for state, price in self._begun["prices"]}
        delta = Bounds(*self._begun["delta"])
        return PricedWorkflow(workflow, prices, delta, self._begun["target"])

    def begin(
        self, rho: float, priced: PricedWorkflow, state: Mapping[str, Any], meter: Meter
    ) -> None:
        """Writes down what the run was reserved with, before it starts.

        Args:
            rho: zCDP's scale of all noise.
            priced: the plan with its prices.
            state: of the run.
            meter: pays for it.

        Raises:
            FileError: the file cannot be written.
        """
        hold = _hold(meter, state)
        assert hold is not None, "the run is reserved"
        self._begun = {
            "asked": dict(self._asked),
            "rho": rho,
            "prices": [[listed(cell), price] for cell, price in priced.prices.items()],
            "delta": [priced.delta.lower, priced.delta.upper],
            "target": priced.target,
            "state": dict(state),
            "held": hold.charge.to_dict(),
        }
        self._keep("begun", self._begun)

    def keep(self, measured: Sequence[NoisyMarginal]) -> None:
        """Makes the marginals of one measurement durable, all or none.

        Raises:
            FileError: the file cannot be written.
        """
        for one in measured:
            content = {"columns": one.columns, "counts": one.counts.tolist(), "sigma": one.sigma}
            content |= {"merged": one.merged} if one.merged else {}
            self._keep("marginal", content)
        if measured:
            self._keep("measured", len(measured))
        self.marginals += measured

    def end(self, ended: str) -> None:
        """Writes down why the rounds end early.

        Raises:
            FileError: the file cannot be written.
        """
        self.ended = ended
        self._keep("ended", ended)

    def receipt(self, meter: Meter) -> Receipt | None:
        """Returns the receipt of the run if it is over; None while it may go on.

        Raises:
            ParameterError: the meter has another key, or none.
            FencingError: the run of this key was begun with another token.
            SettlementError: the ledger has no run of this key.
        """
        assert self._begun is not None, "the run has begun"
        key = getattr(_keyed(meter), "next_key", None)
        if key != self.state["key"]:
            must = f"be a budget with the key of {self._path}, {self.state['key']!r}"
            raise refuse("meter", must, key)
        hold = _hold(meter, self.state)
        if hold is None:
            raise FencingError(f"{self._path} is of another run than that of {key!r} in the ledger")
        if hold.state in (State.RESERVED, State.STARTED):
            return None
        return Receipt(Amount.from_dict(self._begun["held"]), hold.charge, hold.question)

    def _keep(self, kind: str, content: Any) -> None:
        self._lines.keep(json.dumps({kind: content}).encode("ascii"))


def has_begun(path: Path) -> bool:
    """Says whether a file has a run that was begun, which may have measured something."""
    return b' {"begun": ' in path.read_bytes()


def _keyed(meter: Any) -> Any:
    return meter.keyed if isinstance(meter, Asking) else meter


def _hold(meter: Any, state: Mapping[str, Any]) -> BaseHold[Any] | None:
    """Returns the run of a state; None if it was started with another token."""
    hold: BaseHold[Any] | None = _keyed(meter).started_with(state["key"], state["token"])
    return hold


@contextlib.contextmanager
def opened(path: str | PathLike[str], asked: Mapping[str, Any]) -> Iterator[KeptMarginals]:
    """Opens the file of a run, or begins one; waits for another process that has it open.

    Args:
        path: of the file.
        asked: what the run is of.

    Raises:
        FileError: it cannot be read or written, or is a file of another kind.
        ParameterError: it is of a run of something else.
    """
    lines = DurableLines(fspath(path), _HEAD, _KIND, alone=True)
    try:
        yield KeptMarginals(fspath(path), lines, asked)
    finally:
        lines.close()
