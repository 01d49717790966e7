"""The composition protocol: a budget in which each output pays its own price.

All guarantees rest on one lemma. Let the analyst choose mechanisms one after the other, each
with its guarantee, knowing all earlier outputs. For a view v, let E(v) be the sum of the
prices of its outputs' cells. If the deltas add up to at most delta on every path, then

    sum over views v of (P(v) - e^E(v) Q(v))_+  <=  delta.

Proof, by induction over the first mechanism: let an output o have P-mass a, Q-mass b and
price E, and c = e^E b. The excesses (a - c)_+ sum to at most delta_1. Given o, the rest of the
view has a P-mass p, a Q-mass q and a price E'; the sum of (p - e^E' q)_+ is at most
delta - delta_1. As (a p - c e^E' q)_+ <= (a - c)_+ p + min(a, c) (p - e^E' q)_+, the sum over
all views is at most delta_1 + (delta - delta_1).

So the view has a guarantee of its own, at the price of the sum of the settled prices. A
filter sees to it that this sum stays below a cap, whatever comes out; then the view is
(cap, delta)-DP. Source: Hartmann et al. 2022, Algorithms 1 and 6, Theorem 7.
"""

from __future__ import annotations

from tightbudget.errors import SettlementError
from tightbudget.output_dp.account import Account
from tightbudget.output_dp.amount import Amount, ExactAmount, Price
from tightbudget.output_dp.pricing import OutputDPOdometerRule, OutputDPRule
from tightbudget.output_dp.transactions import Write


# Proof: proofs/filter.v, theorem composition
class OutputDPOdometer(Account):
    """Adds up the prices of the outputs that came out, without a cap.

    Guarantee: where the deltas cannot add up to more than some delta, all that the analyst
    sees is output differentially private with this delta, each view at the price
    ``spent.epsilon``. Settled prices may only be added: no other formula holds for them.

    One-shot mechanisms may be held side by side, in the order in which they run. Interactive
    ones only if each has delta = 0: then the likelihoods of their transcripts multiply.
    Source: Hartmann et al. 2022, Theorem 7.
    """

    def __init__(self) -> None:
        super().__init__(OutputDPOdometerRule())

    # Proof: proofs/account.v, theorems account_private, account_both_directions
    def sub(self, epsilon: Price, delta: Price = 0) -> OutputDPFilter:
        """A new budget that is a part of this one, which holds it until the part is closed.

        Args:
            epsilon: of the part, >= 0, nats.
            delta: of the part, in [0, 1].

        Raises:
            BudgetError: the part does not fit into what is left.
            SettlementError: this account is closed.
            ParameterError: epsilon or delta is refused.
        """
        part = OutputDPFilter(epsilon, delta)
        part._join(self)
        return part


# Proof: proofs/filter.v, theorems filter, both_directions
# Proof: proofs/account.v, theorem one_budget
class OutputDPFilter(OutputDPOdometer):
    """A budget of (epsilon, delta) in which each output pays its own price.

    Guarantee: all that the analyst sees of the mechanisms that are paid for here is
    (epsilon, delta)-DP, however these, their guarantees and their number are chosen.
    Source: Hartmann et al. 2022, Algorithms 1 and 6, Theorem 7.

    Args:
        epsilon: >= 0, nats. Ten charges of 0.1 fit into 1.0, since a float means the decimal
            that it prints as.
        delta: in [0, 1].

    Raises:
        ParameterError: epsilon or delta is refused.
    """

    def __init__(self, epsilon: Price, delta: Price = 0) -> None:
        rule = OutputDPRule(epsilon=epsilon, delta=delta)
        Account.__init__(self, rule)
        self._whole: ExactAmount = rule.cap
        self._parent: OutputDPOdometer | None = None

    # Proof: proofs/account.v, theorem nothing_lost
    def _join(self, parent: OutputDPOdometer) -> None:
        """Makes this budget a part of ``parent``, which holds the whole of it from now on."""
        # guard: conversations-elsewhere-count
        self._transactions, self._conversations = parent._transactions, parent._conversations
        self._parent = parent
        self._transactions.run(lambda: [parent._taken(self._whole)])

    # Proof: proofs/account.v, theorems nothing_lost, account_private, account_both_directions
    def close(self) -> Amount:
        """Ends this budget; if it is a part of another, what is left goes back there.

        Delta goes back, too. To the lemma above a mechanism that ran here is one more in the
        whole sequence, and on every path the deltas of those that ran must add up to at most the
        cap: a delta that was reserved for a run is spent for good, one that never was
        belongs to no mechanism.

        Returns:
            the amount that was spent here.

        Raises:
            SettlementError: something is still held; or the process was forked.
        """

        def end() -> list[Write]:
            now = self._now
            if now.holders:  # guard: part-run-stays-open
                raise SettlementError(
                    f"{self.held} is still held here: settle, forfeit or close it first"
                )
            if now.closed:  # guard: part-closed-once
                return []
            ended: Write = (self._balance, now._replace(closed=True))
            if self._parent is None:
                return [ended]
            # guard: closed-part-stays-spent
            return [ended, *self._parent._exchanged(self, held=self._whole, charge=now.spent)]

        self._transactions.run(end)  # guard: closed-part-in-one-act
        return self.spent
