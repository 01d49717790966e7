"""The conformance suite of the ledger: tables that an auditor can read, and what plays them.

A table is a story. Each line is a deed, and after the bar what every ledger must answer:

    open    data 1 1e-6        | ok
    reserve A1 yes=0.3,no=0    | ok
    reserve A1 yes=0.3,no=0    | again
    reserve A1 0.4             | conflict
    start   A1                 | ok
    settle  A1 no              | ok
    epsilon data               | spent 0 held 0 left 1 saved 0.3

``ok`` has written something that lasts; ``again`` has answered as before and written nothing;
``granted 0.3`` says that this is all that was left. Other words name a refusal, after which
nothing has changed. A guarantee is written as the prices of its cells, ``*`` for the sup, and
``+`` before its delta: ``yes=0.3,no=0,*=0.5+1e-9``; a number alone is the price of all cells.
A budget is named after ``on`` (several with commas between them), or else is the first one.

Whoever teaches the ledger another database runs every table against it::

    for table in TABLES:
        table.check(LedgerActor(url_of_an_empty_database()))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from tightbudget.audit.result import Audit
from tightbudget.errors import (
    BudgetError,
    FencingError,
    KeyConflictError,
    ParameterError,
    SettlementError,
    TightBudgetError,
)
from tightbudget.ledger.ledger import Ledger
from tightbudget.output_dp.guarantee import OutputDP


@dataclass(frozen=True, kw_only=True)
class Deed:
    """One line of a table, before the bar.

    Attributes:
        verb: the first word of the line: ``reserve``, ``settle``, ...
        name: the name of a budget, or the key of a reservation.
        words: the further words of the line.
        budgets: the names after ``on``, or the parent's name after ``in``.
    """

    verb: str
    name: str = ""
    words: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()

    @staticmethod
    def read(line: str) -> Deed:
        """Reads the deed that a line names."""
        words = line.split()
        budgets: tuple[str, ...] = ()
        if len(words) > 2 and words[-2] in ("on", "in"):
            budgets = tuple(words[-1].split(","))
            words = words[:-2]
        return Deed(
            verb=words[0],
            name=words[1] if len(words) > 1 else "",
            words=tuple(words[2:]),
            budgets=budgets,
        )


def guarantee(text: str) -> OutputDP:
    """Makes the guarantee that a word of a table stands for."""
    prices, _, delta = text.partition("+")
    if "=" not in prices:
        return OutputDP.from_dp(Fraction(prices), Fraction(delta or 0))
    pairs = (entry.partition("=") for entry in prices.split(","))
    cells = {cell: Fraction(price) for cell, _, price in pairs}
    sup = cells.pop("*", None)
    return OutputDP(cells, Fraction(delta or 0), sup=sup)


def found(p_value: str) -> Audit:
    """Makes the audit that a word of a table stands for: it refutes from 0.05 on down."""
    return Audit(
        test="one run", delta=1e-5, level=0.05, trials=400, guesses=132, right=100,
        epsilon_at_least=0.5, mu_at_least=0.25, p_value=float(p_value), claim=None, points=(),
        needed=None,
    )  # fmt: skip


def number(amount: float) -> str:
    """Writes an amount as a word of an answer."""
    return repr(amount).removesuffix(".0")


class Actor(Protocol):
    """Plays a table's deeds: a ledger, or a model of one."""

    def act(self, deed: Deed) -> str:
        """Does a deed and answers in the words of the tables."""
        ...


# An error has the word of the first class that it belongs to.
_REFUSALS: dict[type[TightBudgetError], str] = {
    BudgetError: "exceeded",
    KeyConflictError: "conflict",
    FencingError: "fenced",
    SettlementError: "too late",
    ParameterError: "refused",
}


