"""A run that its ledger keeps, so that another process may go on with it after a crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from tightbudget.errors import ParameterError, SettlementError
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.account import State
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.promises.chain import canonical, digest
from tightbudget.promises.hold import BaseHold
from tightbudget.promises.keyed import Asking, Keyed, Places
from tightbudget.promises.secret import new_secret
from tightbudget.release.meter import Meter
from tightbudget.release.release import Started

_VERSION = 1  # of the state of a run


class Declared(NamedTuple):
    """Says what a resumable run is of, in the words of its refusals.

    Attributes:
        by: the class whose objects are resumable.
        what: the name of the argument that says what may run.
        has: what two of these must have alike, and why they may not.
        content: this, as plain JSON values.
    """

    by: str
    what: Literal["schedule", "workflow"]
    has: str
    content: Any


class KeptRun:
    """A run as its ledger keeps it: its hold, its token, and the places that it has come to.

    The token is drawn before the run starts. So its state can be kept first, and a process that
    dies at any moment after that loses no run.

    Args:
        meter: the budget that pays, with a key.
        guarantee: makes the prices of the run.
        declared: what the run is of. Without prices, which the ledger has: their last digits differ
            between machines.
        last: the largest place that is claimed.

    Raises:
        ParameterError: the meter is no budget of a ledger with a key.
    """

    def __init__(
        self, meter: Meter, guarantee: Callable[[], OutputDP], declared: Declared, last: int
    ) -> None:
        self._question: str | None = None
        if isinstance(meter, Asking):
            self._question, meter = meter.question, meter.keyed
        if not isinstance(meter, Keyed):
            raise ParameterError(
                'meter must be a budget of a ledger with a key, say budget.keyed("A7"), for a '
                f"resumable run, got a {type(meter).__name__}"
            )
        self._meter: Keyed[BaseHold[Any]] = meter
        self._guarantee, self._declared, self._last = guarantee, declared, last
        self._digest = digest(canonical(declared.content))
        self._hold: BaseHold[Any] | None = None
        self._places: Places[BaseHold[Any]] | None = None
        # of this process's reservation, or of a state that was loaded
        self._key: str | None = None
        self._token: str | None = None
        self._loaded = False

    def goes_on(self) -> bool:
        """Says whether another process has started the run whose state was loaded.

        Raises:
            SettlementError: the ledger has no run of its key.
        """
        if not self._loaded:
            return False
        assert self._key is not None, "a state has a key"
        assert self._token is not None, "a state has a token"
        hold = self._meter.started_with(self._key, self._token)
        return hold is None or hold.state is not State.RESERVED

    def reserve(self, interactive: bool) -> None:
        """Reserves the run and draws its token, if it has no state yet."""
        if self._token is None:
            self._ask(interactive)

    def begin(self, interactive: bool) -> Started:
        """Starts the run with its token; reserves it first, if this process has not done so."""
        hold = self._hold or self._ask(interactive)
        hold.start(token=self._token)  # guard: started-with-the-kept-token
        return Started(None, hold.charge)

    def _ask(self, interactive: bool) -> BaseHold[Any]:
        """Asks the ledger for the hold of the run; of a state's run, it has it already."""
        key = self._meter.next_key
        if self._loaded:
            self._check_key(self._key)
        places = self._meter.places(key)
        places.key_after(self._last)  # refused here, and not after some training
        hold = self._meter.reserve(
            self._guarantee(), interactive=interactive, question=self._question
        )
        token = self._token or new_secret()
        if hold.state is not State.RESERVED:  # guard: state-of-a-run-to-start
            hold.start(token=token)  # is refused, and says what can be done
        self._hold, self._places, self._key, self._token = hold, places, key, token
        return hold

    def take_over(self, interactive: bool) -> Started:
        """Returns the run whose state was loaded.

        Args:
            interactive: as when the run was reserved.

        Raises:
            ParameterError: it was reserved otherwise.
            SettlementError: no state was loaded, or the run is over.
            FencingError: the token of the state is not that of the run.
        """
        if not self._loaded:
            raise SettlementError("load_state_dict comes first: there is no run to end")
        assert self._token is not None, "a state has a token"
        hold = self._meter.taken_over(self._token)
        if hold.interactive != interactive:
            raise ParameterError(
                f"interactive must be {hold.interactive}, as when {hold.key!r} was reserved, got "
                f"{interactive}"
            )
        self._hold, self._places = hold, self._meter.places(hold.key)
        return Started(None, hold.charge)

    @property
    def places(self) -> Places[BaseHold[Any]]:
        """The places that the run has come to."""
        assert self._places is not None, "the run has begun"
        return self._places

    def settle(self, cell: Cell) -> Amount:
        """Charges the price of a cell."""
        assert self._hold is not None, "the run has begun"
        return self._hold.settle(cell)

    def state(self) -> dict[str, Any]:
        """Returns the state of the run.

        Raises:
            SettlementError: the run is not reserved, and no state was loaded.
        """
        if self._token is None:
            raise SettlementError(
                "the run is not reserved: its state is there after reserve(), and in the run"
            )
        return {
            "tightbudget": _VERSION,
            "key": self._key,
            "token": self._token,
            self._declared.what: self._digest,
        }

    def load(self, state: object) -> None:
        """Takes a state; refuses that of another run by what differs.

        Raises:
            ParameterError: it is no state, or that of another run.
            SettlementError: this process has reserved the run.
        """
        if self._hold is not None:
            raise SettlementError("a state is loaded before the run is reserved or entered")
        by, what, has, _ = self._declared
        if not isinstance(state, Mapping) or {*state} != {"tightbudget", "key", "token", what}:
            # not the state itself, which may hold a token
            raise ParameterError(f"state must be what state_dict() of a {by} returned")
        if state["tightbudget"] != _VERSION:
            raise refuse("the state's version", f"be {_VERSION}", state["tightbudget"])
        self._check_key(state["key"])
        if state[what] != self._digest:
            raise ParameterError(
                f"{what} must have {has} of the run that the state is of: keep their parameters "
                "with the checkpoint, since a search for them may find others"
            )
        if not isinstance(state["token"], str):
            raise ParameterError("the state's token must be a text")
        self._key, self._token, self._loaded = state["key"], state["token"], True

    def _check_key(self, key: object) -> None:
        """Refuses the key of a state unless it is that of the meter's next run."""
        if key != self._meter.next_key:  # guard: state-of-this-key
            raise refuse("the state's key", f"be {self._meter.next_key!r}", key)


def not_resumable(by: str) -> SettlementError:
    """Makes the refusal of a state where a run keeps none.

    Args:
        by: what the run was to be made with, in a word or two.
    """
    return SettlementError(f"a run has a state if its {by} was made with resumable=True")
