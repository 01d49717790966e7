from __future__ import annotations

import pytest
from tests.ledger.conformance import TABLES, ConformanceTable, LedgerActor
from tests.ledger.model import Model


@pytest.mark.one_in(3)
@pytest.mark.parametrize("table", TABLES, ids=str)
def test_every_backend_answers_as_the_tables_say(
    table: ConformanceTable, actor: LedgerActor
) -> None:
    table.check(actor)


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_the_model_answers_as_the_tables_say(table: ConformanceTable) -> None:
    table.check(Model())


def test_a_wrong_answer_is_shown() -> None:
    table = ConformanceTable(name="two runs in one", text="open data 1 0 | ok\nreserve A1 2 | ok")
    with pytest.raises(AssertionError, match=r"two runs in one: reserve A1 2 \| exceeded, not ok"):
        table.check(Model())