class LedgerActor:
    """Plays a table's deeds on the ledger at an address.

    Args:
        url: the address.
        tokens: the tokens of the runs that it may settle, by key; it adds those that it starts.
    """

    def __init__(self, url: str, tokens: Mapping[str, str | None] | None = None) -> None:
        self.url = url
        self.ledger = Ledger(url)
        self.tokens = dict(tokens or {})

    def act(self, deed: Deed) -> str:
        """Does a deed and answers in the words of the tables."""
        try:
            if deed.verb in ("epsilon", "delta"):
                return self._balance(deed)
            if deed.verb == "state":
                return self.ledger.hold(deed.name).state.value
            before = self.ledger.head()
            said = getattr(self, f"_{deed.verb}")(deed)
        except tuple(_REFUSALS) as error:
            return next(word for kind, word in _REFUSALS.items() if isinstance(error, kind))
        return (said or "ok") if self.ledger.head() != before else "again"

    def close(self) -> None:
        """Gives the ledger's connections back."""
        self.ledger.close()

    def told(self, *lines: str) -> list[str]:
        """Does several deeds, one after the other, and returns their answers."""
        return [self.act(Deed.read(line)) for line in lines]

    def _balance(self, deed: Deed) -> str:
        statement = self.ledger.budget(deed.name).statement()
        words = ("spent", "held", "left", "saved")
        amounts = (getattr(getattr(statement, word), deed.verb) for word in words)
        return " ".join(f"{w} {number(x)}" for w, x in zip(words, amounts, strict=True))

    def _open(self, deed: Deed) -> None:
        epsilon, delta = map(Fraction, deed.words)
        parent = deed.budgets[0] if deed.budgets else None
        self.ledger.open_budget(deed.name, epsilon=epsilon, delta=delta, parent=parent)

    def _raise(self, deed: Deed) -> None:
        epsilon, delta = map(Fraction, deed.words)
        budget = self.ledger.budget(deed.name)
        budget.raise_cap(epsilon=epsilon, delta=delta, by="ada", reason="agreed")

    def _close(self, deed: Deed) -> None:
        self.ledger.budget(deed.name).close()

    def _reserve(self, deed: Deed) -> str | None:
        budgets = deed.budgets or (self.ledger.budgets()[0].name,)
        hold = self.ledger.reserve(deed.name, guarantee(deed.words[0]), budgets)
        return f"granted {number(hold.charge.epsilon)}" if hold.told else None

    def _start(self, deed: Deed) -> None:
        hold = self.ledger.hold(deed.name)
        hold.start()
        self.tokens[deed.name] = hold.token

    def _forget(self, deed: Deed) -> None:
        self.tokens.pop(deed.name, None)

    def _settle(self, deed: Deed) -> None:
        hold = self.ledger.hold(deed.name, token=self.tokens.get(deed.name))
        hold.settle(deed.words[0])

    def _guess(self, deed: Deed) -> None:
        """Tries every text that the history shows of a run as its token, one after the other."""
        refusal: FencingError | None = None
        for event in list(self.ledger.events(key=deed.name)):
            shown = (event.sequence, event.hash, event.at, *event.details.values())
            for guess in (text for text in map(str, shown) if text.isascii()):
                try:
                    self.ledger.hold(deed.name, token=guess).settle(deed.words[0])
                    return
                except FencingError as error:
                    refusal = error
        if refusal is not None:
            raise refusal

    def _forfeit(self, deed: Deed) -> None:
        self.ledger.hold(deed.name).forfeit()

    def _void(self, deed: Deed) -> None:
        self.ledger.hold(deed.name).void()

    def _expire(self, deed: Deed) -> None:
        self.ledger.expire(deed.name, by="ada", reason="abandoned")

    def _reopen(self, deed: Deed) -> None:
        self.close()
        self.ledger = Ledger(self.url)

    def _audit(self, deed: Deed) -> None:
        budget = self.ledger.budget(deed.budgets[0])
        budget.record_audit(deed.name, found(deed.words[0]))

    def _verify(self, deed: Deed) -> None:
        self.ledger.verify()


@dataclass(frozen=True, kw_only=True)
class ConformanceTable:
    """A story that every ledger must tell in the same words.

    Attributes:
        name: the rule of the ledger that the story shows.
        text: lines of deeds, each with the answer after a bar.
    """

    name: str
    text: str

    def check(self, actor: Actor) -> None:
        """Has an actor play the story, and compares each answer.

        Raises:
            AssertionError: an answer is another one; shows the line.
        """
        for deed, expected in self._lines():
            answer = actor.act(Deed.read(deed))
            if not _same(answer, expected):
                raise AssertionError(f"{self.name}: {deed} | {answer}, not {expected}")

    def _lines(self) -> Iterator[tuple[str, str]]:
        for line in self.text.strip().splitlines():
            deed, _, answer = line.partition("|")
            yield deed.strip(), answer.strip()

    def __str__(self) -> str:
        return self.name


