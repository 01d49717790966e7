"""Sets of blocks as their callers see them: a range of blocks pays for a run as one budget does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import Any

from tightbudget.ledger.acts import answers
from tightbudget.ledger.acts.requests import Request
from tightbudget.ledger.budget import LedgerBudget, preview_of, statement_of
from tightbudget.ledger.chosen_blocks import Chosen
from tightbudget.ledger.hold import LedgerHold, found, reserve
from tightbudget.ledger.rows import budget_rows
from tightbudget.ledger.session import LedgerSession
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.amount import Amount, ExactAmount, printed_up
from tightbudget.output_dp.pricing import Guarantee
from tightbudget.promises.charged_blocks import BaseBlockRange, BaseBlocks
from tightbudget.promises.kinds.blocks import BlockSet
from tightbudget.promises.units import NOTHING, Units
from tightbudget.promises.values import BlockTerms, Preview, Statement


class Blocks(BaseBlocks["BlockRange"]):
    """A set of blocks of a ledger: rows by public columns, each block with a budget of its own.

    Guarantee: all that is released about one person is (epsilon, delta)-DP with the two numbers of
    :attr:`person`, if each run is charged to all blocks that it reads, a row's block depends on
    that row alone, at most ``rows_in`` blocks have rows of the person, and the guarantee of each
    run holds for all her rows in the blocks that it reads. Then the prices of the runs that read
    rows of hers add up to at most what her blocks are charged for.
    Source: Hartmann et al. 2022, Theorem 7 (proofs/filter.v, theorem filter), where runs that read
    no row of hers cost nothing; Sage (Lecuyer et al. 2019).

    :meth:`Ledger.blocks` makes one.

    Args:
        session: the ledger.
        declared: the terms of the set.
    """

    def __init__(self, session: LedgerSession, declared: BlockSet) -> None:
        super().__init__(_terms_of(declared))
        self._session, self._set = session, declared

    def _range(self, chosen: Mapping[str, Sequence[str]]) -> BlockRange:
        return BlockRange(self._session, self._set, chosen)

    def statements(self, last: int | None = None) -> tuple[Statement, ...]:
        """Reads the budgets that were touched, at one moment, in the order of their names.

        Args:
            last: the largest number of budgets, of which the last names are read; by default all.
        """
        with self._session.read() as connection:
            found = [*budget_rows.made_by_rule(connection, self._set.beginning, last)]
        # by their characters, wherever the ledger is: the order of PostgreSQL is its locale's
        found.sort(key=lambda balance: balance.name)
        return tuple(statement_of(balance, None, NOTHING) for balance in found)

    def close(self) -> Amount:
        """Ends the set: no run is charged to its blocks any more.

        Returns:
            the amount that was spent under its cap (rounded up).

        Raises:
            SettlementError: something is still held under its cap.
        """
        return LedgerBudget(self._session, self.name).close()


class BlockRange(BaseBlockRange[LedgerHold]):
    """Blocks of one set that pay for a run together: each is charged, or none.

    ``by`` of a method is the name of the analyst whose quota pays, if the set has quotas and if it
    is not who acts on this ledger. :meth:`Blocks.where` makes one.

    Args:
        session: the ledger.
        declared: the terms of the set.
        chosen: for each dimension the values, all combinations of which are blocks of the range.
    """

    def __init__(
        self, session: LedgerSession, declared: BlockSet, chosen: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__(declared, chosen)
        self._session, self._set = session, declared

    @property
    def url(self) -> str:
        """The address of the database that they are in, without a password."""
        return self._session.url

    @property
    def left(self) -> Amount:
        chosen = self._chosen()
        with self._session.read() as connection:
            known = budget_rows.known_balances(connection, self._names)
        payers = [chosen.usable(known.get(name) or chosen.fresh(name, -1)) for name in self._names]
        least = payers[0].left
        for payer in payers[1:]:
            least = least.least(payer.left)
        return least.down(payers[0].rule.unit)

    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        *,
        also: Sequence[str] = (),
        interactive: bool = False,
        question: str | None = None,
        by: str | None = None,
    ) -> LedgerHold:
        request = self._request(guarantee, also, interactive, by)
        return reserve(self._session, key, request, by, question)

    def _hold(self, key: str, token: str | None) -> LedgerHold:
        return found(self._session, key, token)

    def what_if(self, guarantee: Guarantee, *, by: str | None = None) -> Preview:
        request = self._request(guarantee, (), False, by)
        with self._session.read() as connection:
            payers, asked, refusal = answers.answer(connection, request)
        payer, wanted = min(zip(payers, asked, strict=True), key=lambda pair: pair[0].left)
        return preview_of(payer, wanted, refusal)

    def _chosen(self) -> Chosen:
        """The set, and the day by the ledger's clock."""
        today: date = self._session.now().date()
        return Chosen(set=self._set, today=today)

    def _request(
        self, guarantee: Any, also: Sequence[str], interactive: bool, by: str | None
    ) -> Request:
        """The request of a run: its blocks, what the set has beside them, and ``also``."""
        beside = [self._session.named(also=name) for name in self._beside(also)]
        for name in filter(self._set.has, beside):  # guard: blocks-by-their-values
            raise refuse(
                "also", "name other budgets than the set's: where() names its blocks", name
            )
        if self._set.has_cap:
            beside.append(self._set.name)  # guard: cap-beside-blocks
        if self._set.quota_epsilon is not None:
            beside.append(self._set.quota_of(self._session.who(by)["by"]))
        names = (*self._names, *beside)
        return Request.of(guarantee, names, bool(interactive), self._chosen())


def _terms_of(declared: BlockSet) -> BlockTerms:
    """Rounds the terms of a set: what is granted down, what a person loses up."""

    def granted(epsilon: Fraction | None, delta: Fraction) -> Amount | None:
        if epsilon is None:
            return None
        return Units.granted(ExactAmount(counted=epsilon, delta=delta)).down("epsilon")

    block = granted(declared.epsilon, declared.delta)
    assert block is not None, "each block has a budget"
    epsilon, delta = declared.person
    return BlockTerms(
        name=declared.name,
        by=declared.by,
        block=block,
        rows_in=declared.rows_in,
        cap=granted(declared.cap_epsilon, declared.cap_delta),
        quota=granted(declared.quota_epsilon, declared.quota_delta),
        unlocking=declared.unlocking,
        person=Amount(amount=printed_up(epsilon), delta=printed_up(delta), unit="epsilon"),
    )