def _same(answer: str, expected: str) -> bool:
    """Compares two answers word by word, and numbers by their values."""
    return [*map(_value, answer.split())] == [*map(_value, expected.split())]


def _value(word: str) -> Fraction | str:
    try:
        return Fraction(word)
    except ValueError:
        return word


TABLES = (
    ConformanceTable(
        name="one run, from its reservation to its price",
        text="""
        open    data 1 1e-6            | ok
        reserve A1 yes=0.3,no=0+1e-7   | ok
        epsilon data                   | spent 0 held 0.3 left 0.7 saved 0
        delta   data                   | spent 0 held 1e-7 left 9e-7 saved 0
        start   A1                     | ok
        settle  A1 no                  | ok
        epsilon data                   | spent 0 held 0 left 1 saved 0.3
        delta   data                   | spent 1e-7 held 0 left 9e-7 saved 0
        verify                         | again
        """,
    ),
    ConformanceTable(
        name="the same key and body again answers as before, another body is an error",
        text="""
        open    data 1 1e-6            | ok
        reserve A1 yes=0.3,no=0        | ok
        reserve A1 no=0,yes=0.3        | again
        reserve A1 0.3                 | conflict
        reserve A1 yes=0.3,no=0+1e-9   | conflict
        start   A1                     | ok
        settle  A1 yes                 | ok
        reserve A1 yes=0.3,no=0        | again
        reserve A1 yes=0.2,no=0        | conflict
        epsilon data                   | spent 0.3 held 0 left 0.7 saved 0
        """,
    ),
    ConformanceTable(
        name="an audit is written down once for each key, and changes no balance",
        text="""
        open    data 1 1e-6            | ok
        open    ada 0.5 1e-7 in data   | ok
        reserve A1 0.3+1e-8 on ada     | ok
        audit   A1 0.5 on ada          | ok
        audit   A1 0.5 on ada          | again
        audit   A1 0.01 on ada         | conflict
        audit   A2 0.01 on ada         | ok
        audit   A1 0.5 on data         | ok
        audit   A1 0.5 on bob          | refused
        start   A1                     | ok
        settle  A1 yes                 | ok
        epsilon ada                    | spent 0.3 held 0 left 0.2 saved 0
        close   ada                    | ok
        audit   A3 0.2 on ada          | ok
        audit   A1 0.5 on ada          | again
        reserve A3 0.1 on data         | ok
        epsilon data                   | spent 0.3 held 0.1 left 0.6 saved 0
        delta   data                   | spent 1e-7 held 0 left 9e-7 saved 0
        verify                         | again
        """,
    ),
    ConformanceTable(
        name="a refused key stays refused",
        text="""
        open    data 1 1e-6   | ok
        reserve A1 0.6        | ok
        reserve A2 0.6        | exceeded
        void    A1            | ok
        reserve A2 0.6        | exceeded
        reserve A2 0.5        | conflict
        start   A2            | exceeded
        reserve A3 0.6        | ok
        epsilon data          | spent 0 held 0.6 left 0.4 saved 0
        """,
    ),
    ConformanceTable(
        name="a mechanism runs at most once",
        text="""
        open    data 1 1e-6   | ok
        reserve A1 0.3        | ok
        start   A1            | ok
        start   A1            | too late
        reserve A1 0.3        | again
        start   A1            | too late
        settle  A1 yes        | ok
        start   A1            | too late
        """,
    ),
    ConformanceTable(
        name="void only before the start, and for good",
        text="""
        open    data 1 1e-6   | ok
        reserve A1 0.3+1e-7   | ok
        void    A1            | ok
        void    A1            | again
        epsilon data          | spent 0 held 0 left 1 saved 0
        delta   data          | spent 0 held 0 left 1e-6 saved 0
        start   A1            | too late
        settle  A1 yes        | too late
        forfeit A1            | too late
        reserve A2 0.3        | ok
        start   A2            | ok
        void    A2            | too late
        expire  A2            | too late
        epsilon data          | spent 0 held 0.3 left 0.7 saved 0
        """,
    ),
    ConformanceTable(
        name="who forfeits pays the worst-case price",
        text="""
        open    data 1 1e-6            | ok
        reserve A1 yes=0.3,no=0+1e-7   | ok
        start   A1                     | ok
        forfeit A1                     | ok
        forfeit A1                     | again
        settle  A1 no                  | fenced
        void    A1                     | too late
        epsilon data                   | spent 0.3 held 0 left 0.7 saved 0
        delta   data                   | spent 1e-7 held 0 left 9e-7 saved 0
        """,
    ),
    ConformanceTable(
        name="nothing is settled that was not started",
        text="""
        open    data 1 1e-6            | ok
        reserve A1 yes=0.3,no=0.1      | ok
        settle  A1 no                  | too late
        settle  A2 no                  | too late
        start   A2                     | too late
        epsilon data                   | spent 0 held 0.3 left 0.7 saved 0
        """,
    ),
    ConformanceTable(
        name="a process without the token of the start settles nothing, and may forfeit",
        text="""
        open    data 1 1e-6            | ok
        reserve A1 yes=0.3,no=0.1      | ok
        reserve A2 yes=0.3,no=0.1      | ok
        start   A1                     | ok
        start   A2                     | ok
        forget  A1                     | again
        settle  A1 no                  | fenced
        forfeit A1                     | ok
        forfeit A2                     | ok
        settle  A2 no                  | fenced
        epsilon data                   | spent 0.6 held 0 left 0.4 saved 0
        """,
    ),
    ConformanceTable(
        name="a colleague, who sees the whole history, does not settle another's run",
        text="""
        open    data 1 1e-6            | ok
        reserve A1 yes=0.3,no=0        | ok
        start   A1                     | ok
        guess   A1 no                  | fenced
        epsilon data                   | spent 0 held 0.3 left 0.7 saved 0
        settle  A1 yes                 | ok
        guess   A1 no                  | too late
        epsilon data                   | spent 0.3 held 0 left 0.7 saved 0
        """,
    ),
    ConformanceTable(
        name="settled once, with one cell",
        text="""
        open    data 1 1e-6            | ok
        reserve A1 yes=0.3,no=0.1      | ok
        start   A1                     | ok
        settle  A1 yes                 | ok
        settle  A1 yes                 | again
        settle  A1 no                  | too late
        forfeit A1                     | too late
        epsilon data                   | spent 0.3 held 0 left 0.7 saved 0
        """,
    ),
    ConformanceTable(
        name="a cell that nobody declared costs the sup",
        text="""
        open    data 2 1e-6                  | ok
        reserve A1 yes=0.3,no=0              | ok
        start   A1                           | ok
        settle  A1 perhaps                   | ok
        epsilon data                         | spent 0.3 held 0 left 1.7 saved 0
        reserve A2 yes=0.3,no=0,*=0.5        | ok
        epsilon data                         | spent 0.3 held 0.5 left 1.2 saved 0
        start   A2                           | ok
        settle  A2 perhaps                   | ok
        epsilon data                         | spent 0.8 held 0 left 1.2 saved 0
        """,
    ),
    ConformanceTable(
        name="an abandoned reservation is expired by an administrator, a started one never",
        text="""
        open    data 1 1e-6   | ok
        reserve A1 0.3        | ok
        expire  A1            | ok
        epsilon data          | spent 0 held 0 left 1 saved 0
        start   A1            | too late
        reserve A2 0.3        | ok
        start   A2            | ok
        expire  A2            | too late
        """,
    ),
    ConformanceTable(
        name="ten times a tenth is one, and delta counts as well",
        text="""
        open    data 1 1e-6     | ok
        reserve A1 0.1          | ok
        reserve A2 0.1          | ok
        reserve A3 0.1          | ok
        reserve A4 0.1          | ok
        reserve A5 0.1          | ok
        reserve A6 0.1          | ok
        reserve A7 0.1          | ok
        reserve A8 0.1          | ok
        reserve A9 0.1          | ok
        reserve A10 0.1+1e-6    | ok
        epsilon data            | spent 0 held 1 left 0 saved 0
        delta   data            | spent 0 held 1e-6 left 0 saved 0
        reserve A11 1e-13       | exceeded
        reserve A12 0+1e-19     | exceeded
        reserve A13 0           | ok
        """,
    ),
    ConformanceTable(
        name="a charge is rounded up and a cap down; nothing positive is free",
        text="""
        open    data 1.0000000000019 1e-6    | ok
        epsilon data                         | spent 0 held 0 left 1.000000000001 saved 0
        reserve A1 1e-30+1e-30               | ok
        epsilon data                         | spent 0 held 1e-12 left 1 saved 0
        delta   data                         | spent 0 held 1e-18 left 9.99999999999e-07 saved 0
        start   A1                           | ok
        settle  A1 yes                       | ok
        epsilon data                         | spent 1e-12 held 0 left 1 saved 0
        """,
    ),
    ConformanceTable(
        name="a billionth too much is granted what is left, and told so",
        text="""
        open    data 1 1e-6             | ok
        reserve A1 yes=0.5,no=0         | ok
        reserve A2 0.5000000006         | exceeded
        reserve A3 0.5000000005         | granted 0.5
        reserve A3 0.5000000005         | again
        epsilon data                    | spent 0 held 1 left 0 saved 0
        start   A3                      | ok
        settle  A3 yes                  | ok
        epsilon data                    | spent 0.5 held 0.5 left 0 saved 0
        reserve A4 1e-12                | exceeded
        """,
    ),
    ConformanceTable(
        name=(
            "a part's cap is held in the whole;"
            " epsilon that it did not spend goes back, delta never"
        ),
        text="""
        open    data 1 1e-6              | ok
        open    ada 0.6 5e-7 in data     | ok
        epsilon data                     | spent 0 held 0.6 left 0.4 saved 0
        open    bob 0.5 1e-7 in data     | exceeded
        open    bob 0.4 6e-7 in data     | exceeded
        reserve A1 0.5 on data           | exceeded
        reserve A2 yes=0.5,no=0.1+1e-7 on ada | ok
        epsilon data                     | spent 0 held 0.6 left 0.4 saved 0
        close   ada                      | too late
        start   A2                       | ok
        settle  A2 no                    | ok
        epsilon ada                      | spent 0.1 held 0 left 0.5 saved 0.4
        close   data                     | too late
        close   ada                      | ok
        close   ada                      | again
        epsilon data                     | spent 0.1 held 0 left 0.9 saved 0.4
        delta   data                     | spent 5e-7 held 0 left 5e-7 saved 0
        reserve A3 0.1 on ada            | too late
        close   data                     | ok
        reserve A4 0.1 on data           | too late
        open    eve 0.1 0 in data        | too late
        verify                           | again
        """,
    ),
    ConformanceTable(
        name="one reservation on several budgets: all or nothing",
        text="""
        open    data 1 1e-6                  | ok
        open    ada 0.5 1e-6                 | ok
        reserve A1 yes=0.4,no=0 on data,ada  | ok
        epsilon data                         | spent 0 held 0.4 left 0.6 saved 0
        epsilon ada                          | spent 0 held 0.4 left 0.1 saved 0
        reserve A2 0.2 on data,ada           | exceeded
        reserve A3 0.2 on ada,data           | exceeded
        epsilon data                         | spent 0 held 0.4 left 0.6 saved 0
        epsilon ada                          | spent 0 held 0.4 left 0.1 saved 0
        start   A1                           | ok
        settle  A1 no                        | ok
        epsilon data                         | spent 0 held 0 left 1 saved 0.4
        epsilon ada                          | spent 0 held 0 left 0.5 saved 0.4
        """,
    ),
    ConformanceTable(
        name="a cap is raised, and never lowered below what is spent and held",
        text="""
        open    data 1 1e-6             | ok
        reserve A1 0.8                  | ok
        reserve A2 0.8                  | exceeded
        raise   data 1.6 1e-6           | ok
        reserve A3 0.8                  | ok
        raise   data 1.5 1e-6           | exceeded
        raise   data 1.7 1e-6           | ok
        raise   data 1.6 1e-6           | ok
        epsilon data                    | spent 0 held 1.6 left 0 saved 0
        """,
    ),
    ConformanceTable(
        name="closing the program forgets nothing",
        text="""
        open    data 1 1e-6             | ok
        reserve A1 yes=0.4,no=0.1       | ok
        reserve A2 0.7                  | exceeded
        reopen                          | again
        epsilon data                    | spent 0 held 0.4 left 0.6 saved 0
        reserve A2 0.7                  | exceeded
        start   A1                      | ok
        reopen                          | again
        start   A1                      | too late
        settle  A1 no                   | ok
        reopen                          | again
        settle  A1 no                   | again
        settle  A1 yes                  | too late
        epsilon data                    | spent 0.1 held 0 left 0.9 saved 0.3
        verify                          | again
        """,
    ),
)
